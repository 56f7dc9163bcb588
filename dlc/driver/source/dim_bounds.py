"""Narrower bounds for the named sizes of a model: what `--dim N=1..64` says to a compilation."""

from __future__ import annotations

from collections.abc import Iterable

from dlc.dialects.builtin import Module
from dlc.dialects.interface import Interface, bounds_attribute
from dlc.driver.source.source_model import SourceModel
from dlc.errors import UsageError
from dlc.errors.options import option
from dlc.errors.suggest import did_you_mean
from dlc.ir.dims import Bounds

__all__ = ["narrow", "narrow_dims"]


def narrow_dims(model: SourceModel, dims: Bounds) -> None:
    """As `narrow`, for all dims but those that had these bounds while the model was read."""
    narrow(model.module, {name: dims[name] for name in dims if name not in model.settled})


def narrow(module: Module, dims: Bounds) -> None:
    """Give named sizes these bounds in every entry point that has them.

    Raises UsageError: D0906 for a name that none has, D0930 for bounds that are not inside the text's.
    """
    entries = [op for op in module.body if isinstance(op, Interface)]
    known = {name for entry in entries for name in entry.bounds}
    for name in dims:
        if name not in known:
            raise UsageError(
                f"the model has no size {name}",
                code="D0906",
                help=did_you_mean(name, sorted(known)) or f"it has {_listed(known)}",
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


def _inside(
    name: str, wanted: tuple[int, int | None], bound: tuple[int, int | None]
) -> tuple[int, int | None]:
    """The wanted bounds, which must lie inside those of the text; without a highest its own is kept."""
    low, high = wanted
    most = bound[1] if high is None else high
    above = most is not None and (low > most or (bound[1] is not None and most > bound[1]))
    if low < bound[0] or above:
        declared = f"{bound[0]}..{'' if bound[1] is None else bound[1]}"
        raise UsageError(
            f"{option('dims', {name: wanted})} is not inside {declared}, which the model says",
            code="D0930",
            help="bounds are made narrower, the smaller number first",
        )
    return low, most
