"""Calling a compiled entry point: check the arguments, make one native call, return the results.

The fast path in `__call__`, for arrays of the right dtypes and cached sizes, takes a few microseconds;
new sizes are bound first. Names, defaults and lists are read first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CallError, Unsupported, visible
from dlc.errors.boundary import methods_without_frames
from dlc.runtime.abi import Root, TraceWord
from dlc.runtime.arrays.dtypes import BF16, DTYPES, numpy_bfloat16
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import Dim, Entry, Input, Output
from dlc.runtime.artifact.spelling import dims_text, python_name
from dlc.runtime.calling import profiled
from dlc.runtime.calling.aliasing import OverwrittenInputs
from dlc.runtime.calling.call_arguments import ArgumentReader
from dlc.runtime.calling.dim_binding import Shape
from dlc.runtime.calling.external_arena import give_back, lend, lent_address
from dlc.runtime.calling.frames import CallFrame, Frame, Words, working_bytes
from dlc.runtime.calling.observers import OBSERVERS
from dlc.runtime.calling.profiled_rows import Subject
from dlc.runtime.calling.rank_work import RankWork
from dlc.runtime.calling.results import Out, Results
from dlc.runtime.calling.runner import Runner, no_runner
from dlc.runtime.calling.signature import python_signature, signature_text
from dlc.runtime.calling.sized_program import CompiledProgram
from dlc.runtime.calling.specialization import Specialization, Specializations
from dlc.runtime.calling.started import Binding, StreamFunction
from dlc.runtime.calling.status import call_error
from dlc.runtime.calling.traces import Traced, TraceRecord
from dlc.runtime.profiling.profile import Profile
from dlc.runtime.system.buffers import Bytes, address, aligned_array, aligned_bytes

Array = NDArray[np.generic]

MAX_RECORDS = 100_000
"""The most records of a traced call; later ones are dropped."""
_FITS = 0x1 | 0x100
"""NumPy's flags C_CONTIGUOUS and ALIGNED."""
_INPUTS = Root.INPUTS.value
_ndarray = np.ndarray


