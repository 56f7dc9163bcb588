"""What a text demands of the compiled program beyond its numbers: limits, and devices.

A demand that is not kept would be a lie, so those that dlc cannot keep yet are gathered here, and whoever
compiles the model refuses it with all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from dlc.errors import Diagnostic
from dlc.frontend.evaluator import Evaluator
from dlc.frontend.files import File
from dlc.text import ast
from dlc.text.suggest import suggest
from dlc.text.tree import walk

__all__ = ["check_limits", "unkept"]

LIMITS: Final = ("memory", "deterministic", "exact", "fast_narrow")


def check_limits(ev: Evaluator, files: Iterable[File]) -> None:
    """Report limits that there are not, that are set twice, or that lack their size (D0225)."""
    for file in files:
        seen: set[str] = set()
        for limit in _limits(file):
            ev.at.source = file.source
            problem = _problem(limit, seen)
            if problem is not None:
                message, help = problem
                ev.report(ev.at.fail("D0225", message, limit.span, help=help))
            seen.add(limit.name)


def _limits(file: File) -> Iterator[ast.Limit]:
    return (item for item in file.tree.items if isinstance(item, ast.Limit))


def _problem(limit: ast.Limit, seen: set[str]) -> tuple[str, str] | None:
    """What is wrong with a limit, and a way out."""
    name, takes_size = limit.name, limit.name == "memory"
    if name not in LIMITS:
        near = suggest(name, LIMITS)
        return f"there is no limit {name}", (
            f"did you mean {near}?" if near else f"there are {', '.join(LIMITS)}"
        )
    if name in seen:
        return f"limit {name} is set twice", "keep one of them"
    if takes_size and not isinstance(limit.value, ast.Size):
        return "limit memory takes a number of bytes", "write limit memory = 512MiB"
    if not takes_size and limit.value is not None:
        return f"limit {name} takes no value", f"write limit {name}"
    return None


def unkept(files: Iterable[File]) -> tuple[Diagnostic, ...]:
    """Every demand of these texts that compiled code would not keep, as D0706 or D0707."""
    return tuple([found for file in files for found in _of_file(file)])


def _of_file(file: File) -> Iterator[Diagnostic]:
    for limit in _limits(file):
        yield Diagnostic(
            "D0706",
            f"limit {limit.name} cannot be promised yet",
            file.source.place(limit.span),
            help="without the line the model compiles, and nothing is promised",
        )
    for node in walk(file.tree):
        match node:
            case ast.Device(kind="cpu", index=0 | None):
                pass
            case ast.Device(kind=kind, index=index):
                number = "" if index is None else f":{index}"
                yield Diagnostic(
                    "D0707",
                    f"there is no code for {kind}{number} yet",
                    file.source.place(node.span),
                    help="everything runs on cpu",
                )
            case _:
                pass
