"""Our own products: every height and width of the tiles, epilogues in registers and in memory."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import dlc
from dlc.dialects import array, mem
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.kernel.products import panel_count
from dlc.driver.compile.settings import Settings
from dlc.driver.report.show import Shown, show_stage
from dlc.driver.run.request import CompileRequest
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Size, symbol
from dlc.ir.passes import Options
from dlc.ir.types import F32, F64, I32, DType, TensorType
from dlc.lowering.cpu.micro_kernel import Shape, shape_for, streamed
from dlc.lowering.cpu.product.cache_blocking import depth_block, shared_rows, tile_panels, tile_rows
from dlc.target import Target
from dlc.target.cpu import CpuTarget
from dlc.target.register_blocking import panel_columns
from tests.lowering.everywhere import (
    Program,
    assert_close,
    called,
    check,
    model_of,
    random_inputs,
)
from tests.planning.test_buffer_assignment import planned
from tests.suites import each_value, every, together
from tests.targets import AVX2, AVX512

PADDINGS = [pytest.param((0, 0)), pytest.param((1, 1)), pytest.param((2, 0))]
"""Before and behind each axis of a picture."""


def f32(*shape: Size) -> TensorType:
    return TensorType(F32, shape)


def layer(emit: Builder, x: Value, w: Value, b: Value, residual: Value) -> Sequence[Value]:
    """A product with a bias, something added, and what is negative cut off."""
    y = emit(array.MatMul(x, w))
    y = emit(array.Add(y, emit(array.Broadcast(b, tensor_type(y).shape, (1,)))))
    y = emit(array.Add(y, residual))
    return (emit(array.Maximum(y, array.constant_like(emit, 0, y))),)


@pytest.mark.parametrize(("m", "n"), every(4, itertools.product([1, 2, 3, 4, 7, 49], [1, 17, 71])))
def test_a_layer_of_any_height_and_width(m: int, n: int) -> None:
    check(layer, f32(m, 37), f32(37, n), f32(n), f32(m, n), matmul="generated")


@pytest.mark.parametrize(
    ("n", "target"), every(3, itertools.product([8, 16, 24, 32, 64, 128], [AVX2, AVX512]))
)
def test_a_layer_of_panels_of_any_width(n: int, target: Target) -> None:
    types = f32(9, 37), f32(37, n), f32(n), f32(9, n)
    check(layer, *types, matmul="generated", target=target)


@pytest.mark.parametrize("dtype", [F64, I32])
def test_a_layer_of_other_numbers(dtype: DType) -> None:
    types = [TensorType(dtype, shape) for shape in ((13, 9), (9, 35), (35,), (13, 35))]
    check(layer, *types, matmul="generated")


def test_an_epilogue_that_is_too_long_for_registers() -> None:
    def deep(emit: Builder, x: Value, w: Value) -> Sequence[Value]:
        y = emit(array.MatMul(x, w))
        for _ in range(20):
            y = emit(array.Add(emit(array.Multiply(y, y)), array.constant_like(emit, -0.5, y)))
            y = emit(array.Minimum(y, array.constant_like(emit, 1, y)))
        return (y,)

    check(deep, f32(20, 5), f32(5, 40), matmul="generated", rtol=1e-3)


def test_an_epilogue_with_wider_numbers_than_the_sums() -> None:
    def wider(emit: Builder, x: Value, w: Value) -> Sequence[Value]:
        y = emit(array.Cast(emit(array.MatMul(x, w)), F64))
        y = emit(array.Multiply(y, array.constant_like(emit, 1.0 / 3, y)))
        return (emit(array.Cast(y, F32)),)

    check(wider, f32(20, 5), f32(5, 40), matmul="generated")


def turned(emit: Builder, x: Value, y: Value) -> Sequence[Value]:
    """Products of operands that are stored as they are, or transposed, or both."""
    xt, yt = (emit(array.Transpose(value, (0, 2, 1))) for value in (x, y))
    return emit(array.MatMul(x, yt)), emit(array.MatMul(xt, y)), emit(array.MatMul(xt, yt))


@pytest.mark.parametrize(
    ("size", "dtype"), every(3, itertools.product([1, 2, 5, 13, 16, 49], [F32, F64]))
)
def test_operands_of_products_may_be_stored_transposed(size: int, dtype: DType) -> None:
    square = TensorType(dtype, (2, size, size))
    check(turned, square, square, matmul="generated")


def test_products_of_transposed_operands_are_of_any_size() -> None:
    n, m = symbol("N"), symbol("M")

    def program(emit: Builder, x: Value, y: Value) -> Sequence[Value]:
        xt = emit(array.Transpose(x, (1, 0)))
        yt = emit(array.Transpose(y, (1, 0)))
        return emit(array.MatMul(xt, y)), emit(array.MatMul(x, yt))

    dims: dict[str, tuple[int, int | None]] = {"N": (0, None), "M": (0, None)}
    sizes = [{"N": 0, "M": 3}, {"N": 5, "M": 0}, {"N": 1, "M": 37}, {"N": 23, "M": 8}]
    check(program, f32(n, m), f32(n, m), dims=dims, at=sizes)


@pytest.mark.parametrize("depth", [511, 513, 1030])
def test_long_sums_of_transposed_operands_are_made_block_by_block(depth: int) -> None:
    def program(emit: Builder, x: Value, y: Value) -> Sequence[Value]:
        return (emit(array.MatMul(emit(array.Transpose(x, (1, 0))), y)),)

    check(program, f32(depth, 7), f32(depth, 21), rtol=1e-4)


@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 71, 37), (4, 16, 8), (7, 17, 1), (9, 71, 37), (49, 33, 5), (13, 40, 1030)]
)
def test_a_product_with_a_weight_reads_the_panels_that_were_made_when_it_was_loaded(
    m: int, n: int, k: int
) -> None:
    text = f"""dlc 1
