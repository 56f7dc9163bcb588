"""Products for a GPU: by matrix instructions and by `fma`, in tiles of every size, warp by warp."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from dlc.dialects import array, mem, simt
from dlc.dialects.array.convolution import convolution
from dlc.driver.compile.pipelines import Device, pipeline
from dlc.evaluation.gpu.shadow_memory import Race
from dlc.evaluation.gpu.warp_memory import PendingCopyAccess
from dlc.evaluation.plan import evaluate_plan
from dlc.ir.clone import clone_block
from dlc.ir.core import Builder, Evaluation, Op, Value
from dlc.ir.dims import symbol
from dlc.ir.passes import Context, Manager, Options
from dlc.ir.types import BF16, F16, F32, F64, DType, TensorType
from dlc.target.gpu import Occupancy
from tests.lowering.everywhere import Program, assert_close, function_of, random_inputs
from tests.lowering.gpu.on_gpu import ROUNDING, TF32, Compiled, compiled, evaluate
from tests.suites import each_value, every
from tests.targets import ON_GPU, occupy

WIDE = Occupancy(wide_tiles=0)
"""Products of any size are computed in wide tiles."""


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of any size are computed in wide tiles."""
    occupy(monkeypatch, WIDE)


def product(emit: Builder, x: Value, y: Value) -> Sequence[Value]:
    return (emit(array.MatMul(x, y)),)