@methods_without_frames
class EntryPoint:
    """A function of a loaded model. Call it with arrays, by position or by name.

    An output that updates an input (`outputs[k].updates`) overwrites the array that is passed for it, if
    that is contiguous and writable, and the call then returns that array.

    Inputs are NumPy arrays, `dlc.Tensor`, any arrays with DLPack, Python numbers or lists of them; a named
    size that no input has is passed by name. `out=` takes the array (or several, in order or by name) to
    write the result to, `arena=` the working memory, as `new_arena` makes it, which no other call may use
    until this one ends. The result is an array, or a named tuple. Any number of threads may call at once.
    Raises CallError before anything runs if the arguments do not fit, or with the line of the model that
    failed.
    """

    def __init__(self, entry: Entry, program: CompiledProgram, runner: Runner | None) -> None:
        self._entry = entry
        self._program = program
        self._runner = runner
        self._closed = False
        self._texts = dict[str, str] if runner is None else runner.texts
        self._specializations = Specializations(entry, program, self._texts)
        self._reader = ArgumentReader(entry, self._specializations.free)
        self._new_array = aligned_array if runner is None else runner.machine.new_array
        self._results = Results(entry, self._new_array)
        self._overwritten = OverwrittenInputs(entry)
        self._dtypes = [passed_as(item.dtype) for item in entry.inputs]
        self._idle: list[CallFrame] = []
        self._running: set[CallFrame] = set()
        self.__doc__ = visible(entry.doc) or None
        self.__name__ = entry.name

    @property
    def name(self) -> str:
        return self._entry.name

    @property
    def entry(self) -> Entry:
        """The interface in the manifest of the artifact."""
        return self._entry

    @property
    def artifact(self) -> Artifact:
        """The artifact that it was loaded from."""
        return self._program.artifact

    @property
    def threads(self) -> int:
        """How many threads a call may use. Raises CallError (D0811) where the code does not run."""
        return self._needed_runner().threads

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
    def target(self) -> str:
        """The kind of machine that its code is for."""
        return self._program.target

    @property
    def op_count(self) -> int:
        """The number of operations of its program, which records number from 0."""
        return len(self._program.program.ops)

    @property
    def free_dims(self) -> tuple[str, ...]:
        """The named sizes that no input tells: a call gives them by name."""
        return tuple(self._specializations.free)

    @property
    def doc(self) -> str:
        """The documentation in the model text."""
        return self._entry.doc

    def __repr__(self) -> str:
        return visible(f"<entry point {signature_text(self._entry)}>")

    def __getattr__(self, name: str) -> object:
        if name == "__signature__":
            return python_signature(self._entry)
        raise AttributeError(f"an entry point has no attribute {name!r}")

    def __call__(
        self, /, *args: object, out: Out | None = None, arena: object = None, **named: object
    ) -> object:
        try:
            if not named and len(args) == len(self._dtypes):
                # Assumed to be arrays; the next statements check each of them.
                arrays: tuple[Array, ...] = args  # pyright: ignore[reportAssignmentType]
                shapes: list[tuple[int, ...]] = []
                dtypes = self._dtypes
                for array in arrays:
                    if type(array) is not _ndarray or array.dtype is not dtypes[len(shapes)]:
                        break
                    if array.flags.num & _FITS != _FITS:
                        break
                    shapes.append(array.shape)
                else:
                    specialization = self._specializations.known(tuple(shapes))
                    if specialization is None or self._runner is None:
                        specialization = self._bound(shapes, {}, lent=arena is not None)
                    return self._run(arrays, specialization, out, arena)
            found, given = self._reader.read(args, named)
            specialization = self._bound(
                [array.shape for array in found], given, lent=arena is not None
            )
            return self._run(found, specialization, out, arena)
        except MemoryError:
            raise CallError(
                f"{self.name}: the system has no memory for a call", code="D0613"
            ) from None
        except CallError as error:
            # The frames between the call and the check tell the caller nothing.
            raise error.with_traceback(None)  # noqa: B904  it is the same error

    def _run(
        self,
        inputs: Sequence[Array],
        specialization: Specialization,
        out: Out | None,
        arena: object,
    ) -> object:
        result: object = None
        results = self._results
        if self._overwritten.places:
            inputs = self._overwritten.own(inputs)
        if out is None:
            outputs = results.allocate(specialization.outputs, inputs)
        else:
            outputs, result = results.taken(out, specialization.outputs, inputs)
        if arena is None:
            self._enter(inputs, outputs, specialization)
        else:
            self._enter_lent(inputs, outputs, specialization, arena)
        if out is not None:
            return result
        if results.is_plain:
            return outputs[0]
        return results.handed_over(self._specializations.cut(outputs, specialization))

    def _enter_lent(
        self,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        specialization: Specialization,
        arena: object,
    ) -> None:
        """The native call in an arena that the caller lends, reserved for this call."""
        needed = working_bytes(specialization.sized, self._needed_runner().threads)
        base = lent_address(self.name, arena, needed, [*inputs, *outputs])
        if not needed:
            self._enter(inputs, outputs, specialization)
            return
        lend(self.name, base, needed)
        try:
            self._enter(inputs, outputs, specialization, base)
        finally:
            give_back(base)

    def _enter(
        self,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        specialization: Specialization,
        arena: int = 0,
        records: Words | None = None,
        *,
        alone: bool = False,
    ) -> int:
        """The native call, in the external arena at `arena` unless that is 0.

        With `records` these are filled with a trace, where the calling thread does all work if it is
        `alone`; returns how many there were to write.
        """
        count = 0
        frame = self._take_frame()
        try:
            roots, root = frame.roots, _INPUTS
            for array in inputs:
                roots[root] = address(array)
                root += 1
            for array in outputs:  # an input that is updated is among them
                roots[root] = address(array)
                root += 1
            if records is not None:
                frame.trace_into(records, alone=alone)
            status = frame.run(specialization.sized, arena)
            if status:
                raise self.failure(frame.status_words())
            count = 0 if records is None else frame.traced
        except MemoryError:
            message = f"{self.name}: the system does not have {specialization.sized.arena} bytes for a call"
            raise CallError(message, code="D0613") from None
        finally:
            if records is not None:
                frame.trace_into(None)
            self._give_back(frame)
        return count

    def _enter_up_to(
        self,
        op: int,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        specialization: Specialization,
        arena: int,
    ) -> None:
        """The native call up to an op, on a processor. Raises CallError as `_enter` does."""
        frame = self._take_frame()
        try:
            assert isinstance(frame, Frame)
            for root, array in enumerate((*inputs, *outputs), _INPUTS):
                frame.roots[root] = address(array)
            if frame.run_up_to(op, specialization.sized, arena):
                raise self.failure(frame.status_words())
        finally:
            self._give_back(frame)

    def _take_frame(self) -> CallFrame:
        try:
            frame = self._idle.pop()
            frame.reset()
        except IndexError:
            frame = self._new_frame()
        self._running.add(frame)
        return frame

    def _give_back(self, frame: CallFrame) -> None:
        self._running.discard(frame)
        self._idle.append(frame)
        if self._closed:  # asked last, so that one of the two threads drops it
            self._idle.clear()

    def _new_frame(self) -> CallFrame:
        runner = self._needed_runner()
        tensors = len(self._entry.inputs), len(self._entry.outputs)
        words, weights = self._program.words, runner.weights.roots()
        return runner.machine.frame(words, runner.threads, weights, *tensors)

    def _needed_runner(self) -> Runner:
        if self._runner is None:
            raise no_runner(self.name, closed=self._closed)
        return self._runner

    def failure(self, words: Sequence[int]) -> CallError:
        """The error of a call that ended with these `dlc_call` words, and a status other than 0."""
        return call_error(self.name, words, self._program.program.ops, self._texts)

    def trace(self, /, *args: object, **named: object) -> tuple[object, tuple[TraceRecord, ...]]:
        """Call with a trace: the result, and the times of each thread's work on each op.

        At most `MAX_RECORDS` records are kept. Times are cycles of the processor's time stamp counter.
        """
        records = np.zeros((MAX_RECORDS, TraceWord.COUNT), np.int64)
        found = self.traced(records, args, named)
        ops = self._program.program.ops
        trace = tuple(
            TraceRecord(ops[op], thread, start, end)
            for op, thread, start, end in records[: found.recorded].tolist()
        )
        return found.result, trace

    def traced(
        self,
        records: Words,
        args: Sequence[object],
        named: Mapping[str, object],
        *,
        alone: bool = False,
    ) -> Traced:
        """Call with a trace in `records` (`TraceWord`), as far as it has room.

        With `alone` the calling thread does all work: there is a record for each run of an op.
        """
        inputs, given = self._reader.read(args, named)
        inputs = self._overwritten.own(inputs)
        shapes = tuple([array.shape for array in inputs])
        known = None if given else self._specializations.known(shapes)
        specialization = known or self._bound(shapes, given)
        outputs = self._results.allocate(specialization.outputs, inputs)
        begun = time.perf_counter_ns()
        count = self._enter(inputs, outputs, specialization, records=records, alone=alone)
        ended = time.perf_counter_ns()
        result = self._results.handed_over(self._specializations.cut(outputs, specialization))
        return Traced(result, specialization, count, begun, ended)

    def profile(self, /, *args: object, rounds: int | None = None, **named: object) -> Profile:
        """Call it again and again to find where the time goes: kernels, modules, lines of the text.

        `rounds` is how often, at least; without it, about 1.5 seconds. What the entry point changes in
        place is changed in copies. Raises CallError as a call does, D0801 for other `rounds` than whole
        numbers from 1, and D0825 for calls of millions of kernels.
        """
        found, given = self._reader.read(args, named)
        overwritten = self._overwritten.places
        arrays = [array.copy() if k in overwritten else array for k, array in enumerate(found)]
        inputs = self._overwritten.own(arrays)
        specialization = self._bound([array.shape for array in inputs], given)
        outputs = self._results.allocate(specialization.outputs, inputs)

        # The bits of bf16 alone would be u16 to a call.
        values = [
            Tensor.from_bits(array, item.dtype) if item.dtype == BF16.name else array
            for array, item in zip(inputs, self.inputs, strict=True)
        ]
        frame = self._take_frame()
        for root, array in enumerate((*inputs, *outputs), _INPUTS):
            frame.roots[root] = address(array)

        def call() -> object:
            return self(*values, **given)  # pyright: ignore[reportArgumentType] - only sizes are left

        try:
            return self._profiled(frame, specialization, call, rounds)
        finally:
            frame.trace_into(None)
            self._give_back(frame)

    def _profiled(
        self,
        frame: CallFrame,
        specialization: Specialization,
        call: Callable[[], object],
        rounds: int | None,
    ) -> Profile:
        """Measure calls; the frame has their arguments."""

        def run() -> None:
            self._begin(specialization)
            if frame.run(specialization.sized):
                raise self.failure(frame.status_words())

        measured = profiled.Measured(call, run, frame, self._enough)
        return profiled.profile(self.subject(specialization), measured, rounds)

    def subject(self, specialization: Specialization) -> Subject:
        """What a profile of calls with these sizes is of."""
        program, runner = self._program, self._needed_runner()
        return Subject(
            program.artifact,
            program.target,
            self.name,
            program.name,
            runner.threads,
            specialization.dims,
            program.program.ops,
            program.predicted_nanoseconds(specialization.sized),
            runner.texts(),
        )

    def _begin(self, specialization: Specialization) -> None:
        """What ranks that are called together agree about before each run of the compiled code."""

    def _enough(self, own: bool) -> bool:
        """Whether a profile has enough rounds; ranks that are called together have it together."""
        return own

    def values(
        self, names: Sequence[str], /, *args: object, **named: object
    ) -> dict[str, NDArray[np.generic]]:
        """Inner values of a call, by their names in the text: `values(["h", "blocks[7].*"], x)`.

        A value in loops has a first axis for each loop. The numbers are those of this machine code, the
        results of the call the same to the bit; values that were fused away are `recomputed` from the
        nearest ones. Arrays that a call changes stay as they are. Unlike calls it needs the compiler, and
        takes as long as compiling. Raises UsageError (D0911) for values that there are not.
        """
        given = {
            python_name(item.name): value for item, value in zip(self.inputs, args, strict=False)
        }
        if len(args) > len(self.inputs) or given.keys() & named.keys():
            self._reader.read(args, named)  # says what is wrong
        if not OBSERVERS:
            raise CallError(
                f"{self.name}: inner values need the compiler, and the runtime was imported alone",
                code="D0811",
                help="load the model with dlc.load",
            )
        values = {**given, **named}
        observe = OBSERVERS[0]()
        return observe(self.artifact, names, self.name, values, self.threads)

    def preparing(self) -> AbstractContextManager[None]:
        """For what makes the arguments of a call: other ranks that call it are told of an error."""
        return nullcontext()

    @property
    def work(self) -> RankWork:
        """How long calls took, and how much of that in collectives, where several ranks make them."""
        return RankWork()

    def ended(self) -> None:
        """There are no arguments for further calls: other ranks that make one are told."""

    def cancel(self) -> None:
        """Request that all running calls end, with a CallError (D0809)."""
        for frame in list(self._running):
            frame.cancel()

    def in_stream(self, stream: object) -> StreamFunction:
        """It as a function whose calls are put into a stream of CUDA and not waited for, on a GPU.

        `stream` is one of PyTorch, CuPy or cuda.core, or the driver's handle. Arguments and results lie on
        the GPU; arrays for results may be given as `out=`. While the stream is captured, the calls become
        a part of the graph. What a call has failed with is raised by the next one in the stream, or by
        `wait()` of the function, which waits for the stream. Raises Unsupported (D0702) on a processor.
        """
        del stream
        raise Unsupported(
            f"{self.name}: a stream needs a model on a GPU, and this one is on the processor",
            code="D0702",
            help='compile it with target="cuda"',
        )

    def bind(self, bound: Mapping[int, Tensor]) -> Binding | None:
        """It with arrays on a device bound to inputs, by index, as one handle.

        None where that saves nothing: on a processor, or where a size is measured.
        """
        del bound
        return None

    def prepared(
        self, shapes: Sequence[Shape], sizes: Mapping[str, int]
    ) -> tuple[CallFrame, Specialization]:
        """A frame for callers other than Python, and the specialization for inputs of these shapes.

        Raises CallError as a call does for shapes and sizes that do not fit.
        """
        return self._new_frame(), self._bound(shapes, sizes)

    def close(self) -> None:
        """Refuse further calls. Running calls end as usual, and then release their memory."""
        self._closed = True
        self._runner = None
        self._specializations.forget()
        self._idle.clear()

    def check_at_bounds(self) -> None:
        """Check the memory plan at the bounds of the dims.

        Raises ArtifactError if it is invalid; if even the lower bounds need too much memory, CallError
        (D0613) for more than the allowed memory, Unsupported (D0705) for more than the machine has.
        """
        specializations = self._specializations.at_bounds()
        if specializations and self._runner is not None:
            self._runner.check_memory(self.name, specializations[0], self._idle)

    def memory_at_bounds(self) -> list[int]:
        """Bytes of working memory of a call at the lower bounds of the dims, and at the upper bounds.

        A single number if it does not depend on the dims, or they have no upper bounds.
        """
        threads = 1 if self._runner is None else self._runner.threads
        return sorted(
            {
                working_bytes(specialization.sized, threads)
                for specialization in self._specializations.at_bounds()
            }
        )

    def working_memory(self, /, **sizes: int) -> int:
        """Bytes of working memory of a call at these named sizes, the size of an array for `arena=`.

        Raises CallError: D0801 for missing or unknown sizes, D0804 for impossible ones.
        """
        runner = self._needed_runner()
        names = {dim.name for dim in self.dims if dim.measured is None}
        for name in sorted(names ^ sizes.keys()):
            wrong = "is missing" if name in names else "does not exist"
            raise CallError(
                f"{self.name}: the size {name} {wrong}",
                code="D0801",
                help=f"its sizes are {dims_text(self.dims) or 'all numbers'}",
            )
        return working_bytes(self._specializations.at_dims(sizes).sized, runner.threads)

    def new_arena(self, /, **sizes: int) -> Bytes:
        """Memory for `arena=` of calls with these sizes, or with any that need less.
        Raises CallError as `working_memory` does.
        """
        return aligned_bytes(self.working_memory(**sizes))

    def _bound(
        self, shapes: Sequence[Shape], given: Mapping[str, int], *, lent: bool = False
    ) -> Specialization:
        """The specialization for new sizes; `lent`: the caller lends the arena.

        Raises CallError for sizes that do not fit, and for more memory than calls may use.
        """
        runner = self._needed_runner()
        specialization = self._specializations.at(shapes, given)
        runner.check_memory(self.name, specialization, self._idle, lent=lent)
        return specialization


def passed_as(dtype: str) -> np.dtype[np.generic] | None:
    """The NumPy dtype of arrays that need no conversion; None if NumPy lacks it."""
    return numpy_bfloat16() if dtype == BF16.name else DTYPES[dtype].numpy