module Layer {{
  param w: f32[{k}, {n}] = zeros()
  export fn f(x: f32[{m}, {k}]) -> f32[{m}, {n}] = x @ w
}}
"""
    numbers = np.random.default_rng(0)
    w = numbers.standard_normal((k, n), np.float32)
    x = numbers.standard_normal((m, k), np.float32)
    with dlc.compile(text=text, weights={"w": w}, matmul="generated") as model:
        product = np.asarray(model.f(x))
    np.testing.assert_allclose(product, x.astype(np.float64) @ w, rtol=1e-4, atol=1e-4)


LONG = """dlc 1
dim B = 1..64
module Layer {
  param w: f32[DEPTH, 40] = zeros()
  export fn f(x: f32[ROWS, DEPTH]) -> f32[ROWS, 40] = relu(x @ w + 1)
}
"""


@pytest.mark.parametrize(("rows", "depth"), each_value(["5", "37", "B"], [1912, 1913, 2736, 4104]))
def test_long_panels_are_met_in_blocks_of_k(rows: str, depth: int) -> None:
    """Whole numbers, whose sums are exact. 1913 has no equal blocks, 4104 more products than a sum."""
    numbers = np.random.default_rng(0)
    w = numbers.integers(-9, 9, (depth, 40)).astype(np.float32)
    text = LONG.replace("DEPTH", f"{depth}").replace("ROWS", rows)
    with dlc.compile(text=text, weights={"w": w}, matmul="generated") as model:
        for m in [1, 2, 5, 37, 64] if rows == "B" else [int(rows)]:
            x = numbers.integers(-9, 9, (m, depth)).astype(np.float32)
            assert np.array_equal(np.asarray(model.f(x)), np.maximum(x @ w + 1, 0))


def test_blocks_of_k_leave_room_for_the_next_panel() -> None:
    avx2 = replace(CpuTarget.named("x86-64-v3"), l2_bytes=512 << 10)
    avx512 = replace(CpuTarget.named("x86-64-v4"), l2_bytes=1 << 20)
    panel = 24 * 4
    assert depth_block(768, panel, 8, avx2) is None
    assert depth_block(1536, panel, 8, avx2) == depth_block(3072, panel, 8, avx2) == 768
    assert depth_block(3072, 48 * 4, 2, avx512) == 768
    assert depth_block(1917, panel, 8, avx2) is None
    assert depth_block(8192, panel, 8, avx2) is None
    assert depth_block(symbol("K"), panel, 8, avx2) is None


@pytest.mark.parametrize(("rows", "is_prefetched"), [("4", False), ("37", True), ("B", True)])
def test_rows_prefetch_the_panel_after_theirs(rows: str, is_prefetched: bool) -> None:
    """Where several micro-tiles meet a panel."""
    text = LONG.replace("DEPTH", "64").replace("ROWS", rows)
    loops = show_stage(CompileRequest("layer.dlm", text=text), Shown("loop"))
    assert ("loop.prefetch" in loops) == is_prefetched


def test_products_put_their_operands_in_order_by_themselves() -> None:
    """No transposed matrix and no panels are ever in the arena."""

    def program(emit: Builder, x: Value, y: Value) -> Sequence[Value]:
        return (emit(array.MatMul(emit(array.Transpose(x, (1, 0))), y)),)

    plan = planned(program, f32(56, 30), f32(56, 40))
    assert all(op.kind != "arena" for op in plan.walk() if isinstance(op, mem.Root))


def test_many_products_at_once() -> None:
    def batched(emit: Builder, x: Value, w: Value) -> Sequence[Value]:
        return (emit(array.MatMul(x, w)),)

    check(batched, f32(3, 2, 7, 11), f32(3, 2, 11, 19), matmul="generated")


@pytest.mark.parametrize(
    ("channels", "padding", "stride", "dilation"),
    each_value([3, 16], [0, 1], [(1, 1), (2, 1), (1, 2)]),
)
def test_a_convolution(channels: int, padding: int, stride: int, dilation: int) -> None:
    def network(emit: Builder, x: Value, w: Value, b: Value) -> Sequence[Value]:
        pads = ((padding, padding), (padding, padding))
        dilations, strides = (dilation, dilation), (stride, stride)
        y = emit(array.Convolution(x, w, strides, pads, dilations, (1, 1), 1, "nhwc"))
        y = emit(array.Add(y, emit(array.Broadcast(b, tensor_type(y).shape, (3,)))))
        return (emit(array.Maximum(y, array.constant_like(emit, 0, y))),)

    picture, kernel = f32(2, 9, 8, channels), f32(3, 3, channels, 20)
    check(network, picture, kernel, f32(20), matmul="generated")


@pytest.mark.parametrize(
    ("channels", "padding", "stride", "dilation"),
    every(7, itertools.product([2, 29], PADDINGS, [(1, 1), (2, 1), (3, 2)])),
)
def test_a_window_for_each_channel(
    channels: int, padding: tuple[int, int], stride: int, dilation: int
) -> None:
    check(
        _grouped(channels, padding, stride, dilation),
        f32(2, 9, 11, channels),
        f32(3, 3, 1, channels),
        f32(channels),
    )


def test_a_window_for_each_channel_that_is_larger_than_the_picture() -> None:
    check(_grouped(4, (3, 3), 1, 1), f32(1, 2, 3, 4), f32(5, 5, 1, 4), f32(4))


@pytest.mark.parametrize(
    ("groups", "inputs", "outputs", "padding", "taps"),
    every(
        3,
        itertools.product(
            [(2, 8, 24), (4, 3, 20), (3, 17, 5)],
            [(PADDINGS[1], 3), (PADDINGS[0], 1)],
        ),
    ),
)
def test_a_convolution_in_groups(
    groups: int, inputs: int, outputs: int, padding: tuple[int, int], taps: int
) -> None:
    check(
        _grouped(groups, padding, 1, 1),
        f32(2, 7, 8, groups * inputs),
        f32(taps, taps, inputs, groups * outputs),
        f32(groups * outputs),
    )


@pytest.mark.parametrize(
    ("outputs", "target"),
    every(3, itertools.product([1, 2, 7, 8, 9, 15, 20, 31, 34], [AVX2, AVX512])),
)
def test_a_pointwise_convolution_in_groups_of_any_number_of_columns(
    outputs: int, target: Target
) -> None:
    types = f32(2, 5, 7, 2 * 6), f32(1, 1, 6, 2 * outputs), f32(2 * outputs)
    check(_grouped(2, (0, 0), 1, 1), *types, target=target)


def test_a_pointwise_convolution_in_groups_of_a_part_of_a_picture() -> None:
    def network(emit: Builder, x: Value, w: Value, b: Value) -> Sequence[Value]:
        part = emit(array.Slice(x, (0, 1, 2, 0), (2, 5, 7, 12), (1, 1, 1, 1)))
        return _grouped(2, (0, 0), 1, 1)(emit, part, w, b)

    check(network, f32(2, 6, 9, 12), f32(1, 1, 6, 40), f32(40))


def _grouped(groups: int, padding: tuple[int, int], stride: int, dilation: int) -> Program:
    """A convolution in groups with a bias, and what is negative cut off."""

    def network(emit: Builder, x: Value, w: Value, b: Value) -> Sequence[Value]:
        strides, dilations = (stride, stride), (dilation, dilation)
        y = emit(
            array.Convolution(x, w, strides, (padding, padding), dilations, (1, 1), groups, "nhwc")
        )
        y = emit(array.Add(y, emit(array.Broadcast(b, tensor_type(y).shape, (3,)))))
        return (emit(array.Maximum(y, array.constant_like(emit, 0, y))),)

    return network


def test_the_bits_do_not_depend_on_the_number_of_threads() -> None:
    types = [f32(300, 200), f32(200, 333), f32(333), f32(300, 333)]
    inputs = random_inputs(types, {})
    one = model_of(layer, types, Options(matmul="generated"))
    two = model_of(layer, types, Options(matmul="generated"), threads=2)
    np.testing.assert_array_equal(called(one, inputs)[0], called(two, inputs)[0], strict=True)


def product(emit: Builder, x: Value, w: Value) -> Sequence[Value]:
    return (emit(array.MatMul(x, w)),)


@pytest.mark.parametrize("options", [Options(matmul="generated"), Options()], ids=str)
@pytest.mark.parametrize(("m", "n"), [(1, 1), (2, 3)])
def test_a_sum_of_very_many_products_keeps_its_digits(m: int, n: int, options: Options) -> None:
    depth = 400_003
    numbers = np.random.default_rng(0)
    x, y = (numbers.random(shape, np.float32) for shape in ((m, depth), (depth, n)))
    model = model_of(product, [f32(m, depth), f32(depth, n)], options)
    (found,) = called(model, [x, y])
    exact = x.astype(np.float64) @ y.astype(np.float64)
    assert_close([found], [exact.astype(np.float32)], 2e-6, "summed")


@pytest.mark.parametrize("depth", [4096, 4097, 8200])
def test_the_depth_of_a_product_may_be_any_number_of_stretches(depth: int) -> None:
    check(product, f32(3, depth), f32(depth, 5), matmul="generated", rtol=1e-3)


def test_a_row_times_a_column_takes_no_more_memory_than_its_products() -> None:
    depth = 100_000
    model = model_of(product, [f32(1, depth), f32(depth, 1)], Options())
    (entry,) = model.entry_points.values()
    assert entry.memory_at_bounds()[-1] < 2 * 4 * depth


@together(
    ("m", "n", "target"),
    itertools.product(
        [1, 2, 3, 4, 5, 6, 8, 9, 49, 196], [1, 8, 16, 24, 32, 48, 64, 100, 1000], [AVX2, AVX512]
    ),
)
def test_sums_a_panel_row_and_one_element_fit_into_the_registers(
    m: int, n: int, target: Target
) -> None:
    panel = panel_columns(F32, m, n, 64, target.cpu)
    shape = shape_for(F32, m, panel, panel_count(n, panel), target.cpu)
    assert shape.rows * shape.across + shape.registers + 1 <= target.cpu.vector_registers
    assert shape.rows <= max(m, 1)
    assert shape.panel == panel
    assert shape.panels <= -(-n // panel)


@pytest.mark.parametrize(
    ("n", "avx2", "avx512"),
    [
        (8, 8, 16),
        (16, 16, 16),
        (24, 24, 32),
        (32, 16, 32),
        (48, 16, 48),
        (64, 16, 64),
        (96, 16, 48),
        (128, 16, 64),
        (1000, 16, 48),
        (symbol("N"), 16, 48),
    ],
)
def test_panels_are_full_where_they_can_be(n: Size, avx2: int, avx512: int) -> None:
    assert panel_columns(F32, 784, n, 64, AVX2.cpu) == avx2
    assert panel_columns(F32, 784, n, 64, AVX512.cpu) == avx512


def test_a_panel_stays_in_the_second_level_cache() -> None:
    assert panel_columns(F32, 784, 512, 9 * 256, AVX512.cpu) == 64
    assert panel_columns(F32, 784, 512, 9 * 512, AVX512.cpu) == 48


def test_a_few_rows_more_do_not_cost_a_whole_tile() -> None:
    assert _shape(49).rows == 5
    assert _shape(784).rows == 6


def _shape(m: int) -> Shape:
    """The tile of a product with many panels of 16 columns."""
    return shape_for(F32, m, 16, 64, AVX2.cpu)


@pytest.mark.parametrize(
    ("m", "depth", "panels"), [(1, 784, 2), (1, 512, 2), (1, 64, 4), (4, 8192, 1), (2, 784, 1)]
)
def test_few_rows_take_fewer_panels_where_these_are_long(m: int, depth: int, panels: int) -> None:
    cpu = AVX512.cpu
    shape = shape_for(F32, m, 64, 8, cpu)
    assert streamed(shape, depth * 64 * 4, cpu.products).panels == panels


def test_tiles_are_about_equal() -> None:
    blocking = AVX2.cpu.products
    assert tile_rows(196, 1024, 6, blocking) == 66
    assert tile_rows(5, 1024, 6, blocking) == 6
    shape = _shape(196)
    assert tile_panels(64, 66 * 256, 3, shape, blocking) == 5
    assert tile_panels(63, 25088, 1, _shape(1), blocking) == 4


def test_a_product_of_little_work_is_cut_into_many_tiles() -> None:
    blocking = AVX2.cpu.products
    # 49 rows by 136 x 544 in four groups: three tiles of the usual work would leave a third to one thread.
    assert tile_panels(36, 54 * 136, 1, _shape(49), blocking) == 2


def test_threads_share_rows_where_each_may_read_all_panels() -> None:
    blocking = AVX2.cpu.products
    assert shared_rows(196, 272 * 68, 6, blocking) == 12
    assert shared_rows(3136, 64 * 24, 6, blocking) == 192
    assert shared_rows(5, 8, 6, blocking) % 6 == 0


@pytest.mark.parametrize(
    ("depth", "target", "steps"),
    [(384, "x86-64-v3", 8), (388, "x86-64-v3", 2), (384, "x86-64-v4", 2)],
)
def test_long_products_take_several_steps_of_k_at_once(depth: int, target: str, steps: int) -> None:
    text = f"""dlc 1
