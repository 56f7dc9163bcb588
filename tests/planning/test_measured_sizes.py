"""Programs whose sizes depend on values: what is counted decides how much of the storage is used."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from dlc.dialects import array, flow, mem
from dlc.dialects.array.dynamic import compress
from dlc.dialects.measured import dims_of, is_monotone, upper_bound
from dlc.driver.compile.build_artifact import interface_of
from dlc.driver.compile.pipelines import pipeline
from dlc.errors import CallError, Unsupported
from dlc.ir.core import Block, Builder, Value
from dlc.ir.dims import symbol
from dlc.ir.passes import Context, Manager, Options
from dlc.ir.types import F32, I64, TensorType
from dlc.planning.return_counts import return_counts
from dlc.text.sizes import parse_size
from tests.lowering.everywhere import Program, called, check, function_of, model_of

LEVELS = (0, 2)
N, T = symbol("n"), symbol("T")
TABLE = TensorType(F32, (40, 70))
ROW = TensorType(F32, (40,))


def chosen_rows(emit: Builder, x: Value, by: Value) -> Value:
    """The rows of x where `by` is positive; there are n."""
    zero = array.fill(emit, 0, ROW)
    mask = emit(array.Compare(by, zero, "gt"))
    return compress(emit, x, mask, 0, "n")[0]


def sums_and_products(emit: Builder, x: Value, by: Value, w: Value) -> Sequence[Value]:
    rows = chosen_rows(emit, x, by)
    return (
        emit(array.MatMul(rows, w)),
        emit(array.ReduceSum(rows, (0,))),
        emit(array.ReduceSum(rows, (1,))),
        emit(array.CumulativeSum(rows, 0)),
        emit(array.CumulativeSum(emit(array.Transpose(rows, (1, 0))), 0)),
        *emit.all(array.Sort(rows, (), 0)),
    )


def sizes_alone(emit: Builder, x: Value, by: Value) -> Sequence[Value]:
    chosen_rows(emit, x, by)
    ones = array.fill(emit, 1, TensorType(F32, (N, 3)))
    count = emit(array.Extent(N * N + 1))
    return emit(array.ReduceSum(ones, (0,))), emit(array.Iota((N,), 0, I64)), count


def twice(emit: Builder, x: Value, by: Value) -> Sequence[Value]:
    rows = chosen_rows(emit, x, by)
    first = emit(array.Slice(rows, (0, 0), (N, 1), (1, 1)))
    column = emit(array.Reshape(first, (N,)))
    zero = array.fill(emit, 0, TensorType(F32, (N,)))
    again, count = compress(emit, rows, emit(array.Compare(column, zero, "lt")), 0, "again")
    return again, emit(array.Exp(again)), count


def in_a_loop(emit: Builder, x: Value, by: Value) -> Sequence[Value]:
    """The sum of the positive elements of each row, and of the chosen rows one by one."""
    row = TensorType(F32, (70,))
    body = Block([flow.COUNTER, row, row])
    at = Builder(body, emit.location)
    mask = at(array.Compare(body.arguments[2], array.fill(at, 0, row), "gt"))
    positive, _ = compress(at, body.arguments[2], mask, 0, "m")
    total = at(array.ReduceSum(positive, (0,)))
    at.place(flow.Yield((at(array.Add(body.arguments[1], body.arguments[2])), total)))
    start = array.fill(emit, 0, row)
    sums, totals = emit.all(flow.Scan((start,), (x,), (), body, 40, (0,), (0,)))
    rows = chosen_rows(emit, x, by)
    body = Block([flow.COUNTER, row, row])
    at = Builder(body, emit.location)
    following = at(array.Add(body.arguments[1], body.arguments[2]))
    at.place(flow.Yield((following, following)))
    last, every = emit.all(flow.Scan((start,), (rows,), (), body, N, (0,), (0,)))
    return sums, totals, last, every


@pytest.mark.parametrize("level", LEVELS)
def test_what_follows_a_choice_of_rows_works_on_those_rows(level: int) -> None:
    check(sums_and_products, TABLE, ROW, TensorType(F32, (70, 5)), level=level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("program", [sizes_alone, twice, in_a_loop])
def test_measured_sizes_are_sizes_like_others(program: Program, level: int) -> None:
    check(program, TABLE, ROW, level=level)


@pytest.mark.parametrize("level", LEVELS)
def test_the_limit_may_be_a_symbolic_size(level: int) -> None:
    def program(emit: Builder, x: Value) -> Sequence[Value]:
        positive = emit(array.Compare(x, array.fill(emit, 0, type), "gt"))
        return emit.all(array.NonZero(positive, "n"))

    type = TensorType(F32, (T, 5))
    dims: dict[str, tuple[int, int | None]] = {"T": (1, None)}
    check(program, type, level=level, dims=dims, at=[{"T": 1}, {"T": 33}])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("count", [0, 1, 3, 4, 7])
def test_more_elements_than_there_is_storage_for_fail_the_call(count: int, level: int) -> None:
    def program(emit: Builder, x: Value) -> Sequence[Value]:
        return emit.all(array.NonZero(x, "n", 3))[:1]

    model = model_of(program, [TensorType(F32, (7,))], Options(level=level))
    x = np.asarray([1.0] * count + [0.0] * (7 - count), np.float32)
    if count > 3:
        with pytest.raises(CallError, match=rf"size {count} exceeds its bound 3"):
            model.f(x)
    else:
        assert called(model, [x])[0].tolist() == [[k] for k in range(count)]


def test_the_caller_sees_the_count_only_where_it_is_returned() -> None:
    def rows_only(emit: Builder, x: Value) -> Sequence[Value]:
        return emit.all(array.NonZero(x, "n"))[:1]

    _, function = function_of(rows_only, [TensorType(F32, (7,))], {})
    return_counts(function)
    entry = interface_of(function)
    assert [output.hidden for output in entry.outputs] == [False, True]
    (dim,) = entry.dims
    assert dim.measured is not None
    assert (dim.name, dim.measured.output, dim.measured.limit) == ("n", entry.outputs[1].name, "7")


def test_a_result_that_is_larger_the_fewer_were_counted_is_refused() -> None:
    def program(emit: Builder, x: Value) -> Sequence[Value]:
        emit.all(array.NonZero(x, "n"))
        return (array.fill(emit, 1, TensorType(F32, (7 - N,))),)

    _, function = function_of(program, [TensorType(F32, (7,))], {})
    with pytest.raises(Unsupported, match="larger the fewer"):
        return_counts(function)


def test_a_scan_in_steps_of_a_measured_size_is_refused_with_that_as_the_reason() -> None:
    def program(emit: Builder, x: Value, by: Value) -> Sequence[Value]:
        rows = emit(array.Transpose(chosen_rows(emit, x, by), (1, 0)))
        row = TensorType(F32, (N,))
        body = Block([flow.COUNTER, row])
        at = Builder(body, emit.location)
        at.place(flow.Yield((at(array.ReduceSum(body.arguments[1], (0,))),)))
        return emit.all(flow.Scan((), (rows,), (), body, 70, (0,), (0,)))

    module, _ = function_of(program, [TABLE, ROW], {})
    with pytest.raises(Unsupported, match=r"axis 0 of f32\[.*, n\], and n, the size of a step"):
        Manager(Context()).run(module, pipeline("graph", "plan", 0))


def test_a_backward_scan_over_a_measured_size_is_refused_with_that_as_the_reason() -> None:
    def program(emit: Builder, x: Value, by: Value) -> Sequence[Value]:
        body = Block([flow.COUNTER, TensorType(F32, (70,))])
        at = Builder(body, emit.location)
        at.place(flow.Yield((at(array.ReduceSum(body.arguments[1], (0,))),)))
        rows = chosen_rows(emit, x, by)
        return emit.all(flow.Scan((), (rows,), (), body, N, (0,), (0,), reverse=True))

    module, _ = function_of(program, [TABLE, ROW], {})
    with pytest.raises(Unsupported, match="which are counted, goes forwards only"):
        Manager(Context()).run(module, pipeline("graph", "plan", 0))


def test_the_count_keeps_its_memory_as_long_as_a_kernel_is_as_large() -> None:
    module, _ = function_of(twice, [TABLE, ROW], {})
    Manager(Context()).run(module, pipeline("graph", "plan", 0))
    program = module.symbol("f")
    assert isinstance(program, mem.Program)
    assert program.limit_of == {"n": 40, "again": 40}
    sizes = [op for op in program.body if isinstance(op, mem.MeasuredSize)]
    first = next(op for op in sizes if op.dim == "n")
    view = first.view.op
    assert isinstance(view, mem.View)
    root = view.root.op
    assert isinstance(root, mem.Root)
    waves = [op for op in program.body if isinstance(op, mem.Wave)]
    readers = [k for k, wave in enumerate(waves) if "n" in dims_of(wave)]
    assert root.last >= readers[-1] > readers[0]


@pytest.mark.parametrize(
    ("size", "highest", "is_largest_there"),
    [
        ("3*n + T", "T + 30", True),
        ("T - n", "T", False),
        ("(n + 3)//4*T", "3*T", True),
        ("(12 - n)//4", "3", True),
        ("max(n, T)", "max(10, T)", True),
        ("T//(n + 1)", "T", True),
    ],
)
def test_the_largest_a_size_can_be(size: str, highest: str, is_largest_there: bool) -> None:
    limits = {"n": 10}
    assert upper_bound(parse_size(size), limits) == parse_size(highest)
    assert is_monotone(parse_size(size), limits) == is_largest_there
