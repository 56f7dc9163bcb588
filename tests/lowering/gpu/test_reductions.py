"""The forms of kernels for GPUs where threads go round, rows end within a piece, and blocks share."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import numpy as np
import pytest

from dlc.dialects import array, kernel, mem, nn, simt
from dlc.dialects.array.convolution import convolution
from dlc.driver.compile.pipelines import Device, pipeline
from dlc.evaluation.gpu.shadow_memory import Race
from dlc.evaluation.plan import evaluate_plan
from dlc.ir.core import Array, Builder, Evaluation, Op, Value
from dlc.ir.dims import Size, symbol
from dlc.ir.passes import Context, Manager, Options
from dlc.ir.types import BF16, BOOL, F32, I8, I32, I64, U8, DType, TensorType
from dlc.lowering.gpu import long_row_reduce, row_reduce
from tests.lowering.everywhere import Program, assert_close, function_of, random_inputs
from tests.suites import every
from tests.targets import ON_GPU

T = symbol("T")
UNKNOWN = {"T": (1, None)}


def tensor(*shape: Size, dtype: DType = F32) -> TensorType:
    return TensorType(dtype, shape)


def check(
    program: Program, types: Sequence[TensorType], given: Sequence[Array] = (), **dims: int
) -> list[int]:
    """A program gives what its operations say; the threads of a block of each of its kernels."""
    bounds = {name: UNKNOWN[name] for name in dims}
    inputs = [*given, *random_inputs(types, dims)[len(given) :]]
    module, function = function_of(program, types, bounds)
    wanted = Evaluation(dims).run(function.body, inputs)
    manager = Manager(Context(options=Options(target=ON_GPU)))
    manager.run(module, pipeline("graph", "loop", 2, Device.CUDA))
    found = module.symbol("f")
    assert isinstance(found, mem.Program)
    assert_close(evaluate_plan(found, inputs, dims), wanted, 1e-5, "warps")
    return [op.threads for op in module.walk() if isinstance(op, simt.Func)]


# Elements.


def scaled_sum(emit: Builder, x: Value, y: Value) -> Sequence[Value]:
    return (emit(array.Multiply(emit(array.Add(x, y)), x)),)


def beginning_later(emit: Builder, x: Value) -> Sequence[Value]:
    """What is read begins within a group of neighbours."""
    part = emit(array.Slice(x, (0, 1), (6, 9), (1, 1)))
    return (emit(array.Sin(part)),)


def of_two_widths(emit: Builder, x: Value) -> Sequence[Value]:
    return (emit(array.Cast(emit(array.Multiply(x, x)), F32)),)


@pytest.mark.parametrize(
    ("program", "types"),
    [
        pytest.param(scaled_sum, [tensor(2051)] * 2, id="the-last-group-is-not-whole"),
        pytest.param(scaled_sum, [tensor(2048)] * 2, id="one-tile"),
        pytest.param(scaled_sum, [tensor(3, 7)] * 2, id="less-than-a-tile"),
        pytest.param(scaled_sum, [tensor(300, 12, dtype=BF16)] * 2, id="of-16-bits"),
        pytest.param(scaled_sum, [tensor(8200, dtype=U8)] * 2, id="of-8-bits"),
        pytest.param(scaled_sum, [tensor(300, 48, dtype=I8)] * 2, id="of-8-bits-with-sign"),
        pytest.param(of_two_widths, [tensor(1030, dtype=BF16)], id="of-two-widths"),
        pytest.param(of_two_widths, [tensor(1030, dtype=U8)], id="of-widths-far-apart"),
        pytest.param(beginning_later, [tensor(6, 12)], id="beginning-within-a-group"),
    ],
)
def test_elements_by_groups_of_neighbours(program: Program, types: list[TensorType]) -> None:
    check(program, types)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((3, 40, 24), F32), ((3, 20, 9), F32), ((3, 7, 9), F32), ((2, 32, 9), BF16), ((2, 64, 9), U8)],
)
def test_axes_are_turned(shape: tuple[int, ...], dtype: DType) -> None:
    """A thread has eight rows, four, or one; of narrow elements it has sixteen, or 32."""

    def turned(emit: Builder, x: Value, y: Value) -> Sequence[Value]:
        moved = emit(array.Transpose(x, (0, 2, 1)))
        return (emit(array.Add(emit(array.Multiply(moved, moved)), y)),)

    batch, rows, columns = shape
    check(turned, [tensor(batch, columns, rows, dtype=dtype), tensor(*shape, dtype=dtype)])


# Rows.


def softmax(emit: Builder, x: Value) -> Sequence[Value]:
    return (emit(nn.Softmax(x, 1)),)


def spread(emit: Builder, x: Value) -> Sequence[Value]:
    """The mean of the squares of each row."""
    return (emit(array.ReduceSum(emit(array.Multiply(x, x)), (1,))),)


@pytest.mark.parametrize(
    ("length", "threads"),
    [(1, 128), (3, 128), (10, 128), (64, 128), (130, 128), (1000, 128), (1100, 64), (4100, 256)],
)
def test_rows_in_registers(length: int, threads: int) -> None:
    assert check(softmax, [tensor(5, length)]) == [threads]


def test_long_rows_and_rows_of_unknown_length() -> None:
    assert check(spread, [tensor(2, 20004)]) == [256]
    assert check(softmax, [tensor(2, T)], T=1030) == [128]


# Results over what they are made from, where several threads share an element.


def updated(axis: int) -> Program:
    """Numbers that are replaced by themselves and a sum, as weights are in training."""

    def program(emit: Builder, x: Value, y: Value) -> Sequence[Value]:
        before = emit(array.CumulativeSum(x, 0))  # it has memory of its own
        after = emit(array.Add(before, emit(array.ReduceSum(y, (axis,)))))
        return (emit(array.CumulativeSum(after, 0)),)

    return program


SHARED_ELEMENTS = [
    pytest.param(long_row_reduce, 0, (70, 3), id="long-rows"),
    pytest.param(row_reduce, 1, (3, 64), id="rows-in-registers"),
]


@pytest.mark.parametrize(("form", "axis", "shape"), SHARED_ELEMENTS)
def test_what_is_replaced_is_read_by_the_thread_that_writes_it(
    form: ModuleType, axis: int, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    types = [tensor(3), tensor(*shape)]
    check(updated(axis), types)

    def at_once(op: kernel.Generic) -> tuple[list[Op], list[Op]]:
        return [inner for inner in op.body if not inner.terminator], []

    monkeypatch.setattr(form, "before_results", at_once)
    check(updated(axis), types)  # all read it, and a barrier comes before it is written

    def never(op: kernel.Generic, ops: Sequence[Op]) -> bool:
        return False

    monkeypatch.setattr(form, "read_where_it_writes", never)
    with pytest.raises(Race):
        check(updated(axis), types)


# Pieces.


def test_pieces_one_behind_the_other() -> None:
    def joined(emit: Builder, *parts: Value) -> Sequence[Value]:
        return (emit(array.Concatenate(list(parts), 1)),)

    check(joined, [tensor(70, 8), tensor(70, 4), tensor(70, 12)])
    check(joined, [tensor(70, 32, dtype=BOOL), tensor(70, 16, dtype=BOOL)])
    check(joined, [tensor(70, 5), tensor(70, 4), tensor(70, 1)])


@pytest.mark.parametrize(("start", "columns"), [(0, 8), (3, 8), (0, 16)])
def test_an_update_of_a_part(start: int, columns: int) -> None:
    def updated(emit: Builder, target: Value, part: Value, *starts: Value) -> Sequence[Value]:
        return (emit(array.DynamicUpdateSlice(target, part, list(starts))),)

    def over_itself(emit: Builder, x: Value, part: Value, *starts: Value) -> Sequence[Value]:
        target = emit(array.Sin(x))
        return (emit(array.DynamicUpdateSlice(target, part, list(starts))),)

    types = [tensor(20, 16), tensor(9, columns), *[tensor(dtype=I64)] * 2]
    numbers = random_inputs(types[:2], {})
    given = [*numbers, np.asarray(2, np.int64), np.asarray(start, np.int64)]
    for program in (updated, over_itself):
        check(program, types, given)


# Kernels in order.

SCATTERS = [
    pytest.param((100, 6), (60,), (0,), id="rows"),
    pytest.param((40, 520), (10,), (0,), id="wide-rows"),
    pytest.param((300,), (60,), (0,), id="single-elements"),
    pytest.param((9, 5, 7), (40,), (0, 2), id="two-axes"),
    pytest.param((100, 6), (1100,), (0,), id="several-rounds", marks=pytest.mark.long),
]


@pytest.mark.parametrize("mode", ["set", "add"])
@pytest.mark.parametrize(("shape", "count", "axes"), every(2, SCATTERS))
def test_updates_of_one_place_come_one_after_the_other(
    shape: tuple[int, ...], count: tuple[int], axes: tuple[int, ...], mode: str
) -> None:
    def scattered(emit: Builder, target: Value, new: Value, *where: Value) -> Sequence[Value]:
        return (emit(array.Scatter(target, new, list(where), axes, mode)),)

    rest = [size for axis, size in enumerate(shape) if axis not in axes]
    types = [tensor(*shape), tensor(*count, *rest), *[tensor(*count, dtype=I32)] * len(axes)]
    random = np.random.default_rng(1)
    # Few places, so that most are met several times.
    found = [random.integers(0, shape[axis], count) // 4 * 4 for axis in axes]
    places = [place.astype(np.int32) for place in found]
    check(scattered, types, [*random_inputs(types[:2], {}), *places])


@pytest.mark.parametrize("reverse", every(2, [False, True]))
@pytest.mark.parametrize("exclusive", [False, True])
def test_running_totals(reverse: bool, exclusive: bool) -> None:
    def totals(axis: int) -> Program:
        def program(emit: Builder, x: Value) -> Sequence[Value]:
            return (emit(array.CumulativeSum(x, axis, reverse, exclusive)),)

        return program

    assert check(totals(1), [tensor(2, 1500)]) == [256]
    assert check(totals(1), [tensor(2, 50)]) == [32]
    assert check(totals(0), [tensor(40, 3)]) == [32]
    assert check(totals(0), [tensor(3, 8200)]) == [256]


def with_equals(length: int) -> Array:
    """Numbers of which many are equal, and some are not numbers."""
    random = np.random.default_rng(2)
    values = random.integers(0, 20, (2, length)).astype(np.float32)
    values[:, ::11] = np.nan
    return values


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    ("length", "known"), every(2, [(37, True), (1, True), (150, True), (40, False)])
)
def test_sorted_rows(length: int, known: bool, descending: bool) -> None:
    def sorted_with_places(emit: Builder, keys: Value, values: Value) -> Sequence[Value]:
        return emit.all(array.Sort(keys, [values], 1, descending))

    size = length if known else T
    types = [tensor(2, size), tensor(2, size, dtype=I32)]
    places = np.arange(2 * length, dtype=np.int32).reshape(2, length)
    given = [with_equals(length), places]
    check(sorted_with_places, types, given, **({} if known else {"T": length}))


def test_places_of_what_is_true() -> None:
    def found(emit: Builder, x: Value) -> Sequence[Value]:
        return emit.all(array.NonZero(x, "N", 5000))[:1]

    truth = np.random.default_rng(3).random((50, 100)) < 0.3
    check(found, [tensor(50, 100, dtype=BOOL)], [truth])


# Windows.


@pytest.mark.parametrize(
    ("channels", "window", "stride", "padding", "dilation"),
    [(8, 3, 1, 1, 1), (6, 3, 2, 0, 1), (4, 7, 2, 3, 1), (3, 3, 1, 2, 2)],
)
def test_convolution_channel_by_channel(
    channels: int, window: int, stride: int, padding: int, dilation: int
) -> None:
    def program(emit: Builder, x: Value, weights: Value, bias: Value) -> Sequence[Value]:
        made = convolution(
            emit,
            x,
            weights,
            strides=(stride, stride),
            padding=((padding, padding),) * 2,
            dilations=(dilation, dilation),
            groups=channels,
            dims="nhwc",
        )
        shape = made.type.shape if isinstance(made.type, TensorType) else ()
        return (emit(array.Add(made, emit(array.Broadcast(bias, shape, (3,))))),)

    types = [tensor(2, 9, 8, channels), tensor(window, window, 1, channels), tensor(channels)]
    check(program, types)
