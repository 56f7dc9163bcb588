"""Evaluation of one operation by the threads of a warp: memory, shuffles, fragments, registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlc.dialects import fragments, loop, scalar, simt, vec
from dlc.dialects.scalar import COMBINERS, element
from dlc.dialects.simt import WARP
from dlc.evaluation.gpu.shadow_memory import Numbers
from dlc.evaluation.gpu.warp_memory import Active, WarpMemory, active, poison
from dlc.ir.core import Array, Op
from dlc.ir.types import F32, DType


def compute(warp: WarpMemory, op: Op, inputs: Sequence[Array], lanes: Active) -> tuple[Array, ...]:
    """The results of an operation, a row for each thread; inactive threads get poison."""
    handler = HANDLERS.get(type(op))
    if handler is not None:
        return handler(warp, op, inputs, lanes)
    evaluate = REGISTERS.get(type(op)) or _evaluate
    if lanes.all:
        return (evaluate(warp, op, *inputs),)
    # The operation may not be defined for what inactive threads hold.
    result = poison(op.results[0].type)
    result[lanes.mask] = evaluate(warp, op, *[array[lanes.mask] for array in inputs])
    return (result,)


Handler = Callable[[WarpMemory, Any, Sequence[Array], Active], tuple[Array, ...]]
"""The results of an operation of the class that the handler is entered for."""


def _addresses(pointer: Array, index: Array, dtype: DType) -> Numbers:
    """The address of `pointer[index]` in each thread."""
    return pointer.astype(np.int64) + index.astype(np.int64) * dtype.bytes


def _offset(
    warp: WarpMemory, op: loop.Offset, inputs: Sequence[Array], lanes: Active
) -> tuple[Array, ...]:
    pointer, index = inputs
    return (_addresses(pointer, index, op.dtype),)


def _load(
    warp: WarpMemory, op: loop.Load, inputs: Sequence[Array], lanes: Active
) -> tuple[Array, ...]:
    pointer, index = inputs
    return (warp.read(op, _addresses(pointer, index, op.dtype), op.dtype, 1, lanes)[:, 0],)


def _load_register(
    warp: WarpMemory, op: vec.Load, inputs: Sequence[Array], lanes: Active
) -> tuple[Array, ...]:
    (pointer, index), dtype, count = inputs, op.type.dtype, op.type.lanes
    addresses, aligned = _addresses(pointer, index, dtype), op.alignment == count * dtype.bytes
    return (warp.read(op, addresses, dtype, count, lanes, aligned=aligned),)


def _store(warp: WarpMemory, op: Op, inputs: Sequence[Array], lanes: Active) -> tuple[Array, ...]:
    value, pointer, index = inputs
    dtype = element(op.operands[0].type)
    warp.write(op, _addresses(pointer, index, dtype), value, lanes)
    return ()


def _store_register(
    warp: WarpMemory, op: vec.Store, inputs: Sequence[Array], lanes: Active
) -> tuple[Array, ...]:
    value, pointer, index = inputs
    dtype = element(op.value.type)
    aligned = op.alignment == value.shape[1] * dtype.bytes
    warp.write(op, _addresses(pointer, index, dtype), value, lanes, aligned=aligned)
    return ()


def _gather(
    warp: WarpMemory, op: vec.Gather, inputs: Sequence[Array], lanes: Active
) -> tuple[Array, ...]:
    (pointer, indices), dtype = inputs, op.type.dtype
    elements = [
        warp.read(op, _addresses(pointer, index, dtype), dtype, 1, lanes)[:, 0]
        for index in indices.T
    ]
    return (np.stack(elements, axis=1),)


def _scatter(warp: WarpMemory, op: Op, inputs: Sequence[Array], lanes: Active) -> tuple[Array, ...]:
    values, pointer, indices = inputs
    dtype = element(op.operands[0].type)
    for value, index in zip(values.T, indices.T, strict=True):
        warp.write(op, _addresses(pointer, index, dtype), value, lanes)
    return ()


def _buffer(
    warp: WarpMemory, op: loop.Buffer, inputs: Sequence[Array], lanes: Active
) -> tuple[Array, ...]:
    return (warp.buffer(op),)


def _shared(
    warp: WarpMemory, op: simt.Shared, inputs: Sequence[Array], lanes: Active
) -> tuple[Array, ...]:
    return (np.full(WARP, warp.block.shared(op), np.int64),)


def _fail(
    warp: WarpMemory, op: loop.Fail, inputs: Sequence[Array], lanes: Active
) -> tuple[Array, ...]:
    first = [array[lanes.mask][0] for array in inputs]
    failures = warp.block.launch.failures
    if failures is None:
        return op.evaluate(warp, *first)
    failures.append((op.code, *[int(scalar) for scalar in first]))
    return ()


def _shuffle_xor(
    warp: WarpMemory, op: Op, inputs: Sequence[Array], lanes: Active
) -> tuple[Array, ...]:
    warp.refuse_divergence(op, lanes)
    result = op.evaluate(warp, *inputs)
    assert not isinstance(result, tuple)
    return (result,)


def _load_several(
    warp: WarpMemory, op: simt.Load, inputs: Sequence[Array], lanes: Active
) -> tuple[Array, ...]:
    pointer, index = inputs
    addresses = _addresses(pointer, index, op.dtype)
    return tuple(warp.read(op, addresses, op.dtype, op.count, lanes, aligned=True).T)


def _store_several(
    warp: WarpMemory, op: Op, inputs: Sequence[Array], lanes: Active
) -> tuple[Array, ...]:
    pointer, index, *values = inputs
    dtype = element(op.operands[2].type)
    warp.write(op, _addresses(pointer, index, dtype), np.stack(values, axis=1), lanes, aligned=True)
    return ()


def _copy(
    warp: WarpMemory, op: simt.Copy, inputs: Sequence[Array], lanes: Active
) -> tuple[Array, ...]:
    source, source_index, target, target_index, predicate = inputs
    dtype, reading = op.dtype, active(lanes.mask & predicate.astype(np.bool_))
    data = np.zeros((WARP, op.count * dtype.bytes), np.uint8)
    if reading.lanes.size:
        addresses = _addresses(source, source_index, dtype)
        elements = warp.read(op, addresses, dtype, op.count, reading, aligned=True)
        data[reading.lanes] = np.ascontiguousarray(elements).view(np.uint8)[reading.lanes]
    warp.start_copy(op, data, _addresses(target, target_index, dtype), lanes)
    return ()


def _commit(warp: WarpMemory, op: Op, inputs: Sequence[Array], lanes: Active) -> tuple[Array, ...]:
    warp.refuse_divergence(op, lanes)
    warp.commit_copies()
    return ()


def _wait(
    warp: WarpMemory, op: simt.Wait, inputs: Sequence[Array], lanes: Active
) -> tuple[Array, ...]:
    warp.refuse_divergence(op, lanes)
    warp.finish_copies(op, op.pending)
    return ()


def _load_matrix(
    warp: WarpMemory, op: simt.LoadMatrix, inputs: Sequence[Array], lanes: Active
) -> tuple[Array, ...]:
    """Each thread reads the elements that it receives, from the row addresses that the threads give."""
    warp.refuse_divergence(op, lanes)
    (pointer, index), dtype = inputs, op.dtype
    rows = _addresses(pointer, index, dtype)
    warp.refuse_unaligned(op, rows, simt.WIDE)
    registers: list[Array] = []
    for first in range(0, WARP, 8):
        addresses = fragments.thread_addresses(rows[first : first + 8], dtype, op.transposed)
        elements = [warp.read(op, column, dtype, 1, lanes)[:, 0] for column in addresses.T]
        registers.append(elements[0] if dtype is F32 else np.stack(elements, axis=1))
    return tuple(registers)


def _mma(
    warp: WarpMemory, op: simt.Mma, inputs: Sequence[Array], lanes: Active
) -> tuple[Array, ...]:
    warp.refuse_divergence(op, lanes)
    dtype = element(op.operands[0].type)
    return tuple(fragments.mma(inputs[:4], inputs[4:6], inputs[6:], dtype))


def _constant(
    warp: WarpMemory, op: scalar.Constant, inputs: Sequence[Array], lanes: Active
) -> tuple[Array, ...]:
    return (warp.block.launch.constant(op, warp),)


HANDLERS: dict[type[Op], Handler] = {
    loop.Offset: _offset,
    loop.Load: _load,
    loop.Store: _store,
    loop.Buffer: _buffer,
    loop.Fail: _fail,
    scalar.Constant: _constant,
    simt.Commit: _commit,
    simt.Copy: _copy,
    simt.ShuffleXor: _shuffle_xor,
    simt.Load: _load_several,
    simt.LoadMatrix: _load_matrix,
    simt.Mma: _mma,
    simt.Shared: _shared,
    simt.Store: _store_several,
    simt.Wait: _wait,
    vec.Load: _load_register,
    vec.Store: _store_register,
    vec.Gather: _gather,
    vec.Scatter: _scatter,
}


def _evaluate(warp: WarpMemory, op: Op, *inputs: Array) -> Array:
    """An elementwise operation: its evaluation with NumPy serves all threads at once."""
    result = op.evaluate(warp, *inputs)
    assert not isinstance(result, tuple)
    return result


def _broadcast(warp: WarpMemory, op: vec.Broadcast, *inputs: Array) -> Array:
    return np.repeat(inputs[0][:, None], op.lanes, axis=1)


def _ramp(warp: WarpMemory, op: vec.Ramp, *inputs: Array) -> Array:
    (start,) = inputs
    return start[:, None] + np.arange(op.lanes, dtype=start.dtype)


def _reduce(warp: WarpMemory, op: vec.Reduce, *inputs: Array) -> Array:
    (elements,) = inputs
    combine = COMBINERS[op.combine].function
    while elements.shape[1] > 1:
        half = elements.shape[1] // 2
        elements = combine(elements[:, :half], elements[:, half:])
    return elements[:, 0]


def _join(warp: WarpMemory, op: Op, *inputs: Array) -> Array:
    return np.stack(inputs, axis=1)


REGISTERS: dict[type[Op], Callable[..., Array]] = {
    simt.Join: _join,
    vec.Broadcast: _broadcast,
    vec.Ramp: _ramp,
    vec.Reduce: _reduce,
}
