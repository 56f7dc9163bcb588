"""Checking a source against the inputs of the loss: counts, shapes, and exact conversions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dlc.errors import CallError, ModelError
from dlc.errors.suggest import did_you_mean
from dlc.runtime.arrays.dtypes import DTYPES, DType
from dlc.runtime.artifact import size_expressions
from dlc.runtime.artifact.manifest import Dim, Entry, Input
from dlc.runtime.artifact.spelling import describe
from dlc.runtime.calling.dim_binding import DimBinder
from dlc.runtime.data.fields import Array, Field

_DIGITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
"""Bits of the significand of a float: it represents all integers up to 2 to that power."""
_WIDER = {"f16": ("f32", "f64"), "bf16": ("f32", "f64"), "f32": ("f64",), "f64": ()}
_PIECE = 1 << 22
"""Elements that are checked at a time, so that a mapped file is never in memory completely."""


def refusal(name: str, code: str, message: str, help: str | None = None) -> ModelError:
    """An error whose message begins with the name of the source."""
    return ModelError(f"{name}: {message}", code=code, help=help)


def check_dtype(name: str, label: str, array: Array, have: DType, want: DType) -> None:
    """Refuse a conversion that is not exact: ModelError (D0542).

    Integers convert to any type that represents each of them; if that does not follow from the types, the
    values are checked. Floats convert to wider floats, bools to numbers.
    """
    if have is want or (have.kind == "b" and want.kind != "b"):
        return
    if have.kind == "f":
        if want.name in _WIDER[have.name]:
            return
    elif have.kind in "iu" and want.kind in "iuf":
        if (bad := _beyond(array, have, want)) is None:
            return
        raise refusal(
            name,
            "D0542",
            f"{label} is {have} and holds {bad}, which {want} does not",
            f"declare it as {have}, or change the file",
        )
    saved = "f32" if want.name == "bf16" else want.name
    raise refusal(
        name,
        "D0542",
        f"{label} is {have}, where {want} is expected, and nothing is rounded silently",
        f"declare it as {have}, or convert it to {saved} where it is made",
    )


def _beyond(array: Array, have: DType, want: DType) -> int | None:
    """An element that `want` cannot represent, or None."""
    low, high = whole_range(want)
    if low <= whole_range(have)[0] and whole_range(have)[1] <= high:
        return None
    rows = max(1, _PIECE // max(1, array[:1].size))
    for first in range(0, len(array), rows):
        piece = array[first : first + rows]
        if piece.size:
            least, most = int(np.min(piece).item()), int(np.max(piece).item())
            if least < low or most > high:
                return least if least < low else most
    return None


def whole_range(dtype: DType) -> tuple[int, int]:
    """The range of integers that a type represents without gaps, both ends included.

    >>> whole_range(DTYPES["i8"]), whole_range(DTYPES["bool"]), whole_range(DTYPES["bf16"])
    ((-128, 127), (0, 1), (-256, 256))
    """
    if dtype.kind == "b":
        return 0, 1
    if dtype.kind == "f":
        most = 1 << _DIGITS[dtype.name]
        return -most, most
    bits = 8 * dtype.bytes
    return (0, (1 << bits) - 1) if dtype.kind == "u" else (-1 << bits - 1, (1 << bits - 1) - 1)


def label_of(item: Input, field: str) -> str:
    """An input in messages: its name, and its name in the source if that differs."""
    shown = " ".join(field.split())  # columns(...) may be written over several lines
    return item.name if shown in ("", item.name) else f"{item.name} ({shown})"


def missing(name: str, item: Input, field: str, names: Iterable[str]) -> ModelError:
    """The error for a field that a source lacks."""
    known = sorted(names)
    shown = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
    way_out = did_you_mean(field, known, most=3) or f"it has {shown or 'nothing'}"
    return refusal(name, "D0541", f"there is no {field} for the input {item.name}", way_out)


def one_number(name: str, label: str, dtype: str) -> ModelError:
    """The error for an array without axes."""
    message = f"{label} is one {dtype}, where a row for each example is expected"
    return refusal(name, "D0543", message, f"give an array with at least one axis for {label}")


class Fitting:
    """The inputs of the loss, against which sources are checked.

    `dims` has bounds of sizes in the shapes of the inputs; the first axis of each input counts the
    examples. Raises ModelError (D0543) for an input without axes.
    """

    def __init__(self, wanted: Sequence[Input], dims: Sequence[Dim]) -> None:
        self.wanted = tuple(wanted)
        for item in wanted:
            if not item.shape:
                raise ModelError(
                    f"{item.name} is {item.dtype}, which has no axis for the examples of a batch",
                    code="D0543",
                    help=f"declare it as {item.dtype}[B], one number for each example",
                )
        batches = {item.shape[0] for item in wanted}
        self._every_dim = tuple(dims)
        self._dims = [dim for dim in dims if dim.name not in batches]

    def dtype(self, name: str) -> DType:
        """The element type of an input."""
        return next(DTYPES[item.dtype] for item in self.wanted if item.name == name)

    def check(self, name: str, fields: Mapping[str, Field], labels: Mapping[str, str]) -> int:
        """The number of examples in these fields of the source `name`.

        Raises ModelError: D0544 if there are none or the fields have different numbers of examples, D0543
        if the shape of an example does not fit the input of the loss.
        """
        counts = {item.name: fields[item.name].count for item in self.wanted}
        first, *others = self.wanted
        count = counts[first.name]
        for other in others:
            if counts[other.name] != count:
                raise refusal(
                    name,
                    "D0544",
                    f"{labels[first.name]} has {count} examples, "
                    f"{labels[other.name]} has {counts[other.name]}",
                    "each needs one row for every example",
                )
        if count == 0:
            raise refusal(name, "D0544", "it holds no examples", "give at least one")
        self.check_shapes(name, {n: (count, *f.shape) for n, f in fields.items()}, labels)
        return count

    def check_shapes(
        self, name: str, shapes: Mapping[str, tuple[int, ...]], labels: Mapping[str, str]
    ) -> None:
        """Refuse shapes, with the axis of the examples first, that do not fit the inputs of the loss.

        Every input has the same number of examples, and that any number, as batches are cut from them.
        """
        items = [
            Input(labels[item.name], item.dtype, ("examples", *item.shape[1:]))
            for item in self.wanted
        ]
        self._bind(name, items, self._dims, shapes)

    def check_batch(self, name: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Refuse the shapes of one batch, as it is, that do not fit the inputs of the loss.

        First axes with different names may differ: nodes and edges of a graph.
        """
        self._bind(name, list(self.wanted), self._every_dim, shapes)

    def _bind(
        self,
        name: str,
        items: Sequence[Input],
        dims: Iterable[Dim],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> None:
        mentioned = {
            n for item in items for size in item.shape for n in size_expressions.parse(size).names
        }
        bounded = {dim.name: dim for dim in dims}
        known = tuple(bounded.get(n, Dim(n)) for n in sorted(mentioned))
        binder = DimBinder(Entry(name, tuple(items), (), known))
        try:
            binder.bind([shapes[item.name] for item in self.wanted], {})
        except CallError as error:
            told = error.diagnostics[0].message
            raise ModelError(told, code="D0543", help=self._way_out(shapes)) from None

    def _way_out(self, shapes: Mapping[str, tuple[int, ...]]) -> str:
        for item in self.wanted:
            shape = shapes[item.name]
            if len(shape) + 1 == len(item.shape) and item.shape[-1] == "1":
                return f"add a last axis of size 1: {item.name} is {[*shape, 1]} then"
        taken = ", ".join(f"{item.name}: {describe(item)}" for item in self.wanted)
        return f"the loss takes {taken}"
