"""The results of a call: new arrays or those of the caller (`out=`), one or several, named or not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from keyword import iskeyword
from typing import NamedTuple, TypeAlias, cast
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CallError
from dlc.runtime.arrays.dtypes import BF16, DTYPES, DType, dtype_of, numpy_bfloat16
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.manifest import Entry, Output
from dlc.runtime.calling.aliasing import WRITABLE, shares_memory
from dlc.runtime.system.buffers import aligned_array
from dlc.runtime.system.counts import counted
from dlc.runtime.system.device_names import CPU

Array = NDArray[np.generic]
NewArray: TypeAlias = Callable[[tuple[int, ...], np.dtype[np.generic], int], Array]
"""A function that makes an array of a shape, a dtype and a size in bytes."""
Result: TypeAlias = "Array | Tensor"
Out: TypeAlias = "Result | Sequence[Result | None] | Mapping[str, Result]"

_ndarray = np.ndarray


class Storage(NamedTuple):
    """The memory of an output at a tuple of sizes, with its shape (at the limits of measured sizes)."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    bytes: int


class Results:
    """Allocates the outputs of an entry point, checks `out=`, and converts results for the caller."""

    def __init__(self, entry: Entry, new_array: NewArray = aligned_array) -> None:
        """`new_array` makes the array of a result."""
        self._new_array = new_array
        self._entry = entry.name
        self._outputs = entry.outputs
        self.visible = [i for i, output in enumerate(entry.outputs) if not output.hidden]
        """The indices of the outputs that are returned to the caller."""
        self._names = [entry.outputs[i].name for i in self.visible]
        self._measured = any(dim.measured for dim in entry.dims)
        places = {item.name: k for k, item in enumerate(entry.inputs)}
        self.updates = [places[o.updates] if o.updates else None for o in entry.outputs]
        """For each output the index of the input that it overwrites, or None."""
        self._changes_inputs = any(place is not None for place in self.updates)
        self._shown_changes = any(output.updates and not output.hidden for output in entry.outputs)
        """Whether arrays of the caller that the call changes are among its results."""
        self._views = [_view(DTYPES[output.dtype]) for output in entry.outputs]
        self._pack = packer(entry.name, self._names)
        shows_all = len(self.visible) == len(entry.outputs) and not any(self._views)
        self._pack_all = self._pack if shows_all else None
        """What packs the arrays of all outputs as they are, if all are returned so."""
        single = len(entry.outputs) == 1 and not self._changes_inputs
        self.is_plain = single and self._pack is None and self._views == [None]
        """Whether the result is a single array without a conversion."""

    def allocate(self, storages: Sequence[Storage], inputs: Sequence[Array] = ()) -> list[Array]:
        """New arrays, 64-byte aligned; for an output that updates an input, the array of that input."""
        new = self._new_array
        if not self._changes_inputs:
            return [new(each.shape, each.dtype, each.bytes) for each in storages]
        return [
            new(each.shape, each.dtype, each.bytes) if place is None else inputs[place]
            for each, place in zip(storages, self.updates, strict=True)
        ]

    def handed_over(self, arrays: Sequence[Array]) -> object:
        """One array, a tuple, or a named tuple."""
        if self.is_plain:
            return arrays[0]
        if self._pack_all is not None:
            return self._pack_all(arrays)
        return self.packed([self.shown(i, arrays[i]) for i in self.visible])

    def shown(self, number: int, array: Array) -> Result:
        """An output as it is returned to the caller."""
        view = self._views[number]
        return array if view is None else view(array)

    def packed(self, visible: Sequence[object]) -> object:
        """The return value of a call with these visible results."""
        return visible[0] if self._pack is None else self._pack(visible)

    def taken(
        self, out: object, storages: Sequence[Storage], inputs: Sequence[Array]
    ) -> tuple[list[Array], object]:
        """The arrays to write to, and the return value of the call, which has the same objects.

        Raises CallError (D0806) for an array that does not fit, or that shares memory with another one.
        """
        if self.is_plain and type(out) is _ndarray:
            (storage,) = storages
            array = cast("Array", out)
            if (
                array.dtype is storage.dtype
                and array.shape == storage.shape
                and array.flags.num & WRITABLE == WRITABLE
                and not shares_memory(array, inputs)
            ):
                return [array], array
        given = self.out_arrays(out)
        arrays: list[Array] = []
        for number, (output, storage) in enumerate(zip(self._outputs, storages, strict=True)):
            place = self.updates[number]
            if number in given:
                arrays.append(self.fitting(given[number], output, storage))
            elif place is None:
                arrays.append(self._new_array(storage.shape, storage.dtype, storage.bytes))
            else:
                arrays.append(inputs[place])
        self._check_apart(given, arrays, inputs)
        shown = [given.get(i, self.shown(i, arrays[i])) for i in self.visible]
        return arrays, self.packed(shown)

    def out_arrays(self, out: object) -> dict[int, object]:
        """The arrays of `out` by the indices of the outputs. Raises CallError (D0806)."""
        if self._measured:
            raise self._refuse("out= cannot be used: a size is known only after the call")
        if self._shown_changes:
            raise self._refuse("out= cannot be used: it changes its inputs")
        given = zip(self.visible, self._in_order(out), strict=True)
        return {number: value for number, value in given if value is not None}

    def _keys(self) -> str:
        """The way out if the keys of `out` are not the names of the results."""
        if self._names == [""]:
            return "out= takes the array itself: the result has no name"
        return f"out= has the keys {', '.join(self._names)}, or some of them"

    def _in_order(self, out: object) -> list[object]:
        """The arrays of `out`, one for each output that is not hidden; None for one to be made."""
        if isinstance(out, np.ndarray | Tensor) or hasattr(out, "__dlpack__"):
            given: list[object] = [out]
        elif isinstance(out, Mapping):
            named = cast("Mapping[object, object]", out)
            if not named.keys() <= set(self._names):
                raise self._refuse(self._keys())
            given = [named.get(name) for name in self._names]
        elif isinstance(out, list | tuple):
            given = list(cast("Sequence[object]", out))
        else:
            raise self._refuse(f"out= is a {type(out).__name__}, which is not an array")
        if len(given) != len(self._names):
            raise self._refuse(
                f"out= has {counted(len(given), 'array')} for {counted(len(self._names), 'output')}"
            )
        return given

    def fitting(self, value: object, output: Output, storage: Storage) -> Array:
        """The host array that an output is written to. Raises CallError (D0806; D0805 for one on a GPU)."""
        name = output.name or "the output"
        if not isinstance(value, Tensor | np.ndarray):
            raise self._refuse(
                f"out= for {name} is a {type(value).__name__}, which is not an array"
            )
        if isinstance(value, Tensor) and value.device != CPU:
            raise CallError(
                f"{self._entry}: out= for {name} lies on {value.device}, and the result on the host",
                code="D0805",
                help="give an array of the host, or compile the model for a GPU",
            )
        array = value.bits if isinstance(value, Tensor) else cast("Array", value)
        found = value.dtype if isinstance(value, Tensor) else dtype_of(array)
        if str(found) != output.dtype or array.shape != storage.shape:
            have = f"{found or array.dtype}{list(array.shape)}"
            raise self._refuse(
                f"out= for {name} is {have}, not {output.dtype}{list(storage.shape)}"
            )
        if array.flags.num & WRITABLE != WRITABLE:
            raise self._refuse(f"out= for {name} is not C-contiguous, aligned and writable")
        return array

    def _check_apart(
        self, given: Iterable[int], arrays: Sequence[Array], inputs: Sequence[Array]
    ) -> None:
        """Raises CallError (D0806) for a given array that shares memory with an input or another output."""
        for index in given:
            others = [array for number, array in enumerate(arrays) if number != index]
            if shares_memory(arrays[index], [*inputs, *others]):
                name = self._outputs[index].name or "the output"
                raise self._refuse(f"out= for {name} shares memory with an input or output")

    def _refuse(self, message: str) -> CallError:
        return CallError(f"{self._entry}: {message}", code="D0806")


def _view(dtype: DType) -> Callable[[Array], Result] | None:
    """The conversion of a stored array for the caller; None if none is needed."""
    if dtype is not BF16:
        return None
    native = numpy_bfloat16()
    if native is None:
        return lambda array: Tensor.from_bits(array, "bf16")
    return lambda array: array.view(native)


def is_field(name: str) -> bool:
    """Whether a named tuple may have a field of this name: Python reads `ﬁ` as `fi`."""
    plain = name.isascii() or normalize("NFKC", name) == name
    return plain and name.isidentifier() and not iskeyword(name) and name[0] != "_"


def packer(entry: str, names: Sequence[str]) -> Callable[[Sequence[object]], object] | None:
    """The function that packs the outputs into a return value; None for a single output without a name."""
    if list(names) == [""]:
        return None
    if not all(is_field(name) for name in names):
        return tuple
    fields = [(name, object) for name in names]
    made = NamedTuple(entry if entry.isidentifier() and not iskeyword(entry) else "Result", fields)
    return made._make
