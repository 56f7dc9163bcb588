"""Updates are put into their target where nothing else needs it any more."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dlc.dialects import array, flow, kernel, mem
from dlc.dialects.array.elementwise import tensor_type
from dlc.driver.compile.pipelines import pipeline
from dlc.ir.core import Block, Builder, Value
from dlc.ir.dims import symbol
from dlc.ir.passes import Context, Manager
from dlc.ir.types import F32, I64, TensorType
from tests.lowering.everywhere import Program, check, function_of

LEVELS = (0, 2)
CACHE, ROWS, ROW = (TensorType(F32, shape) for shape in ((12, 9, 20), (5, 9, 20), (1, 9, 20)))
PLACE = TensorType(I64)
PLACES = TensorType(I64, (3,))


def computed(emit: Builder, x: Value) -> Value:
    """Something that has memory of its own: running totals are not fused."""
    return emit(array.CumulativeSum(x, 0))


def place(emit: Builder, k: Value) -> list[Value]:
    """A place that is inside, and the beginning along the other axes."""
    three = array.constant_like(emit, 3, k)
    zero = array.constant_like(emit, 0, k)
    return [emit(array.Remainder(k, three)), zero, zero]


def filled_cache(emit: Builder, cache: Value, rows: Value) -> Sequence[Value]:
    """A loop that puts each row into the cache, as a decoder does."""
    body = Block([flow.COUNTER, CACHE, tensor_type(rows).with_shape((9, 20))])
    at = Builder(body, emit.location)
    number, carried, row = body.arguments
    one = at(array.Reshape(row, (1, 9, 20)))
    starts = place(at, at(array.Cast(number, I64)))
    at.place(flow.Yield((at(array.DynamicUpdateSlice(carried, one, starts)),)))
    return emit.all(flow.Scan((cache,), (rows,), (), body, 5, (0,), ()))


def update(emit: Builder, x: Value, row: Value, k: Value) -> Sequence[Value]:
    return (emit(array.DynamicUpdateSlice(computed(emit, x), row, place(emit, k))),)


def update_of_what_is_read_again(emit: Builder, x: Value, row: Value, k: Value) -> Sequence[Value]:
    old = computed(emit, x)
    new = emit(array.DynamicUpdateSlice(old, row, place(emit, k)))
    return new, computed(emit, emit(array.Subtract(new, old)))


def update_of_an_input(emit: Builder, x: Value, row: Value, k: Value) -> Sequence[Value]:
    new = emit(array.DynamicUpdateSlice(x, row, place(emit, k)))
    return (computed(emit, new),)


def two_alike(emit: Builder, x: Value, row: Value, k: Value) -> Sequence[Value]:
    """Updates of the same shapes, one into a target that dies, one of an input."""
    dying = emit(array.DynamicUpdateSlice(computed(emit, x), row, place(emit, k)))
    kept = emit(array.DynamicUpdateSlice(x, row, place(emit, k)))
    return computed(emit, dying), computed(emit, kept)


def scattered(emit: Builder, x: Value, rows: Value, k: Value) -> Sequence[Value]:
    three = array.constant_like(emit, 3, k)
    inside = emit(array.Remainder(k, three))
    added = emit(array.Scatter(computed(emit, x), rows, (inside,), (0,), "add"))
    return (computed(emit, added),)


def planned(program: Program, *types: TensorType) -> mem.Program:
    module, _ = function_of(program, types, {})
    Manager(Context()).run(module, pipeline("graph", "plan", 2))
    found = module.symbol("f")
    assert isinstance(found, mem.Program)
    return found


def updates(program: mem.Program) -> list[tuple[kernel.Kernel, bool]]:
    """The kernels that update a target, and whether they do it in place."""
    kinds = (kernel.Update, kernel.Scatter)
    found = [op for op in program.walk() if isinstance(op, kinds)]
    return [(op, mem.same_place(op.inputs[0], op.outs[0])) for op in found]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("program", "types"),
    [
        (filled_cache, (CACHE, ROWS)),
        (update, (CACHE, ROW, PLACE)),
        (update_of_what_is_read_again, (CACHE, ROW, PLACE)),
        (update_of_an_input, (CACHE, ROW, PLACE)),
        (two_alike, (CACHE, ROW, PLACE)),
        (scattered, (CACHE, TensorType(F32, (3, 9, 20)), PLACES)),
    ],
)
def test_updates_are_right(program: Program, types: Sequence[TensorType], level: int) -> None:
    check(program, *types, level=level)


def test_a_cache_that_a_loop_fills_is_copied_once_before_it() -> None:
    program = planned(filled_cache, CACHE, ROWS)
    ((_, in_place),) = updates(program)
    assert in_place
    (loop,) = [op for op in program.walk() if isinstance(op, mem.Loop)]
    copies = [op for op in loop.walk() if isinstance(op, kernel.Generic)]
    assert all(kernel.array_type(op.outs[0]) is not CACHE for op in copies)


def test_an_update_is_put_into_a_target_that_dies() -> None:
    program = planned(scattered, CACHE, TensorType(F32, (3, 9, 20)), PLACES)
    ((_, in_place),) = updates(program)
    assert in_place


@pytest.mark.parametrize("program", [update_of_what_is_read_again, update_of_an_input])
def test_a_target_that_others_need_stays_as_it_is(program: Program) -> None:
    ((_, in_place),) = updates(planned(program, CACHE, ROW, PLACE))
    assert not in_place


@pytest.mark.parametrize("level", LEVELS)
def test_updates_serve_every_size(level: int) -> None:
    n, m = symbol("N"), symbol("M")

    def program(emit: Builder, x: Value, row: Value, k: Value) -> Sequence[Value]:
        zero = array.constant_like(emit, 0, k)
        starts = [zero, emit(array.Multiply(k, zero))]
        return (emit(array.DynamicUpdateSlice(computed(emit, x), row, starts)),)

    types = TensorType(F32, (n, 3 * m)), TensorType(F32, (1, m)), PLACE
    dims: dict[str, tuple[int, int | None]] = {"N": (1, None), "M": (1, None)}
    check(program, *types, level=level, dims=dims, at=[{"N": 1, "M": 1}, {"N": 7, "M": 13}])
