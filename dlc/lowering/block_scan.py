"""What the threads of a block have, combined up to each of them: the way to put things in order.

Threads of a warp exchange what they have over 1, 2, 4, ... places; the warps' totals meet in shared
memory. The tree is fixed, so the bits are the same in every run.
"""

from __future__ import annotations

from dlc.dialects import loop, scalar, simt
from dlc.dialects.simt import WARP
from dlc.ir.builder import Builder
from dlc.ir.core import Value
from dlc.ir.types import DType
from dlc.lowering.lanes import combine
from dlc.lowering.loop_words import index
from dlc.lowering.simt_writer import GridWriter, when


def scan(
    writer: GridWriter, emit: Builder, name: str, value: Value, start: Value
) -> tuple[Value, Value]:
    """`start` and all values of the threads before this one combined; and those of all threads.

    All threads of the block must be here.
    """
    prefix, total = _within_warp(writer, emit, name, value, start)
    warps = writer.threads // WARP
    if warps == 1:
        return prefix, total
    assert isinstance(value.type, DType)
    room = emit(simt.Shared(warps, value.type))
    warp = emit(scalar.RawDivide(writer.thread.value, index(emit, WARP)))
    first = emit(scalar.Multiply(warp, index(emit, WARP)))
    leads = emit(scalar.Compare(writer.thread.value, first, "eq"))
    when(emit, leads, loop.Store(total, room, warp))
    emit.place(simt.Barrier())
    before, whole = start, start
    for number in range(warps):
        part = emit(loop.Load(room, index(emit, number), value.type))
        whole = combine(emit, name, whole, part)
        earlier = emit(scalar.Compare(index(emit, number), warp, "lt"))
        before = emit(scalar.Select(earlier, whole, before))
    # The room is used again if this is in a loop.
    emit.place(simt.Barrier())
    return combine(emit, name, before, prefix), whole


def _within_warp(
    writer: GridWriter, emit: Builder, name: str, value: Value, start: Value
) -> tuple[Value, Value]:
    """The same among the threads of a warp."""
    prefix, total, distance = start, value, 1
    while distance < WARP:
        other = emit(simt.Exchange(total, distance))
        bit = emit(scalar.And(writer.thread.value, index(emit, distance)))
        is_later = emit(scalar.Compare(bit, index(emit, 0), "ne"))
        prefix = emit(scalar.Select(is_later, combine(emit, name, other, prefix), prefix))
        total = combine(emit, name, total, other)
        distance *= 2
    return prefix, total
