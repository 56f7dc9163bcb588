"""The arguments of `dlc.compile` and `dlc.trainer`, checked and converted for the driver.

Numbers may be NumPy's, lists may be tuples, ranges and arrays. What is of another kind is a UsageError that
names the argument, not a TypeError from somewhere inside.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import SupportsIndex, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dlc.driver.compile.cost_table import CostTable, cost_table
from dlc.driver.source.weight_sources import WeightsArgument
from dlc.errors import UsageError
from dlc.frontend.elaboration.values import Datum, Items
from dlc.runtime.arrays import dlpack
from dlc.runtime.arrays.masked import UNMASK, has_masked
from dlc.runtime.arrays.tensor import Tensor

Setting: TypeAlias = (
    "bool | int | float | str | np.generic | Sequence[Setting] | NDArray[np.generic]"
)
"""A value for a parameter of the root module; a text is read as an expression of the language."""

Bounds: TypeAlias = "int | tuple[int, int | None] | range"
"""One size, the lowest and the highest, or a range, whose stop is not included."""

CONV = '"direct", "winograd" or "auto"'
"""What `conv` is, the form of convolutions."""

Array: TypeAlias = NDArray[np.generic]

T = TypeVar("T")

MOST = 1 << 63
"""No number that is passed may be larger, nor smaller than minus this."""


def of_kind(argument: str, value: object, kind: type[T], what: str) -> T:
    """The value, which must be of that kind. Raises UsageError that says `what` the argument is."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise _wrong(argument, what, value)
    return value


def or_none(argument: str, value: object, kind: type[T], what: str) -> T | None:
    """The same for an argument that may be left out."""
    return None if value is None else of_kind(argument, value, kind, what)


def whole(argument: str, value: object) -> int:
    """A whole number, perhaps one of NumPy's."""
    if isinstance(value, SupportsIndex) and not isinstance(value, bool):
        number = index(value)
        if abs(number) <= MOST:
            return number
        raise UsageError(f"{argument} is a whole number beyond 2**63", code="D0902")
    raise _wrong(argument, "a whole number", value)


def _wrong(argument: str, what: str, value: object) -> UsageError:
    return UsageError(f"{argument} is {what}, found {_shown(value)}", code="D0902")


def _shown(value: object) -> str:
    text = f"{value!r}"
    return text if len(text) < 60 else f"a {type(value).__name__}"


def path_of(argument: str, path: object) -> str:
    """The path of a file as a text."""
    if isinstance(path, os.PathLike):
        path = os.fspath(cast("os.PathLike[str]", path))
    if isinstance(path, str):
        return path
    raise _wrong(argument, "a str or a pathlib.Path", path)


def model_path(path: object, text: object, function: str) -> str:
    """The path of the model, or what its text is called: one of both is given."""
    if (path is None) == (text is None):
        raise UsageError(
            "a model is given by its path or by its text, one of both",
            help=f'write {function}("mlp.dlm") or {function}(text="...")',
        )
    if text is not None:
        of_kind("text", text, str, "the text of a model")
        return "model.dlm"
    found = path_of("the path of a model", path)
    if "\n" in found:
        raise UsageError(
            "the path of a model has several lines: it is perhaps its text",
            help=f"write {function}(text=...)",
        )
    return found


def weights_of(weights: WeightsArgument) -> WeightsArgument:
    """A file, `init:SEED`, or arrays by name, of any library that has DLPack."""
    if weights is None:
        return None
    if not isinstance(weights, Mapping):
        return path_of("weights", weights)
    given = _mapping("weights", weights, "a file or arrays by name")
    for name, array in given.items():
        if not isinstance(array, np.ndarray | np.generic | Tensor) and not _is_exported(array):
            raise _wrong(f"the weight {name}", "an array", array)
    return {name: _weight(name, array) for name, array in given.items()}


def _weight(name: str, value: object) -> Array | Tensor:
    """An array of the weight; of a single number, as arithmetic without axes gives it, NumPy makes none."""
    if has_masked(value):
        raise UsageError(
            f"the weight {name} is a masked array, and what is masked has no number",
            code="D0902",
            help=f"put numbers there: {name}{UNMASK}",
        )
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(cast("Array", value))
    if isinstance(value, Tensor):
        return value
    return Tensor.from_dlpack(cast("dlpack.Exporter", value))


def _is_exported(value: object) -> bool:
    """Whether another library has an array to show."""
    return hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__")


def settings_of(settings: Mapping[str, Setting] | None) -> dict[str, Datum]:
    """Values for parameters of the root module as the language has them."""
    mapping = _mapping("settings", settings, 'a mapping of names to values, such as {"hidden": 3}')
    return {name: _datum(name, value) for name, value in mapping.items()}


def costs_of(costs: object) -> CostTable | None:
    """The table of costs that a text or a path asks for. Raises what `cost_table` does."""
    return None if costs is None else cost_table(path_of("costs", costs))


def paths_of(argument: str, value: object) -> dict[str, str]:
    """Paths by name."""
    mapping = _mapping(argument, value, 'a mapping of names to files, such as {"gemm_0": "own.ll"}')
    return {name: _path(f"{argument}[{name!r}]", path) for name, path in mapping.items()}


def _path(argument: str, value: object) -> str:
    if isinstance(value, str | os.PathLike):
        return str(cast("str | os.PathLike[str]", value))
    raise _wrong(argument, "a path", value)


def _mapping(argument: str, value: object, what: str) -> Mapping[str, object]:
    """A mapping by name; empty for None."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _wrong(argument, what, value)
    named = cast("Mapping[object, object]", value)
    return {of_kind(f"a name in {argument}", name, str, "a str"): named[name] for name in named}


def _datum(name: str, value: object) -> Datum:
    match value:
        case np.generic() | np.ndarray():
            return _datum(name, cast("object", value.tolist()))
        case bool() | int() | float() | str():
            return value
        case list() | tuple() | range():
            items = cast("Sequence[object]", value)
            return Items(tuple([_datum(name, item) for item in items]))
        case _:
            raise _wrong(name, "set to a number, a text or a list of them", value)


def bounds_of(dims: Mapping[str, Bounds] | None) -> dict[str, tuple[int, int | None]]:
    """The lowest and the highest value of named sizes; None for no highest of their own."""
    mapping = _mapping("dims", dims, 'a mapping of names to bounds, such as {"B": (1, 64)}')
    return {name: _ends(name, bound) for name, bound in mapping.items()}


def _ends(name: str, bound: object) -> tuple[int, int | None]:
    match bound:
        case range() if bound.step == 1 and len(bound):
            return bound[0], bound[-1]
        case tuple() | list() if len(cast("Sequence[object]", bound)) == 2:
            low, high = cast("Sequence[object]", bound)
            most = None if high is None else whole(f"the highest {name}", high)
            return whole(f"the lowest {name}", low), most
        case _ if isinstance(bound, SupportsIndex):
            size = whole(f"the size {name}", bound)
            return size, size
        case _:
            raise _wrong(f"the bounds of {name}", "(low, high)", bound)


def names_of(argument: str, names: object) -> frozenset[str]:
    """Several names."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise _wrong(argument, 'a list of names, such as ["cse"]', names)
    every = cast("Iterable[object]", names)
    return frozenset([of_kind(f"a name in {argument}", name, str, "a str") for name in every])
