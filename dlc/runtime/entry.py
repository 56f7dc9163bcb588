"""Calling a compiled entry point: arguments in, one native call, results out.

The usual call, arrays that fit and sizes seen before, goes through `__call__` in a few microseconds;
everything else (names, defaults, lists, new sizes, mistakes) takes the longer way to the same arrays.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from math import prod
from operator import index
from typing import NamedTuple, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CallError
from dlc.runtime import expressions
from dlc.runtime.abi import Root
from dlc.runtime.arguments import as_array
from dlc.runtime.binding import Binder
from dlc.runtime.buffers import address
from dlc.runtime.compiled import CompiledProgram
from dlc.runtime.dtypes import BF16, DTYPES, numpy_bfloat16
from dlc.runtime.frames import Frame, Sized, Words
from dlc.runtime.manifest import Dim, Entry, Input, Op, Output
from dlc.runtime.native import Native
from dlc.runtime.results import Out, Results, Storage
from dlc.runtime.signature import default_value, python_name, python_signature, signature_text
from dlc.runtime.status import call_error
from dlc.runtime.weight_files import nearest
from dlc.runtime.weights import WeightStore

Array = NDArray[np.generic]

MAX_BINDINGS = 64
"""Tuples of sizes whose numbers are kept for each entry point; the least recently used goes first."""
MAX_RECORDS = 100_000
_FITS = 0x1 | 0x100
"""NumPy's flags C_CONTIGUOUS and ALIGNED."""
_INPUTS = Root.INPUTS.value
_ndarray = np.ndarray


class Runner(NamedTuple):
    """What all entry points of a model run with."""

    native: Native
    weights: WeightStore
    threads: int
    max_memory: int | None
    texts: Callable[[], Mapping[str, str]]


class Binding(NamedTuple):
    """An entry point at one tuple of sizes."""

    dims: Mapping[str, int]
    sized: Sized
    outputs: tuple[Storage, ...]


class Stretch(NamedTuple):
    """One thread's work on one op in a traced call, from `start` to `end` in processor cycles."""

    op: Op
    thread: int
    start: int
    end: int


