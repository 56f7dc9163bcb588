"""Whether this machine has what dlc needs, and what it will use."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from dataclasses import dataclass
from typing import Literal

from dlc import __version__
from dlc.codegen import llvm
from dlc.driver.cache import open_cache
from dlc.driver.extensions import load_extensions
from dlc.errors import DlcError
from dlc.runtime import blas, cpu
from dlc.runtime.threads import default_threads

CORETYPE = "OPENBLAS_CORETYPE"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about this machine. `level` is `error` where dlc cannot work as it is."""

    what: str
    text: str
    level: Literal["ok", "warning", "error"] = "ok"


def examine() -> list[Finding]:
    """Everything that matters about this machine."""
    return [
        Finding("dlc", __version__),
        Finding("python", f"{platform.python_version()} on {platform.system()}"),
        *[_package(name) for name in ("numpy", "scipy", "llvmlite", "typer")],
        Finding("llvm", llvm.version()),
        _processor(),
        _blas(),
        _cache(),
        Finding("threads", str(default_threads())),
        *_extensions(),
    ]


def _extensions() -> list[Finding]:
    """Where operations that are not dlc's own come from."""
    try:
        return [Finding("operations", text) for text in load_extensions()]
    except DlcError as error:
        return [Finding("operations", error.diagnostics[0].message, "error")]


def _package(name: str) -> Finding:
    try:
        return Finding(name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "not installed", "error")


def _processor() -> Finding:
    name = cpu.host_model() or platform.machine()
    have = cpu.host_features()
    levels = [level for level, needs in cpu.LEVELS.items() if have.issuperset(needs)]
    if not have:
        return Finding("processor", f"{name}: no x86-64 Linux, dlc has no code for it", "error")
    return Finding("processor", f"{name}, {levels[-1]}")


def _blas() -> Finding:
    try:
        found = blas.library()
    except DlcError as error:
        return Finding("blas", error.diagnostics[0].message, "warning")
    forced = os.environ.get(CORETYPE)
    text = f"{found.config or 'of unknown make'}, core {found.core or 'unknown'}"
    if forced:
        return Finding(
            "blas",
            f"{text}; {CORETYPE}={forced} overrules the choice for this processor: products may be "
            f"several times slower (unset {CORETYPE})",
            "warning",
        )
    return Finding("blas", text)


def _cache() -> Finding:
    cache = open_cache()
    if cache is None:
        return Finding("cache", "switched off (DLC_CACHE is empty, or there is no home)")
    try:
        cache.check()
    except (OSError, DlcError) as error:
        return Finding("cache", f"nothing is kept in {cache.folder}: {error}", "warning")
    return Finding("cache", str(cache.folder))
