"""Specializations of an entry point: its shapes, bytes and program at one tuple of sizes, cached (LRU)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CallError
from dlc.runtime.arrays.dtypes import DTYPES, byte_count
from dlc.runtime.artifact import size_expressions
from dlc.runtime.artifact.manifest import Entry, Input, Output
from dlc.runtime.calling.dim_binding import DimBinder, Shape
from dlc.runtime.calling.frames import SizedProgram
from dlc.runtime.calling.results import Storage
from dlc.runtime.calling.sized_program import CompiledProgram
from dlc.runtime.cuda.array import DeviceArray

Array = NDArray[np.generic]
Placed = TypeVar("Placed", bound="Array | DeviceArray")

MAX_KEPT = 64
"""The most specializations cached for each entry point, the least recently used is evicted; and the most
refusals."""


class Specialization(NamedTuple):
    """An entry point at one tuple of sizes."""

    dims: Mapping[str, int]
    sized: SizedProgram
    outputs: tuple[Storage, ...]
    input_bytes: int
    """The sum over the inputs."""
    result_bytes: int
    """The sum over the outputs that are new arrays: not those that update one of the caller's."""


class Specializations:
    """The cached specializations of one entry point."""

    def __init__(
        self,
        entry: Entry,
        program: CompiledProgram,
        texts: Callable[[], Mapping[str, str]] = dict[str, str],
    ) -> None:
        """`texts` has the model text by file name, for the excerpts under messages."""
        self._entry = entry
        self._program = program
        self._binder = DimBinder(entry, texts)
        self._kept: OrderedDict[tuple[object, ...], Specialization] = OrderedDict()
        self._latest: tuple[tuple[Shape, ...], Specialization] | None = None
        """What `known` found last, by its shapes."""
        self._refused: OrderedDict[tuple[object, ...], CallError] = OrderedDict()
        """Why calls of some sizes are not possible: a caller that goes on is told at once."""
        self._measured = {dim.name: dim.measured for dim in entry.dims if dim.measured is not None}

    @property
    def free(self) -> tuple[str, ...]:
        """The sizes that the caller passes by name."""
        return self._binder.free

    def known(self, shapes: tuple[Shape, ...]) -> Specialization | None:
        """The cached specialization for these shapes; None without one, or if sizes are passed by name."""
        latest = self._latest
        if latest is not None and latest[0] == shapes:
            return latest[1]
        try:
            self._kept.move_to_end(shapes)
            specialization = self._kept[shapes]
        except KeyError:  # it was not cached, or another thread has just evicted it
            return None
        self._latest = shapes, specialization
        return specialization

    def at(self, shapes: Sequence[Shape], given: Mapping[str, int]) -> Specialization:
        """The specialization for these shapes and sizes.

        Raises CallError (D0801, D0803, D0804, D0807) for sizes that do not fit, ArtifactError for a plan
        that is wrong at them.
        """
        key = (*shapes, *(given[name] for name in sorted(given)))
        specialization = self._kept.pop(key, None) or self.at_dims(self._bound(key, shapes, given))
        self._kept[key] = specialization
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return specialization

    def _bound(
        self, key: tuple[object, ...], shapes: Sequence[Shape], given: Mapping[str, int]
    ) -> dict[str, int]:
        """The dims of a call. Raises CallError, of the same sizes without looking for the reason again."""
        refusal = self._refused.get(key)
        if refusal is not None:
            raise refusal.anew()
        try:
            return self._binder.bind(shapes, given)
        except CallError as error:
            # Not the error itself, whose traceback holds the caller's arrays.
            self._refused[key] = error.anew()
            if len(self._refused) > MAX_KEPT:
                self._refused.popitem(last=False)
            raise

    def at_bounds(self) -> list[Specialization]:
        """The specializations at all lower, and at all upper bounds, if calls can have these sizes.

        Raises ArtifactError if the memory plan is wrong there.
        """
        dims = [dim for dim in self._entry.dims if dim.measured is None]
        corners = [{dim.name: dim.lower for dim in dims}]
        upper = {dim.name: dim.upper for dim in dims if dim.upper is not None}
        if dims and len(upper) == len(dims):
            corners.append(upper)
        specializations: list[Specialization] = []
        for corner in corners:
            try:
                specializations.append(self.at_dims(corner))
            except CallError:
                # The bounds of two dims may contradict each other: then no inputs have these sizes.
                continue
        if specializations and not self._entry.dims:
            self._kept[tuple(self._storage(item, {}).shape for item in self._entry.inputs)] = (
                specializations[0]
            )
        return specializations

    def forget(self) -> None:
        """Drop the cached specializations."""
        self._kept.clear()
        self._refused.clear()
        self._latest = None

    def at_dims(self, dims: Mapping[str, int]) -> Specialization:
        """The specialization at these dims, all but the measured ones; it is not cached.

        Raises CallError (D0804) for dims outside their bounds, beyond measure, or that make the size of an
        array negative; ArtifactError for a plan that is wrong at them.
        """
        self._binder.check_bounds(dims)
        self._binder.check_needs(dims, shapes_only=True)
        limits = dict(dims)
        for dim in self._entry.dims:
            if dim.measured is not None:
                limits[dim.name] = self._evaluate(dim.measured.limit, dims)
        outputs = tuple(self._storage(output, limits) for output in self._entry.outputs)
        inputs = [self._storage(item, dims).bytes for item in self._entry.inputs]
        sized = self._program.at(dims, [*inputs, *(output.bytes for output in outputs)])
        pairs = zip(self._entry.outputs, outputs, strict=True)
        results = sum(storage.bytes for output, storage in pairs if not output.updates)
        return Specialization(dims, sized, outputs, sum(inputs), results)

    def _evaluate(self, size: str, dims: Mapping[str, int]) -> int:
        return self._binder.evaluate(size_expressions.parse(size), dims)

    def _storage(self, tensor: Input | Output, dims: Mapping[str, int]) -> Storage:
        shape = tuple(self._evaluate(size, dims) for size in tensor.shape)
        dtype = DTYPES[tensor.dtype]
        length = byte_count(shape, dtype)
        if length is None:
            name = tensor.name or "the result"
            message = f"{self._entry.name}: {name} would have the shape {list(shape)}"
            raise CallError(message, code="D0804")
        return Storage(shape, dtype.numpy, length)

    def cut(self, arrays: Sequence[Placed], specialization: Specialization) -> Sequence[Placed]:
        """Results cut to the measured shapes; their elements are contiguous from the beginning.

        Raises CallError (D0810) for a result that is larger than its memory.
        """
        if not self._measured:
            return arrays
        names = [output.name for output in self._entry.outputs]
        dims = dict(specialization.dims)
        for name, measurement in self._measured.items():
            dims[name] = _scalar(arrays[names.index(measurement.output)])
        results: list[Placed] = []
        for array, output in zip(arrays, self._entry.outputs, strict=True):
            shape = tuple(self._evaluate(size, dims) for size in output.shape)
            if any(not 0 <= size <= most for size, most in zip(shape, array.shape, strict=True)):
                message = (
                    f"{self._entry.name}: {output.name or 'the result'} would be {list(shape)}"
                )
                raise CallError(f"{message}, above its bound {list(array.shape)}", code="D0810")
            results.append(_first(array, shape))
        return results


def _scalar(array: Array | DeviceArray) -> int:
    return int((array.download() if isinstance(array, DeviceArray) else array).item())


def _first(array: Placed, shape: tuple[int, ...]) -> Placed:
    """A view of the first elements of an array in another shape."""
    if isinstance(array, DeviceArray):
        first: Array | DeviceArray = array.part(0, shape, array.dtype)
    else:
        first = array.reshape(-1)[: int(np.prod(shape))].reshape(shape)
    return cast(Placed, first)
