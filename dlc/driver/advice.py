"""Advice in the words of whoever asks.

Messages speak of the options of the command line. What Python calls has the same choices as arguments, so
there an error says `settings={"hidden": ...}` where the command line says `--set hidden=...`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from dlc.errors import Diagnostic, DlcError

_SETTINGS: Final = re.compile(r"--set \w+=\S+(?: --set \w+=\S+)*")
_SETTING: Final = re.compile(r"--set (\w+)=(\S+)")


def _settings(found: re.Match[str]) -> str:
    pairs = [f'"{name}": {value}' for name, value in _SETTING.findall(found[0])]
    return f"settings={{{', '.join(pairs)}}}"


Wording = str | Callable[[re.Match[str]], str]

WORDINGS: Final[tuple[tuple[re.Pattern[str], Wording], ...]] = (
    (_SETTINGS, _settings),
    (re.compile(r"--dim (\w+)=(\d+)\.\.(\d+)"), r'dims={"\1": (\2, \3)}'),
    (re.compile(r"--dim (\w+)=(\d+)\.\."), r'dims={"\1": (\2, None)}'),
    (re.compile(r"--matmul (\w+), (\w+) or (\w+)"), r'matmul="\1", "\2" or "\3"'),
    (re.compile(r"--matmul-precision (\w+) or (\w+)"), r'matmul_precision="\1" or "\2"'),
    (re.compile(r"--matmul-precision (\w+)"), r'matmul_precision="\1"'),
    (re.compile(r"--matmul-precision"), "matmul_precision"),
    (re.compile(r"--(module|weights|target|device|matmul) ([\w:.-]+)"), r'\1="\2"'),
    (re.compile(r"--disable-pass (\w+)"), r'disable=["\1"]'),
    (re.compile(r"--(?:max-memory) (\d+)(\w+)"), r"max_memory=\1 * \2"),
    (re.compile(r"--max-memory"), "max_memory"),
    (re.compile(r"--device"), "device"),
    (re.compile(r"--trust-ir"), "trust_ir=True"),
    (re.compile(r"-O(\d)"), r"level=\1"),
)
"""What each option is as an argument of `dlc.compile` and `dlc.trainer`."""


@contextmanager
def in_python() -> Generator[None]:
    """Errors that are raised meanwhile advise someone who writes Python."""
    try:
        yield
    except DlcError as error:
        error.diagnostics = tuple([_reworded(diagnostic) for diagnostic in error.diagnostics])
        raise


def _reworded(diagnostic: Diagnostic) -> Diagnostic:
    help = None if diagnostic.help is None else _in_python(diagnostic.help)
    return replace(diagnostic, message=_in_python(diagnostic.message), help=help)


def _in_python(text: str) -> str:
    for pattern, wording in WORDINGS:
        text = pattern.sub(wording, text)
    return text