class EntryPoint:
    """A function of a loaded model. Call it with arrays, by position or by name.

    Inputs are NumPy arrays, `dlc.Tensor`, anything with DLPack, Python numbers or lists of them; a
    named size that no input has is given by name. `out=` takes the array (or several, in order or by
    name) to write the result into. The result is one array, or a named tuple. Any number of threads
    may call at once. Raises CallError before anything runs if the arguments do not fit, or with the
    line of the model that failed.
    """

    def __init__(self, entry: Entry, program: CompiledProgram, runner: Runner | None) -> None:
        self._entry = entry
        self._program = program
        self._runner = runner
        self._binder = Binder(entry)
        self._results = Results(entry)
        self._dtypes = [_passed_as(item.dtype) for item in entry.inputs]
        self._bindings: OrderedDict[object, Binding] = OrderedDict()
        self._latest: Binding | None = None
        self._idle: list[Frame] = []
        self._running: set[Frame] = set()
        self.__doc__ = entry.doc or None
        self.__name__ = entry.name

    @property
    def name(self) -> str:
        return self._entry.name

    @property
    def entry(self) -> Entry:
        """The facts behind the other properties, as the artifact states them."""
        return self._entry

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Name, dtype, shape and default of each input."""
        return self._entry.inputs

    @property
    def outputs(self) -> tuple[Output, ...]:
        """Name, dtype and shape of each result."""
        return tuple(output for output in self._entry.outputs if not output.hidden)

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The named sizes and their bounds."""
        return self._entry.dims

    @property
    def doc(self) -> str:
        """What the model's text says about it."""
        return self._entry.doc

    def __repr__(self) -> str:
        return f"<entry point {signature_text(self._entry)}>"

    def __getattr__(self, name: str) -> object:
        if name == "__signature__":
            return python_signature(self._entry)
        raise AttributeError(f"an entry point has no attribute {name!r}")

    def __call__(self, *args: object, out: Out | None = None, **named: object) -> object:
        if not named and len(args) == len(self._dtypes):
            # Arrays for now: the first thing that happens to each is that this is looked at.
            arrays: tuple[Array, ...] = args  # pyright: ignore[reportAssignmentType]
            shapes: list[tuple[int, ...]] = []
            for array, dtype in zip(arrays, self._dtypes, strict=True):
                if type(array) is not _ndarray or array.dtype is not dtype:
                    break
                if array.flags.num & _FITS != _FITS:
                    break
                shapes.append(array.shape)
            else:
                binding = self._bindings.get(tuple(shapes))
                if binding is not None and binding is self._latest:
                    return self._run(arrays, binding, out)
        found, given = self._arguments(args, named)
        return self._run(found, self._bound([array.shape for array in found], given), out)

    def _run(self, inputs: Sequence[Array], binding: Binding, out: Out | None) -> object:
        result: object = None
        if out is None:
            outputs = self._results.allocate(binding.outputs)
        else:
            outputs, result = self._results.taken(out, binding.outputs, inputs)
        self._enter(inputs, outputs, binding)
        if out is not None:
            return result
        if self._results.is_plain:
            return outputs[0]
        return self._results.handed_over(self._measured(outputs, binding))

    def _enter(
        self, inputs: Sequence[Array], outputs: Sequence[Array], binding: Binding, records: int = 0
    ) -> Words | None:
        """The native call; with a trace of at most so many records if there is a number."""
        trace = None
        frame = self._take_frame()
        try:
            roots, root = frame.roots, _INPUTS
            for array in inputs:
                roots[root] = address(array)
                root += 1
            for array in outputs:
                roots[root] = address(array)
                root += 1
            if records:
                status, trace = frame.run_traced(binding.sized, records)
            else:
                status = frame.run(binding.sized)
            if status:
                raise self._failed(frame)
        except MemoryError:
            message = (
                f"{self.name}: the system does not have {binding.sized.arena} bytes for a call"
            )
            raise CallError(message, code="D0613") from None
        finally:
            self._running.discard(frame)
            self._idle.append(frame)
        return trace

    def _take_frame(self) -> Frame:
        try:
            frame = self._idle.pop()
        except IndexError:
            frame = self._new_frame()
        self._running.add(frame)
        return frame

    def _new_frame(self) -> Frame:
        runner = self._needed_runner()
        tensors = len(self._entry.inputs) + len(self._entry.outputs)
        words, weights = self._program.words, runner.weights
        return Frame(runner.native, words, runner.threads, weights.addresses(), tensors)

    def _needed_runner(self) -> Runner:
        if self._runner is None:
            raise CallError(
                f"{self.name}: the model was closed, or loaded as untrusted: its code does not run",
                code="D0811",
            )
        return self._runner

    def _failed(self, frame: Frame) -> CallError:
        error = call_error(
            self.name, frame.status_words(), self._program.program.ops, self._needed_runner().texts
        )
        frame.reset()
        return error

    def trace(self, *args: object, **named: object) -> tuple[object, tuple[Stretch, ...]]:
        """Call it and watch: the result, and which thread worked on which op from when to when.

        At most `MAX_RECORDS` stretches are kept. Times are cycles of the processor's time stamp counter.
        """
        inputs, given = self._arguments(args, named)
        binding = self._bound([array.shape for array in inputs], given)
        outputs = self._results.allocate(binding.outputs)
        rows = self._enter(inputs, outputs, binding, MAX_RECORDS)
        ops = self._program.program.ops
        found: list[list[int]] = [] if rows is None else rows.tolist()
        stretches = tuple(Stretch(ops[op], thread, start, end) for op, thread, start, end in found)
        return self._results.handed_over(self._measured(outputs, binding)), stretches

    def cancel(self) -> None:
        """Ask every call that is running now to end soon, with a CallError (D0809)."""
        for frame in list(self._running):
            frame.cancel()

    def close(self) -> None:
        """Give the working memory back; calls are refused from now on."""
        self._runner = None
        self._bindings.clear()
        self._idle.clear()

    # ------------------------------------------------------------------ the longer way

    def _arguments(
        self, args: Sequence[object], named: Mapping[str, object]
    ) -> tuple[list[Array], dict[str, int]]:
        """The arrays of all inputs in order, and the sizes given by name."""
        entry = self._entry
        if len(args) > len(entry.inputs):
            raise self._refuse(f"{len(args)} arguments for {len(entry.inputs)} inputs")
        values: dict[str, object] = {
            item.name: value for item, value in zip(entry.inputs, args, strict=False)
        }
        given: dict[str, int] = {}
        inputs = {python_name(item.name): item.name for item in entry.inputs}
        for name, value in named.items():
            if name in self._binder.free:
                given[name] = self._size(name, value)
            elif name not in inputs:
                raise self._unknown(name)
            elif inputs[name] in values:
                raise self._refuse(f"{name} is given twice")
            else:
                values[inputs[name]] = value
        arrays = [
            as_array(values[item.name], item, self.name)
            if item.name in values
            else self._default(item)
            for item in entry.inputs
        ]
        return arrays, given

    def _default(self, item: Input) -> Array:
        value = default_value(item)
        if value is None:
            raise self._refuse(f"the input {item.name} is missing")
        return value.bits

    def _size(self, name: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, SupportsIndex):
            raise self._refuse(f"the size {name} must be a whole number")
        return index(value)

    def _unknown(self, name: str) -> CallError:
        known = [*(item.name for item in self.inputs), *self._binder.free]
        near = nearest(name, known)
        way_out = f"did you mean {near[0]}?" if near else f"it has {', '.join(known) or 'none'}"
        return self._refuse(f"there is no input {name}", way_out)

    def _refuse(self, message: str, help: str | None = None) -> CallError:
        way_out = help or f"it is {signature_text(self._entry)}"
        return CallError(f"{self.name}: {message}", code="D0801", help=way_out)

    def _bound(self, shapes: Sequence[tuple[int, ...]], given: Mapping[str, int]) -> Binding:
        """The entry point at these sizes, checked; the last few are remembered."""
        runner = self._needed_runner()
        key = (*shapes, *(given[name] for name in sorted(given)))
        binding = self._bindings.pop(key, None)
        if binding is None:
            binding = self.bind(self._binder.bind(shapes, given))
            self._check_memory(binding.sized, runner)
        self._latest = self._bindings[key] = binding
        if len(self._bindings) > MAX_BINDINGS:
            self._bindings.popitem(last=False)
        return binding

    def _check_memory(self, sized: Sized, runner: Runner) -> None:
        needed = sized.arena + sized.scratch * runner.threads
        if runner.max_memory is not None and needed > runner.max_memory:
            raise CallError(
                f"{self.name}: a call needs {needed} bytes, allowed are {runner.max_memory}",
                code="D0613",
                help="use smaller sizes, fewer threads, or a larger max_memory",
            )

    def check_at_bounds(self) -> None:
        """Check the memory plan at the bounds of the dims; a fixed size is ready to be called then.

        Raises ArtifactError if the plan is wrong, or needs more than the allowed memory even at the
        lower bounds.
        """
        bindings = self._bindings_at_bounds()
        if bindings and self._runner is not None:
            self._check_memory(bindings[0].sized, self._runner)
        if bindings and not self._entry.dims:
            shapes = tuple(tuple(map(int, item.shape)) for item in self._entry.inputs)
            self._latest = self._bindings[shapes] = bindings[0]

    def memory_at_bounds(self) -> list[int]:
        """Bytes of working memory for one call: at the lower bounds of the dims, then at the upper
        ones if there are such; one number if it does not depend on them."""
        sizes = [binding.sized for binding in self._bindings_at_bounds()]
        threads = 1 if self._runner is None else self._runner.threads
        return sorted({sized.arena + sized.scratch * threads for sized in sizes})

    def _bindings_at_bounds(self) -> list[Binding]:
        """The entry point at all lower, and at all upper bounds, where these sizes make sense."""
        dims = [dim for dim in self._entry.dims if dim.measured is None]
        corners = [{dim.name: dim.lower for dim in dims}]
        upper = {dim.name: dim.upper for dim in dims if dim.upper is not None}
        if dims and len(upper) == len(dims):
            corners.append(upper)
        found: list[Binding] = []
        for corner in corners:
            try:
                found.append(self.bind(corner))
            except CallError:
                # No inputs have these sizes: the bounds of two dims need not be possible together.
                continue
        return found

    def bind(self, dims: Mapping[str, int]) -> Binding:
        """The entry point at these dims: its memory plan is checked at them.

        Raises CallError for sizes that make no sense, ArtifactError for a plan that is wrong.
        """
        limits = dict(dims)
        for dim in self._entry.dims:
            if dim.measured is not None:
                limits[dim.name] = self._number(dim.measured.limit, dims)
        outputs = tuple(self._storage(output, limits) for output in self._entry.outputs)
        inputs = [self._storage(item, dims).bytes for item in self._entry.inputs]
        tensors = [*inputs, *(output.bytes for output in outputs)]
        sized = self._program.at(dims, tensors)
        return Binding(dims, sized, outputs)

    def _number(self, size: str, dims: Mapping[str, int]) -> int:
        return self._binder.evaluate(expressions.parse(size), dims)

    def _storage(self, tensor: Input | Output, dims: Mapping[str, int]) -> Storage:
        shape = tuple(self._number(size, dims) for size in tensor.shape)
        if any(size < 0 for size in shape):
            message = (
                f"{self.name}: {tensor.name or 'the result'} would have the shape {list(shape)}"
            )
            raise CallError(message, code="D0804")
        dtype = DTYPES[tensor.dtype]
        return Storage(shape, dtype.numpy, prod(shape) * dtype.bytes)

    def _measured(self, arrays: Sequence[Array], binding: Binding) -> Sequence[Array]:
        """The arrays in the shapes that the call has found; they are dense from their start."""
        found = {
            dim.name: int(arrays[i].item())
            for dim in self._entry.dims
            if dim.measured is not None
            for i, output in enumerate(self._entry.outputs)
            if output.name == dim.measured.output
        }
        if not found:
            return arrays
        dims = {**binding.dims, **found}
        for storage, output in zip(binding.outputs, self._entry.outputs, strict=True):
            if any(
                not 0 <= size <= limit
                for size, limit in zip(
                    self._storage(output, dims).shape, storage.shape, strict=True
                )
            ):
                message = f"{self.name}: {output.name or 'the result'} is larger than its bound"
                raise CallError(message, code="D0810")
        cut: list[Array] = []
        for array, output in zip(arrays, self._entry.outputs, strict=True):
            storage = self._storage(output, dims)
            cut.append(array.reshape(-1)[: prod(storage.shape)].reshape(storage.shape))
        return cut


def _passed_as(dtype: str) -> np.dtype[np.generic] | None:
    """The NumPy dtype of arrays that need no conversion; None if NumPy has none such."""
    return numpy_bfloat16() if dtype == BF16.name else DTYPES[dtype].numpy
