"""Narrower bounds for the named sizes of a model: what `--dim N=1..64` says to a compilation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dlc.dialects.builtin import Module
from dlc.dialects.interface import Interface, bounds_attribute
from dlc.errors import UsageError
from dlc.runtime.weight_files import nearest

__all__ = ["narrow"]


def narrow(module: Module, dims: Mapping[str, tuple[int, int]]) -> None:
    """Give named sizes these bounds in every entry point that has them.

    Raises UsageError: D0906 for a name that none has, D0930 for bounds that are not inside the text's.
    """
    entries = [op for op in module.body if isinstance(op, Interface)]
    known = {name for entry in entries for name in entry.bounds}
    for name in dims:
        if name not in known:
            near = nearest(name, sorted(known))
            raise UsageError(
                f"the model has no size {name}",
                code="D0906",
                help=f"did you mean {near[0]}?" if near else f"it has {_listed(known)}",
            )
    for entry in entries:
        bounds = entry.bounds
        narrower = {
            name: _inside(name, dims[name], bound) if name in dims else bound
            for name, bound in bounds.items()
        }
        if narrower != bounds:
            entry.attributes["dlc.dims"] = bounds_attribute(narrower)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _inside(name: str, wanted: tuple[int, int], bound: tuple[int, int | None]) -> tuple[int, int]:
    """The wanted bounds, which must lie inside those of the text."""
    low, high = wanted
    if not bound[0] <= low <= high or (bound[1] is not None and high > bound[1]):
        declared = f"{bound[0]}..{'' if bound[1] is None else bound[1]}"
        raise UsageError(
            f"--dim {name}={low}..{high} is not inside {declared}, which the model says",
            code="D0930",
            help="bounds are made narrower, the smaller number first",
        )
    return wanted
