"""The page as one HTML file: its style, its scripts and its data are inside, and it loads nothing."""

from __future__ import annotations

import base64
import json
import re
import zlib
from html import escape
from pathlib import Path

from dlc.driver.report.page.data import page_data
from dlc.driver.report.page.schema import JsonPage
from dlc.driver.report.page.times import add_times
from dlc.driver.report.show import Shown
from dlc.driver.run.request import CompileRequest
from dlc.errors import UsageError
from dlc.runtime.system.atomic_write import write_file

ASSETS = Path(__file__).parent / "assets"
SCRIPTS = ("layout", "model", "code", "graph", "memory", "inspector", "search", "page")
"""In the order in which they need each other."""
LARGEST = 4_500_000
"""Bytes of data from which on texts are left out, so that a page stays below 5 MB."""
LEFT_OUT = ("llvm", "asm", "ptx", "loop")
"""The levels whose texts are left out, in order."""

OTHERS = {
    "svg": "--svg",
    "after": "--after",
    "changed": "--changed",
    "folder": "--dump-dir",
    "short": "--short",
    "stage": "--stage",
}
"""What else `dlc show` may be asked for, by the names of `Shown`."""


def write_page(request: CompileRequest, shown: Shown, path: str, profile: str | None = None) -> int:
    """Write a page that shows a model at every level, and give its bytes.

    `profile` is a file that `dlc profile --json` wrote, for the time of each step. Raises what `page_data`
    and `add_times` do, UsageError (D0915) where `shown` asks for one level as well, and D0502
    where the file cannot be written.
    """
    alone = Shown(entry=shown.entry)
    if shown != alone:
        asked = [name for name in OTHERS if getattr(shown, name) != getattr(alone, name)]
        raise UsageError(
            f"--html shows every level, and {OTHERS[asked[0]]} asks for one view of them",
            code="D0915",
            help="leave one of them out",
        )
    data = page_data(request, shown.entry)
    if profile is not None:
        add_times(data, profile)
    page = page_of(data).encode()
    write_file(Path(path), [page])
    return len(page)


def page_of(data: JsonPage) -> str:
    """The page for this data. A text too long for a page is left out, which its level says."""
    packed = _packed(data)
    for name in LEFT_OUT:
        if len(packed) <= LARGEST:
            break
        _leave_out(data, name)
        packed = _packed(data)
    parts = {
        "title": escape(data["model"]),
        "style": _asset("page.css"),
        "data": packed,
        "scripts": "\n".join(_asset(f"{name}.js") for name in SCRIPTS),
    }
    template = _asset("page.html")
    return re.sub(r"\{(title|style|data|scripts)\}", lambda name: parts[name[1]], template)


def _packed(data: JsonPage) -> str:
    """JSON, compressed by zlib, in base 64: what a browser unpacks by itself."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _leave_out(data: JsonPage, name: str) -> None:
    for level in data["levels"]:
        if level["name"] == name:
            size = len(level["text"])
            level["text"] = (
                f"{size} letters: too long for a page; dlc show --stage {name} prints it"
            )
            level["lines"] = []
    for node in data["nodes"].values():
        node["at"].pop(name, None)


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8").rstrip()