module M {{
  param w: f32[{depth}, 48] = zeros()
  export fn product(x: f32[16, {depth}]) -> f32[16, 48] = x @ w
}}
"""
    request = CompileRequest("m.dlm", text=text, settings=Settings(target=f"cpu:{target}"))
    code = show_stage(request, Shown("asm"))
    inside = max(run.count("vfmadd") for run in re.split(r"^\.L", code, flags=re.MULTILINE))
    shape = shape_for(F32, 16, 48 if target == "x86-64-v4" else 24, 2, CpuTarget.named(target))
    assert inside == steps * shape.rows * shape.across


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_product_whose_rows_the_call_counts_has_code_for_a_single_row(dtype: str) -> None:
    text = f"""dlc 1
dim M = 1..64
module Net {{
  param w: {dtype}[384, 480] = zeros()
  export fn product(x: f32[M, 384]) -> f32[M, 480] = x @ f32(w)
}}
"""
    request = CompileRequest("m.dlm", text=text, settings=Settings(target="cpu:x86-64-v3"))
    code = show_stage(request, Shown("asm"))
    runs = re.split(r"^\.L", code, flags=re.MULTILINE)
    several = shape_for(F32, symbol("M"), 16, 30, AVX2.cpu)
    single = shape_for(F32, 1, 16, 30, AVX2.cpu)
    assert (single.rows, single.panels) == (1, 4)
    for shape in several, single:
        sums = shape.rows * shape.across
        (run,) = [run for run in runs if run.count("vfmadd") == 8 * sums]
        widened = 8 * shape.across if dtype == "bf16" else 0
        assert run.count("vpmovzxwd") == widened
