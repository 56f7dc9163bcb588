"""The operations of a warp that know of memory, of the other threads, or of several elements in one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dlc.dialects import fragments, loop, scalar, simt, vec
from dlc.dialects.scalar import COMBINERS, element
from dlc.dialects.simt import WARP
from dlc.evaluation.gpu.shadow_memory import Numbers
from dlc.evaluation.gpu.warp_memory import Active, WarpMemory, active, poison
from dlc.ir.core import Array, Op
from dlc.ir.types import F32, DType


def compute(warp: WarpMemory, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
    """An operation in the threads that are here; the others get poison."""
    handler = HANDLERS.get(type(op))
    if handler is not None:
        return handler(warp, op, inputs, here)
    evaluate = REGISTERS.get(type(op)) or _evaluate
    if here.all:
        return (evaluate(warp, op, *inputs),)
    # What the other threads hold may be nothing that the operation is defined for.
    result = poison(op.results[0].type)
    result[here.mask] = evaluate(warp, op, *[array[here.mask] for array in inputs])
    return (result,)


Handler = Callable[[WarpMemory, Op, Sequence[Array], Active], tuple[Array, ...]]


def _elements(pointer: Array, index: Array, dtype: DType) -> Numbers:
    """The addresses of elements."""
    return pointer.astype(np.int64) + index.astype(np.int64) * dtype.bytes


def _offset(warp: WarpMemory, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
    assert isinstance(op, loop.Offset)
    pointer, index = inputs
    return (_elements(pointer, index, op.dtype),)


def _load(warp: WarpMemory, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
    assert isinstance(op, loop.Load)
    pointer, index = inputs
    return (warp.read(op, _elements(pointer, index, op.dtype), op.dtype, 1, here)[:, 0],)


def _load_register(
    warp: WarpMemory, op: Op, inputs: Sequence[Array], here: Active
) -> tuple[Array, ...]:
    assert isinstance(op, vec.Load)
    (pointer, index), dtype, lanes = inputs, op.type.dtype, op.type.lanes
    places, aligned = _elements(pointer, index, dtype), op.alignment == lanes * dtype.bytes
    return (warp.read(op, places, dtype, lanes, here, aligned=aligned),)


def _store(warp: WarpMemory, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
    value, pointer, index = inputs
    dtype = element(op.operands[0].type)
    warp.write(op, _elements(pointer, index, dtype), value, here)
    return ()


def _store_register(
    warp: WarpMemory, op: Op, inputs: Sequence[Array], here: Active
) -> tuple[Array, ...]:
    assert isinstance(op, vec.Store)
    value, pointer, index = inputs
    dtype = element(op.value.type)
    aligned = op.alignment == value.shape[1] * dtype.bytes
    warp.write(op, _elements(pointer, index, dtype), value, here, aligned=aligned)
    return ()


def _gather(warp: WarpMemory, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
    assert isinstance(op, vec.Gather)
    (pointer, indices), dtype = inputs, op.type.dtype
    lanes = [
        warp.read(op, _elements(pointer, index, dtype), dtype, 1, here)[:, 0] for index in indices.T
    ]
    return (np.stack(lanes, axis=1),)


def _scatter(warp: WarpMemory, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
    values, pointer, indices = inputs
    dtype = element(op.operands[0].type)
    for value, index in zip(values.T, indices.T, strict=True):
        warp.write(op, _elements(pointer, index, dtype), value, here)
    return ()


def _buffer(warp: WarpMemory, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
    assert isinstance(op, loop.Buffer)
    return (warp.buffer(op),)


def _shared(warp: WarpMemory, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
    assert isinstance(op, simt.Shared)
    return (np.full(WARP, warp.block.shared(op), np.int64),)


def _fail(warp: WarpMemory, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
    assert isinstance(op, loop.Fail)
    first = [array[here.mask][0] for array in inputs]
    notes = warp.block.launch.failures
    if notes is None:
        return op.evaluate(warp, *first)
    notes.append((op.code, *[int(number) for number in first]))
    return ()


def _exchange(warp: WarpMemory, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
    warp.refuse_absence(op, here)
    result = op.evaluate(warp, *inputs)
    assert not isinstance(result, tuple)
    return (result,)


def _load_together(
    warp: WarpMemory, op: Op, inputs: Sequence[Array], here: Active
) -> tuple[Array, ...]:
    assert isinstance(op, simt.Load)
    pointer, index = inputs
    addresses = _elements(pointer, index, op.dtype)
    return tuple(warp.read(op, addresses, op.dtype, op.count, here, aligned=True).T)


def _store_together(
    warp: WarpMemory, op: Op, inputs: Sequence[Array], here: Active
) -> tuple[Array, ...]:
    pointer, index, *values = inputs
    dtype = element(op.operands[2].type)
    warp.write(op, _elements(pointer, index, dtype), np.stack(values, axis=1), here, aligned=True)
    return ()


def _copy(warp: WarpMemory, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
    assert isinstance(op, simt.Copy)
    source, place, target, there, within = inputs
    dtype, inside = op.dtype, active(here.mask & within.astype(np.bool_))
    data = np.zeros((WARP, op.count * dtype.bytes), np.uint8)
    if inside.rows.size:
        addresses = _elements(source, place, dtype)
        found = warp.read(op, addresses, dtype, op.count, inside, aligned=True)
        data[inside.rows] = np.ascontiguousarray(found).view(np.uint8)[inside.rows]
    warp.start_copy(op, data, _elements(target, there, dtype), here)
    return ()


def _commit(warp: WarpMemory, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
    warp.refuse_absence(op, here)
    warp.commit_copies()
    return ()


def _wait(warp: WarpMemory, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
    assert isinstance(op, simt.Wait)
    warp.refuse_absence(op, here)
    warp.land_copies(op, op.pending)
    return ()


def _load_matrix(
    warp: WarpMemory, op: Op, inputs: Sequence[Array], here: Active
) -> tuple[Array, ...]:
    """Each thread reads what it gets itself, at the places that the threads give."""
    assert isinstance(op, simt.LoadMatrix)
    warp.refuse_absence(op, here)
    (pointer, index), dtype = inputs, op.dtype
    rows = _elements(pointer, index, dtype)
    warp.refuse_unaligned(op, rows, simt.WIDE)
    found: list[Array] = []
    for number in range(4):
        places = fragments.thread_addresses(rows[8 * number : 8 * number + 8], dtype, op.transposed)
        parts = [warp.read(op, column, dtype, 1, here)[:, 0] for column in places.T]
        found.append(parts[0] if dtype is F32 else np.stack(parts, axis=1))
    return tuple(found)


def _mma(warp: WarpMemory, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
    assert isinstance(op, simt.Mma)
    warp.refuse_absence(op, here)
    dtype = element(op.operands[0].type)
    return tuple(fragments.mma(inputs[:4], inputs[4:6], inputs[6:], dtype))


def _constant(warp: WarpMemory, op: Op, inputs: Sequence[Array], here: Active) -> tuple[Array, ...]:
    assert isinstance(op, scalar.Constant)
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
    simt.ShuffleXor: _exchange,
    simt.Load: _load_together,
    simt.LoadMatrix: _load_matrix,
    simt.Mma: _mma,
    simt.Shared: _shared,
    simt.Store: _store_together,
    simt.Wait: _wait,
    vec.Load: _load_register,
    vec.Store: _store_register,
    vec.Gather: _gather,
    vec.Scatter: _scatter,
}


def _evaluate(warp: WarpMemory, op: Op, *inputs: Array) -> Array:
    """An operation that does to every element the same, and so to every thread."""
    result = op.evaluate(warp, *inputs)
    assert not isinstance(result, tuple)
    return result


def _broadcast(warp: WarpMemory, op: Op, *inputs: Array) -> Array:
    assert isinstance(op, vec.Broadcast)
    return np.repeat(inputs[0][:, None], op.lanes, axis=1)


def _ramp(warp: WarpMemory, op: Op, *inputs: Array) -> Array:
    assert isinstance(op, vec.Ramp)
    return inputs[0].astype(np.int64)[:, None] + np.arange(op.lanes, dtype=np.int64)


def _reduce(warp: WarpMemory, op: Op, *inputs: Array) -> Array:
    assert isinstance(op, vec.Reduce)
    (lanes,) = inputs
    combine = COMBINERS[op.combine].function
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = combine(lanes[:, :half], lanes[:, half:])
    return lanes[:, 0]


def _join(warp: WarpMemory, op: Op, *inputs: Array) -> Array:
    return np.stack(inputs, axis=1)


REGISTERS: dict[type[Op], Callable[..., Array]] = {
    simt.Join: _join,
    vec.Broadcast: _broadcast,
    vec.Ramp: _ramp,
    vec.Reduce: _reduce,
}