def shared_kib(ops: Iterable[Op]) -> list[int]:
    """The KiB of shared memory of each block, which tell tilings apart."""
    return [op.elements * op.dtype.bytes // 1024 for op in ops if isinstance(op, simt.Shared)]


def of_transposed(emit: Builder, x: Value, y: Value) -> Sequence[Value]:
    last = range(len(array.tensor_type(x).shape) - 2)
    axes = (*last, len(last) + 1, len(last))
    return (emit(array.MatMul(emit(array.Transpose(x, axes)), emit(array.Transpose(y, axes)))),)


# Products of matrices. Rows of 8 numbers of 16 bits, or of 4 of f32, are copied 16 bytes at a time.

SHAPES = [
    pytest.param((5, 5), (5, 6), id="less-than-a-matrix"),
    pytest.param((24, 200), (200, 16), id="more-strips-than-stages"),
    pytest.param((70, 24), (24, 72), id="several-tiles"),
    pytest.param((70, 160), (160, 40), id="whole-strips"),
    pytest.param((2, 9, 8), (2, 8, 16), id="several-products"),
]


@pytest.mark.parametrize(("lhs", "rhs", "dtype"), each_value(SHAPES, [F16, BF16]))
def test_numbers_of_16_bits_are_multiplied_by_matrix_instructions(
    dtype: DType, lhs: tuple[int, ...], rhs: tuple[int, ...]
) -> None:
    made = compiled(product, dtype, lhs, rhs)
    assert len(made.all(mem.Call)) == 1
    assert made.all(simt.Mma)
    assert made.error() <= ROUNDING[dtype]


@pytest.mark.parametrize("dtype", every(2, [F16, BF16]), ids=str)
@pytest.mark.parametrize(
    ("lhs", "rhs"), [((40, 24), (72, 40)), ((7, 6), (5, 7))], ids=["in-units", "one-by-one"]
)
def test_transposed_matrices_are_read_as_they_are_stored(
    dtype: DType, lhs: tuple[int, ...], rhs: tuple[int, ...]
) -> None:
    made = compiled(of_transposed, dtype, lhs, rhs)
    assert len(made.all(mem.Call)) == 1
    loads = [op for op in made.all(simt.LoadMatrix) if isinstance(op, simt.LoadMatrix)]
    assert {load.transposed for load in loads} == {False, True}
    assert made.error() <= ROUNDING[dtype]


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("program", every(2, [product, of_transposed]))
def test_wide_tiles_give_the_same(program: Program) -> None:
    lhs, rhs = ((20, 136), (136, 40)) if program is product else ((136, 24), (40, 136))
    made = compiled(program, F16, lhs, rhs)
    assert shared_kib(made.all(simt.Shared)) == [48]
    assert made.error() <= ROUNDING[F16]


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize(("dtype", "products"), [(BF16, "ieee"), (F32, "tf32")], ids=str)
@pytest.mark.parametrize("program", every(2, [product, of_transposed]))
def test_deep_k_tiles_give_the_same(program: Program, dtype: DType, products: str) -> None:
    """More of them than stages, and some rows and columns beyond the edges."""
    depth = 4 * 128 // dtype.bytes
    lhs, rhs = ((20, depth), (depth, 40)) if program is product else ((depth, 24), (40, depth))
    made = compiled(program, dtype, lhs, rhs, products=products, architecture="sm_90a")
    assert shared_kib(made.all(simt.Shared)) == [96]
    assert made.error() <= (TF32 if products == "tf32" else ROUNDING[dtype])


@pytest.mark.usefixtures("wide")
def test_k_that_does_not_consist_of_deep_k_tiles_has_others() -> None:
    made = compiled(product, F16, (20, 96), (96, 16), architecture="sm_90a")
    assert shared_kib(made.all(simt.Shared)) == [48]
    assert made.error() <= ROUNDING[F16]


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("kind", [simt.Wait, simt.Barrier])
def test_deep_k_tiles_are_waited_for(kind: type[Op]) -> None:
    made = compiled(product, F16, (20, 256), (256, 24), architecture="sm_90a")
    made.all(kind)[0].erase()
    with pytest.raises((Race, PendingCopyAccess), match="shared memory"):
        made.error()


def test_below_level_2_they_are_added_in_order() -> None:
    made = compiled(product, F16, (9, 8), (8, 16), level=1)
    assert not made.all(simt.Mma)
    assert made.error() <= ROUNDING[F16]


@pytest.mark.parametrize(("rows", "kib"), [((1, 64), 32), ((1, 4096), 48), ((1, None), 48)])
def test_tiles_are_as_wide_as_the_largest_call_keeps_busy(
    rows: tuple[int, int | None], kib: int
) -> None:
    """A product of a few rows has more tiles where they are small."""
    many = symbol("B")
    types = [TensorType(F16, shape) for shape in ((many, 512), (512, 512))]
    module, _ = function_of(product, types, {"B": rows})
    manager = Manager(Context(options=Options(target=ON_GPU)))
    manager.run(module, pipeline("graph", "loop", 2, Device.CUDA))
    assert shared_kib(module.walk()) == [kib]


# Few rows, or few columns.

VECTORS = [
    pytest.param(product, F32, (1, 40), (40, 24), 4, id="along-the-rows"),
    pytest.param(of_transposed, F32, (40, 1), (24, 40), 4, id="along-k"),
    pytest.param(product, F32, (3, 37), (37, 9), 1, id="one-by-one"),
    pytest.param(of_transposed, F32, (70, 2), (5, 70), 1, id="one-by-one-along-k"),
    pytest.param(of_transposed, F32, (1100, 2), (3, 1100), 4, id="a-block-to-each-result"),
    pytest.param(of_transposed, F32, (12, 1), (40, 12), 4, id="some-threads-to-each-result"),
    pytest.param(product, F32, (24, 40), (40, 2), 4, id="few-columns"),
    pytest.param(product, BF16, (1, 40), (40, 24), 8, id="bf16"),
    pytest.param(of_transposed, F16, (64, 4), (16, 64), 8, id="f16"),
    pytest.param(product, F64, (2, 1, 24), (2, 24, 16), 2, id="several-of-f64"),
]


@pytest.mark.parametrize(("program", "dtype", "lhs", "rhs", "together"), VECTORS)
def test_a_few_rows_are_multiplied_with_what_is_read_once(
    program: Program, dtype: DType, lhs: tuple[int, ...], rhs: tuple[int, ...], together: int
) -> None:
    made = compiled(program, dtype, lhs, rhs)
    assert [op.threads for op in made.all(simt.Func) if isinstance(op, simt.Func)] == [256]
    assert not made.all(simt.Copy)
    counts = {op.count for op in made.all(simt.Load) if isinstance(op, simt.Load)}
    assert counts == ({together} if together > 1 else set())
    assert made.error() <= ROUNDING.get(dtype, 1e-14)


def test_fewer_rows_than_there_may_be() -> None:
    few = symbol("B")
    types = [TensorType(F32, shape) for shape in ((few, 12), (12, 8))]
    module, function = function_of(product, types, {"B": (0, 3)})
    manager = Manager(Context(options=Options(target=ON_GPU)))
    body = clone_block(function.body)
    manager.run(module, pipeline("graph", "loop", 2, Device.CUDA))
    found = module.symbol("f")
    assert isinstance(found, mem.Program)
    for rows in (2, 0):
        inputs = random_inputs(types, {"B": rows})
        wanted = Evaluation({"B": rows}).run(body, inputs)
        assert_close(evaluate_plan(found, inputs, {"B": rows}), wanted, 1e-5, "warps")


@pytest.mark.parametrize(
    ("program", "lhs"), [(product, (1, 512)), (of_transposed, (512, 1))], ids=["rows", "k"]
)
def test_the_results_of_a_few_rows_are_spread_over_the_cores(
    program: Program, lhs: tuple[int, int]
) -> None:
    made = compiled(program, F32, lhs, (512, 512))
    (call,) = [op for op in made.all(mem.Call) if isinstance(op, mem.Call)]
    assert isinstance(call.tiles, int)
    assert 32 <= call.tiles <= 256


# f32.


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize(
    ("aligned", "program"), every(4, itertools.product([True, False], [product, of_transposed]))
)
def test_wide_products_of_f32_are_exact(program: Program, aligned: bool) -> None:
    rows, depth, columns = (20, 36, 20) if aligned else (21, 35, 19)
    lhs, rhs = (rows, depth), (depth, columns)
    if program is of_transposed:
        lhs, rhs = lhs[::-1], rhs[::-1]
    made = compiled(program, F32, lhs, rhs)
    assert not made.all(simt.Mma)
    copies = [op for op in made.all(simt.Copy) if isinstance(op, simt.Copy)]
    assert {copy.count for copy in copies} == {4 if aligned else 1}
    assert made.error() <= ROUNDING[F32]


def test_sums_of_f32_are_added_in_order_of_k_in_tiles_of_any_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = evaluate(compiled(product, F32, (5, 22), (22, 6)))
    occupy(monkeypatch, WIDE)
    assert np.array_equal(evaluate(compiled(product, F32, (5, 22), (22, 6))), small)


@pytest.mark.parametrize("program", every(2, [product, of_transposed]))
def test_f32_is_rounded_to_tf32_where_that_is_asked_for(program: Program) -> None:
    lhs, rhs = ((20, 40), (40, 24)) if program is product else ((40, 20), (24, 40))
    exact, rounded = (compiled(program, F32, lhs, rhs, products=p) for p in ("ieee", "tf32"))
    assert made_of_matrices(rounded)
    assert not made_of_matrices(exact)
    assert exact.error() <= ROUNDING[F32] < rounded.error() <= TF32


def made_of_matrices(made: Compiled) -> bool:
    return bool(made.all(simt.Mma))


# What follows a product.


def perceptron(emit: Builder, x: Value, y: Value, shift: Value) -> Sequence[Value]:
    sums = emit(array.MatMul(x, y))
    type = array.tensor_type(sums)
    shifted = emit(array.Add(sums, emit(array.Broadcast(shift, type.shape, (1,)))))
    return (emit(array.Tanh(shifted)),)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_what_follows_a_product_is_applied_to_its_sums(dtype: DType) -> None:
    made = compiled(perceptron, dtype, (9, 16), (16, 24), (24,))
    assert len(made.all(mem.Call)) == 1
    assert made.error() <= 3 * ROUNDING[dtype]


def two_layers(emit: Builder, x: Value, y: Value, z: Value) -> Sequence[Value]:
    return (emit(array.MatMul(emit(array.Tanh(emit(array.MatMul(x, y)))), z)),)


def test_between_two_products_are_numbers_of_16_bits() -> None:
    made = compiled(two_layers, F16, (9, 16), (16, 24), (24, 8))
    assert len(made.all(mem.Call)) == 2
    assert made.error() <= 4 * ROUNDING[F16]


# Convolutions.


def convolved(**how: object) -> Program:
    def program(emit: Builder, picture: Value, weights: Value) -> Sequence[Value]:
        return (convolution(emit, picture, weights, dims="nhwc", **how),)  # pyright: ignore[reportArgumentType]

    return program


CONVOLUTIONS = [
    pytest.param(
        convolved(padding=((1, 1), (1, 1))), (1, 5, 4, 32), (3, 2, 32, 24), id="tap-by-tap"
    ),
    pytest.param(
        convolved(strides=(2, 1), padding=((0, 1), (2, 0))),
        (2, 5, 4, 3),
        (3, 2, 3, 5),
        id="few-channels",
    ),
    pytest.param(
        convolved(strides=(2, 1), padding=((2, 1), (1, 2)), dilations=(2, 1)),
        (2, 6, 3, 56),
        (3, 3, 56, 16),
        id="several-strips-of-a-tap",
    ),
    pytest.param(convolved(strides=(2, 2)), (1, 5, 4, 64), (1, 1, 64, 8), id="one-tap"),
    pytest.param(convolved(groups=2, dilations=(1, 2)), (1, 4, 6, 32), (2, 2, 16, 16), id="groups"),
]


@pytest.mark.parametrize(
    ("program", "picture", "weights", "dtype", "products"),
    each_value(CONVOLUTIONS, [(BF16, "ieee"), (F32, "tf32")]),
)
def test_a_convolution_is_a_product(
    program: Program,
    picture: tuple[int, ...],
    weights: tuple[int, ...],
    dtype: DType,
    products: str,
) -> None:
    made = compiled(program, dtype, picture, weights, products=products)
    assert made_of_matrices(made)
    assert made.error() <= (TF32 if products == "tf32" else ROUNDING[dtype])


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize(("picture", "weights"), [((1, 4, 3, 64), (3, 2, 64, 8))])
def test_deep_k_tiles_of_a_convolution_give_the_same(
    picture: tuple[int, ...], weights: tuple[int, ...]
) -> None:
    program = convolved(padding=((1, 1), (1, 0)), strides=(2, 1))
    made = compiled(program, F16, picture, weights, architecture="sm_90a")
    assert shared_kib(made.all(simt.Shared)) == [96]
    assert made.error() <= ROUNDING[F16]


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("dtype", every(2, [F16, F32]), ids=str)
def test_wide_tiles_of_a_convolution_give_the_same(dtype: DType) -> None:
    program = convolved(padding=((1, 1), (0, 0)))
    made = compiled(program, dtype, (1, 3, 4, 16), (2, 1, 16, 8))
    assert made.error() <= ROUNDING[dtype]


# Barriers and waits that are needed are missed.


def spoiled(kind: type[Op], number: int) -> Compiled:
    made = compiled(product, F16, (20, 160), (160, 24))
    made.all(kind)[number].erase()
    return made


@pytest.mark.parametrize(
    ("kind", "number", "found"),
    every(
        2,
        [
            pytest.param(simt.Wait, 0, PendingCopyAccess, id="the-wait-for-a-strip"),
            pytest.param(
                simt.Barrier, 0, (Race, PendingCopyAccess), id="the-barrier-before-a-strip"
            ),
            pytest.param(
                simt.Barrier, 1, (Race, PendingCopyAccess), id="the-barrier-before-the-sums"
            ),
            pytest.param(simt.Barrier, 2, Race, id="the-barrier-behind-the-sums"),
            pytest.param(simt.Barrier, 3, Race, id="the-barrier-between-groups-of-sums"),
        ],
    ),
)
def test_a_product_misses_what_it_waits_for(
    kind: type[Op], number: int, found: type[Exception]
) -> None:
    with pytest.raises(found, match="shared memory"):
        spoiled(kind, number).error()
