"""Entry points of a model on a GPU.

Arrays of the host come and go as for any model. Where an argument lies on the GPU (a `dlc.Tensor` there, or
an array of PyTorch, CuPy or JAX) it is used where it is, and what the call gives is there too, as
`dlc.Tensor`; `out=` says otherwise. A call waits until its results are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from operator import itemgetter
from typing import NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CallError
from dlc.runtime.arrays import device_dlpack, dlpack
from dlc.runtime.arrays.dtypes import DTYPES, DType
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.manifest import Entry, Input, Output
from dlc.runtime.artifact.spelling import describe, python_name
from dlc.runtime.calling.aliasing import WRITABLE, Span, span
from dlc.runtime.calling.arguments import (
    as_array,
    as_changed_array,
    not_changeable,
)
from dlc.runtime.calling.entry import passed_as
from dlc.runtime.calling.frames import CallFrame
from dlc.runtime.calling.results import Out, Storage
from dlc.runtime.calling.runner import Runner
from dlc.runtime.calling.sized_program import CompiledProgram
from dlc.runtime.calling.specialization import Specialization
from dlc.runtime.calling.started import Binding
from dlc.runtime.cuda.array import ALIGNED, DeviceArray
from dlc.runtime.cuda.driver import Driver
from dlc.runtime.cuda.memory import DeviceBytes
from dlc.runtime.gpu import profiled
from dlc.runtime.gpu.bound import BoundCall
from dlc.runtime.gpu.code import Gpu
from dlc.runtime.gpu.errors import KernelFailed
from dlc.runtime.gpu.fitting import Key, Parameter, key_of, shapes_of
from dlc.runtime.gpu.frame import CallTimes, GpuFrame
from dlc.runtime.gpu.in_stream import StreamCalls
from dlc.runtime.gpu.kernel_timer import KernelTimer
from dlc.runtime.gpu.located import LaunchingEntryPoint
from dlc.runtime.gpu.ranges import annotate
from dlc.runtime.gpu.ready import Plan, ReadyCall
from dlc.runtime.profiling.profile import Profile
from dlc.runtime.system.buffers import address

Array = NDArray[np.generic]
Placed: TypeAlias = "Array | DeviceArray"
_HERE = object()
"""In place of arrays that results go into: new ones of the host."""
_NOT_READY = object()
"""In place of what a call gives: it is not ready."""
_NO_TIMES = CallTimes(0, 0, 0)


class _Known(NamedTuple):
    """The arguments of a call where they are, at sizes that were bound."""

    inputs: list[Placed]
    specialization: Specialization
    key: Key | None = None
    """The key of arguments that fit as they are."""


class GpuEntryPoint(LaunchingEntryPoint):
    """A function of a model on a GPU, which takes arrays there too; see `EntryPoint`."""

    def __init__(self, entry: Entry, program: CompiledProgram, runner: Runner | None) -> None:
        super().__init__(entry, program, runner)
        self._parameters = [
            Parameter(k, DTYPES[item.dtype], passed_as(item.dtype))
            for k, item in enumerate(entry.inputs)
        ]
        names = [python_name(item.name) for item in entry.inputs]
        self._named = [_taker(names[first:]) for first in range(len(names))]
        """What takes the arguments from this one on by their names."""
        self._given_as = [DTYPES[output.dtype] for output in entry.outputs]
        machine = None if runner is None else runner.machine
        self._driver_here = machine.driver if isinstance(machine, Gpu) else None
        self._inouts = entry.inouts
        self._annotate = annotate()
        self._measures = any(dim.measured is not None for dim in entry.dims)
        self._repeats = self._annotate is nullcontext and not self._measures
        """Whether calls like an earlier one need nothing but its graph and copies."""
        self._kernel_names = [f"{op.place} {op.name}".strip() for op in program.program.ops]

    def __call__(
        self, /, *args: object, out: Out | None = None, arena: object = None, **named: object
    ) -> object:
        known: _Known | None = None
        if named:
            args, named = self._in_order(args, named)
        if not named:
            if out is None and arena is None and self._repeats:
                found = self._again(args)
                if found is not _NOT_READY:
                    return found
            if Tensor in map(type, args):
                known = self._known(args)
        if known is None:
            given = (*args, *named.values(), *_members(out))
            if not any(is_on_gpu(value) for value in given):
                return super().__call__(*args, out=out, arena=arena, **named)
        if arena is not None:
            raise self._refuse(
                "arena= lends memory of the host, and this call works on a GPU", "D0817"
            )
        outputs, specialization, _ = self._called(known, args, named, out)
        taken = {} if out is None else self._results.out_arrays(out)
        found = self._specializations.cut(outputs, specialization)
        shown = [taken.get(k, self._shown(k, array)) for k, array in enumerate(found)]
        return self._results.packed([shown[k] for k in self._results.visible])

    def _in_order(
        self, args: tuple[object, ...], named: dict[str, object]
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        """Arguments by position, if these are all there are; else as they were."""
        if len(args) + len(named) != len(self._named):
            return args, named
        try:
            return args + self._named[len(args)](named), {}
        except KeyError:
            return args, named

    def _again(self, args: Sequence[object]) -> object:
        """The call, if it is like an earlier one that has become ready, else `_NOT_READY`.

        Arrays of the same shapes at the same addresses were found to fit each other then.
        """
        hosts = [0] * len(args)
        key = key_of(args, self._parameters, self._driver_here, hosts)
        if key is None or not self._idle:
            return _NOT_READY
        frame = self._frame()
        try:
            plan = frame.plan(key)
            if plan is None:
                return _NOT_READY
            ready = plan.ready.get(())
            if ready is not None:
                return self._again_here(frame, plan, ready, hosts)
            outputs: list[DeviceArray] = []
            for storage, place in zip(plan.outputs, self._results.updates, strict=True):
                if place is None:
                    outputs.append(DeviceArray.new(frame.driver, storage.shape, storage.dtype))
                else:
                    outputs.append(cast(DeviceArray, cast(Tensor, args[place]).memory))
            ready = plan.ready.get(tuple([array.address for array in outputs]))
            if ready is None:
                return _NOT_READY
            if frame.run_ready(ready, hosts):
                raise self.failure(frame.status_words())
        finally:
            self._give_back(frame)
        kinds = self._given_as
        return self._results.packed(
            [Tensor.on_device(outputs[k], kinds[k]) for k in self._results.visible]
        )

    def _again_here(
        self, frame: GpuFrame, plan: Plan, ready: ReadyCall, hosts: list[int]
    ) -> object:
        """`_again` with all arrays on the host, of which the call changes none."""
        outputs = self._results.allocate(plan.outputs)
        for output in outputs:
            hosts.append(address(output))
        if frame.run_ready(ready, hosts):
            raise self.failure(frame.status_words())
        return self._results.handed_over(outputs)

    def _run(
        self,
        inputs: Sequence[Array],
        specialization: Specialization,
        out: Out | None,
        arena: object,
    ) -> object:
        """The call with arrays of the host; the next one like it may be found by `_again`."""
        if out is not None or arena is not None or self._overwritten.places:
            return super()._run(inputs, specialization, out, arena)
        key = key_of(inputs, self._parameters, None, [0] * len(inputs)) if self._repeats else None
        known = _Known([*inputs], specialization, key)
        outputs, _, _ = self._called(known, (), {}, _HERE)
        found = self._specializations.cut(outputs, specialization)
        return self._results.handed_over(cast("Sequence[Array]", found))

    def timed(self, /, *args: object, launches: int = 1, **named: object) -> CallTimes:
        """Call it, and what its parts took by the GPU's clock.

        The program runs `launches` times in a row, and `compute_ms` is what all of them took.
        Results stay on the GPU where an argument is there, and are copied from it where none is.
        """
        given = (*args, *named.values())
        out = None if any(is_on_gpu(value) for value in given) else _HERE
        known = None if named else self._known(args)
        _, _, times = self._called(known, args, named, out, launches=launches)
        return times

    def profile(self, /, *args: object, rounds: int | None = None, **named: object) -> Profile:
        """Where the time of calls goes, kernels by the GPU's clock; see `EntryPoint.profile`.

        Arguments are used where they are: what is copied between host and device shows as that.
        """
        given, sizes = self._reader.sorted(args, named)
        out = None if any(is_on_gpu(value) for value in given) else _HERE
        frame = self._frame()
        try:
            read, specialization, _ = self._read(args, named, frame)
            inputs = [
                array.copy() if k in self._overwritten.places else array
                for k, array in enumerate(read)
            ]
            outputs = self._outputs(inputs, specialization, out, frame)
        finally:
            self._give_back(frame)
        values = [
            Tensor.on_device(array, item.dtype)
            if isinstance(array, DeviceArray)
            else Tensor.from_bits(array, item.dtype)
            for array, item in zip(inputs, self.inputs, strict=True)
        ]
        measured = profiled.Measured(
            partial(self._call, values, sizes),
            lambda: self._timed(inputs, outputs, specialization),
            lambda: self._kernel_times(inputs, outputs, specialization),
        )
        return profiled.profile(self.subject(specialization), measured, rounds)

    def _call(self, values: Sequence[object], sizes: Mapping[str, int]) -> object:
        return self(*values, **sizes)  # pyright: ignore[reportArgumentType] - only sizes are left

    def _called(
        self,
        known: _Known | None,
        args: Sequence[object],
        named: Mapping[str, object],
        out: object,
        *,
        launches: int = 0,
    ) -> tuple[Sequence[Placed], Specialization, CallTimes]:
        """A call with arrays that lie here or there: its outputs, at which sizes, and its times.

        Times are taken where `launches` says of how many.
        """
        frame = self._frame()
        try:
            inputs, specialization, key = known or self._read(args, named, frame)
            if self._overwritten.places:
                inputs = self._own(inputs)
            outputs = self._outputs(inputs, specialization, out, frame)
            times = self._launch(frame, inputs, outputs, specialization, launches=launches)
            there = [array.address for array in outputs if isinstance(array, DeviceArray)]
            is_new = out is None or out is _HERE  # where the next call's results go, too
            if key is not None and is_new and len(there) in (0, len(outputs)):
                frame.note(key, specialization, tuple(there))
        finally:
            self._give_back(frame)
        return outputs, specialization, times

    # Bound arguments ------------------------------------------------------------------------------

    def bind(self, bound: Mapping[int, Tensor]) -> Binding | None:
        there = [isinstance(tensor.memory, DeviceArray) for tensor in bound.values()]
        return BoundCall(self, bound) if there and all(there) and not self._measures else None

    def close(self) -> None:
        super().close()
        for frame in list(self._running):
            if isinstance(frame, GpuFrame):
                frame.forget_ready()

    def parameters(self) -> Sequence[Parameter]:
        return self._parameters

    def updates(self) -> Sequence[int | None]:
        return self._results.updates

    def own_frame(self) -> GpuFrame:
        frame = self._new_frame()
        assert isinstance(frame, GpuFrame)
        self._running.add(frame)
        return frame

    def let_go(self, frame: GpuFrame) -> None:
        self._running.discard(frame)

    def call_in(
        self, frame: GpuFrame, args: Sequence[object]
    ) -> tuple[Sequence[Placed], Specialization]:
        known = self._known(args) or self._read(args, {}, frame)
        inputs = self._own(known.inputs)
        outputs = self._outputs(inputs, known.specialization, _HERE, frame)
        self._launch(frame, inputs, outputs, known.specialization)
        return outputs, known.specialization

    def number(self, output: int, array: Array) -> float:
        return float(np.asarray(self._results.shown(output, array)))

    # Streams of the caller ------------------------------------------------------------------------

    def in_stream(self, stream: object) -> StreamCalls:
        return StreamCalls(self, self._gpu_driver(), stream)

    def start_in(
        self, frame: GpuFrame, args: Sequence[object], named: Mapping[str, object], out: object
    ) -> tuple[object, object]:
        known = None if named else self._known(args)
        inputs, specialization, _ = known or self._read(args, named, frame)
        if self._measures:
            raise self._refuse("a size that a call measures has to be waited for", "D0818")
        inputs = self._own(self._there([item.name for item in self.inputs], inputs))
        outputs = self._outputs(inputs, specialization, out, frame)
        names = [output.name or "the output" for output in self._entry.outputs]
        arrays = self._there([item.name for item in self.inputs] + names, [*inputs, *outputs])
        for array in arrays:
            if isinstance(array.owner, DeviceBytes):
                array.owner.is_lent = (
                    True  # the call may be under way when nobody holds it any more
                )
        try:
            words = frame.start(specialization.sized, tuple([array.address for array in arrays]))
        except KernelFailed as failed:
            raise self.at_line(failed) from failed
        if words is not None:
            raise self.failure(words)
        shown = [self._shown(k, array) for k, array in enumerate(outputs)]
        return self._results.packed([shown[k] for k in self._results.visible]), arrays

    def _there(self, names: Sequence[str], arrays: Sequence[Placed]) -> list[DeviceArray]:
        """Arrays that all lie on the device. Raises CallError (D0805) for one of the host."""
        found: list[DeviceArray] = []
        for name, array in zip(names, arrays, strict=True):
            if not isinstance(array, DeviceArray):
                raise self._refuse(
                    f"{name} lies on the host, and a call in a stream works on the GPU", "D0805"
                )
            found.append(array)
        return found

    # Arguments ------------------------------------------------------------------------------------

    def _known(self, args: Sequence[object]) -> _Known | None:
        """The arguments where they fit as they are, at sizes that were seen before."""
        key = key_of(args, self._parameters, self._driver_here, [0] * len(args))
        if key is None:
            return None
        specialization = self._specializations.known(shapes_of(key))
        if specialization is None:
            return None
        inputs = [x.memory if isinstance(x, Tensor) else cast(Array, x) for x in args]
        return _Known(inputs, specialization, key)

    def _read(self, args: Sequence[object], named: Mapping[str, object], frame: GpuFrame) -> _Known:
        """The longer way to the same: names, defaults, other libraries, new sizes, mistakes."""
        values, sizes = self._reader.sorted(args, named)
        pairs = zip(self.inputs, values, strict=True)
        inputs = [self._input(item, value, frame.stream) for item, value in pairs]
        specialization = self._bound([array.shape for array in inputs], sizes)
        return _Known(inputs, specialization)

    def _input(self, item: Input, value: object, stream: int) -> Placed:
        """An argument where it is, with its dtype checked. Raises CallError (D0802, D0820)."""
        changed = item.name in self._inouts
        if not is_on_gpu(value):
            return (as_changed_array if changed else as_array)(value, item, self.name)
        array, found = _taken(value, stream)
        self._check_device(item.name, array)
        if found is not DTYPES[item.dtype]:
            raise self._refuse(
                f"{item.name} is {found}{list(array.shape)}, where {describe(item)} is expected",
                "D0802",
            )
        if array.address % ALIGNED and array.nbytes:
            if changed:
                raise not_changeable(self.name, item, f"begins at no multiple of {ALIGNED} bytes")
            copy = DeviceArray.new(array.driver, array.shape, array.dtype)
            with array.driver as driver:
                driver.copy(copy.address, array.address, array.nbytes, stream)
            return copy
        return array

    def _check_device(self, name: str, array: DeviceArray) -> None:
        driver = self._gpu_driver()
        if array.driver is not driver:
            raise self._refuse(
                f"{name} lies on {array.device}, and the model is on cuda:{driver.number}", "D0805"
            )

    def _own(self, inputs: Sequence[Placed]) -> list[Placed]:
        """The inputs, with copies of those in host memory that are overwritten and must not be written.

        Raises CallError: D0806 for one that shares memory with another, D0820 for one that is `inout` and
        must not be written.
        """
        found = list(inputs)
        for place in self._overwritten.places:
            array = found[place]
            if not isinstance(array, DeviceArray) and array.flags.num & WRITABLE != WRITABLE:
                found[place] = self._overwritten.copied(place, array)
        self._overwritten.check([_span(array) for array in found])
        return found

    # Results --------------------------------------------------------------------------------------

    def _outputs(
        self, inputs: Sequence[Placed], specialization: Specialization, out: object, frame: GpuFrame
    ) -> list[Placed]:
        """Where the results go: over an input, into what is given, or to new memory on the device."""
        given = self._given(out, specialization, frame)
        found: list[Placed] = []
        for number, storage in enumerate(specialization.outputs):
            place = self._results.updates[number]
            if place is not None:
                found.append(inputs[place])
            elif number in given:
                found.append(given[number])
            elif out is _HERE:
                found.append(self._new_array(storage.shape, storage.dtype, storage.bytes))
            else:
                driver = self._gpu_driver()
                found.append(DeviceArray.new(driver, storage.shape, storage.dtype))
        for number in given:
            self._check_apart(number, found, inputs)
        return found

    def _given(
        self, out: object, specialization: Specialization, frame: GpuFrame
    ) -> dict[int, Placed]:
        """The arrays of `out=` by the numbers of the outputs. Raises CallError (D0806) for a misfit."""
        if out is None or out is _HERE:
            return {}
        found: dict[int, Placed] = {}
        for number, value in self._results.out_arrays(out).items():
            output, storage = self._entry.outputs[number], specialization.outputs[number]
            if not is_on_gpu(value):
                found[number] = self._results.fitting(value, output, storage)
                continue
            array, dtype = _taken(value, frame.stream)
            self._check_device(output.name or "the output", array)
            self._check_fit(array, dtype, output, storage)
            found[number] = array
        return found

    def _check_fit(
        self, array: DeviceArray, dtype: DType, output: Output, storage: Storage
    ) -> None:
        name = output.name or "the output"
        if dtype is not DTYPES[output.dtype] or array.shape != storage.shape:
            have, wanted = f"{dtype}{list(array.shape)}", f"{output.dtype}{list(storage.shape)}"
            raise self._refuse(f"out= for {name} is {have}, not {wanted}", "D0806")
        if array.address % ALIGNED and array.nbytes:
            raise self._refuse(
                f"out= for {name} begins at no multiple of {ALIGNED} bytes on the device", "D0806"
            )

    def _check_apart(
        self, number: int, outputs: Sequence[Placed], inputs: Sequence[Placed]
    ) -> None:
        others = [*inputs, *[other for k, other in enumerate(outputs) if k != number]]
        if any(_overlap(outputs[number], other) for other in others):
            name = self._entry.outputs[number].name or "the output"
            raise self._refuse(f"out= for {name} shares memory with an input or output", "D0806")

    def _shown(self, number: int, array: Placed) -> object:
        """A result as the caller sees it."""
        if isinstance(array, DeviceArray):
            return Tensor.on_device(array, self._given_as[number])
        return self._results.shown(number, array)

    # The call -------------------------------------------------------------------------------------

    def _new_frame(self) -> CallFrame:
        frame = super()._new_frame()
        assert isinstance(frame, GpuFrame)
        frame.name_kernels(self._kernel_names)
        return frame

    def _frame(self) -> GpuFrame:
        frame = self._take_frame()
        assert isinstance(frame, GpuFrame)
        return frame

    def _gpu_driver(self) -> Driver:
        machine = self._needed_runner().machine
        assert isinstance(machine, Gpu)
        return machine.driver

    def _launch(
        self,
        frame: GpuFrame,
        inputs: Sequence[Placed],
        outputs: Sequence[Placed],
        specialization: Specialization,
        *,
        launches: int = 0,
    ) -> CallTimes:
        """The call itself. Raises CallError with the line of the model that failed."""
        devices, hosts = _places(inputs, outputs)
        times, sized = _NO_TIMES, specialization.sized
        try:
            if launches:
                status, times = frame.run_timed(sized, devices, hosts, launches)
            else:
                with self._annotate(self.name):
                    status = frame.run_placed(sized, devices, hosts)
        except KernelFailed as failed:
            raise self.at_line(failed) from failed
        if status:
            raise self.failure(frame.status_words())
        return times

    def _timed(
        self, inputs: Sequence[Placed], outputs: Sequence[Placed], specialization: Specialization
    ) -> CallTimes:
        """The call, with the times of its parts."""
        frame = self._frame()
        try:
            return self._launch(frame, inputs, outputs, specialization, launches=1)
        finally:
            self._give_back(frame)

    def _kernel_times(
        self, inputs: Sequence[Placed], outputs: Sequence[Placed], specialization: Specialization
    ) -> KernelTimer:
        """The call, with the times of its kernels."""
        frame = self._frame()
        try:
            with self._located():
                devices, hosts = _places(inputs, outputs)
                status, timer = frame.run_profiled(specialization.sized, devices, hosts)
            if status:
                raise self.failure(frame.status_words())
        finally:
            self._give_back(frame)
        return timer

    def _refuse(self, message: str, code: str) -> CallError:
        return CallError(f"{self.name}: {message}", code=code)


def _taker(names: Sequence[str]) -> Callable[[Mapping[str, object]], tuple[object, ...]]:
    """The function that gives the values of names as a tuple; it raises KeyError for a missing one."""
    if len(names) > 1:
        return itemgetter(*names)
    (name,) = names
    return lambda named: (named[name],)


def _places(
    inputs: Sequence[Placed], outputs: Sequence[Placed]
) -> tuple[tuple[int, ...], Sequence[int]]:
    """The addresses of arrays on the device, and of those of the host; 0 for the others."""
    devices: list[int] = []
    hosts: list[int] = []
    for array in (*inputs, *outputs):
        there = isinstance(array, DeviceArray)
        devices.append(array.address if there else 0)
        hosts.append(0 if there else address(array))
    return tuple(devices), hosts


def is_on_gpu(value: object) -> bool:
    """Whether it is an array on an NVIDIA GPU, ours or of another library."""
    if isinstance(value, Tensor):
        return isinstance(value.memory, DeviceArray)
    if isinstance(value, np.ndarray | np.generic | bool | int | float | list | tuple | dict):
        return False
    return dlpack.is_on_gpu(value)


def _taken(value: object, stream: int) -> device_dlpack.Imported:
    """An array on a GPU, on its own memory, for work in that stream."""
    if isinstance(value, Tensor):
        assert isinstance(value.memory, DeviceArray)
        return device_dlpack.Imported(value.memory, DTYPES[value.dtype])
    return device_dlpack.imported(cast(dlpack.Exporter, value), stream)


def _members(out: object) -> Sequence[object]:
    """The arrays of `out=`."""
    if isinstance(out, Mapping):
        return list(cast("Mapping[str, object]", out).values())
    return list(cast("Sequence[object]", out)) if isinstance(out, list | tuple) else [out]


def _overlap(one: Placed, other: Placed) -> bool:
    """Whether two arrays share a byte."""
    first, second = _span(one), _span(other)
    return first[0] < second[1] and second[0] < first[1]


def _span(array: Placed) -> Span:
    """The interval of an array in memory; no address of a device is one of the host."""
    if isinstance(array, DeviceArray):
        return array.address, array.address + array.nbytes
    return span(array)
