"""Demands of a text beyond its numbers: limits, and devices.

Limits go with the module, and whoever compiles it keeps them. A demand that is not kept would be a lie, so
devices that there is no code for are gathered here, and whoever compiles the model refuses it with all of
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from dlc.dialects.comm import KNOWN, has_code
from dlc.dialects.limits import LIMITS, Limit
from dlc.errors import Diagnostic, Unsupported, UsageError
from dlc.errors.options import option
from dlc.errors.suggest import did_you_mean
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.sources.files import File
from dlc.runtime.system.counts import whole_number
from dlc.text.model import ast

__all__ = ["check_limits", "check_places", "checked_places", "limits_in", "unkept"]


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
    """The error message for a limit, and its help."""
    name, takes_size = limit.name, limit.name == "memory"
    if name not in LIMITS:
        return f"there is no limit {name}", (
            did_you_mean(name, LIMITS) or f"there are {', '.join(LIMITS)}"
        )
    if name in seen:
        return f"limit {name} is set twice", "keep one of them"
    if takes_size and not isinstance(limit.value, ast.Size):
        return "limit memory takes a number of bytes", "write limit memory = 512MiB"
    if not takes_size and limit.value is not None:
        return f"limit {name} takes no value", f"write limit {name}"
    return None


def limits_in(files: Iterable[File]) -> tuple[Limit, ...]:
    """Every limit of these texts, each of which was found to be right, with its place."""
    return tuple(
        [
            Limit(
                limit.name,
                file.source.place(limit.span),
                limit.value.bytes if isinstance(limit.value, ast.Size) else 0,
            )
            for file in files
            for limit in _limits(file)
        ]
    )


def unkept(files: Iterable[File]) -> tuple[Diagnostic, ...]:
    """Every device of these texts that there is no code for, as D0707."""
    return tuple(
        [
            Diagnostic(
                "D0707",
                f"there is no code for {node.called} yet",
                file.source.place(node.span),
                help=KNOWN,
            )
            for file in files
            for node in file.devices
            if not (node.is_stage or has_code(node.called))
        ]
    )


# Devices chosen from outside ------------------------------------------------------------------------


def checked_places(places: Mapping[str, str]) -> dict[str, str]:
    """Devices by path, each with its name in full: `cpu` is `cpu:0`.

    Raises UsageError (D0931) for what is not a device, Unsupported (D0707) for one without code.
    """
    found: dict[str, str] = {}
    for path, device in places.items():
        kind, _, number = device.partition(":")
        ordinal = whole_number(number or "0")
        if not kind.isidentifier() or ordinal is None:
            raise UsageError(
                f"{path} cannot be placed on {device!r}, which is not a device",
                code="D0931",
                help=f"write {option('places', {path: 'cpu:1'})}",
            )
        name = f"{kind}:{ordinal}"
        if not has_code(name):
            raise Unsupported(f"there is no code for {name} yet", code="D0707", help=KNOWN)
        found[path] = name
    return found


def check_places(unmet: Mapping[str, str], paths: Sequence[str]) -> None:
    """Raises UsageError (D0931) for a path that no submodule has; `paths` are those of the layers."""
    for path in unmet:
        there = list(dict.fromkeys([whole for path in paths for whole in _wholes(path)]))
        raise UsageError(
            f"the model has no submodule {path} to place",
            code="D0931",
            help=did_you_mean(path, there) or f"there are {', '.join(there) or 'none'}",
        )


def _wholes(path: str) -> list[str]:
    """The prefixes of a submodule's path, the outermost first, with itself: `a`, `a.b`."""
    parts = path.split(".") if path else []
    return [".".join(parts[: k + 1]) for k in range(len(parts))]
