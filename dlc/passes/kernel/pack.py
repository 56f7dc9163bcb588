"""Packing (BLIS, GotoBLAS): products of a CPU go to BLAS or are generated, with right operands in panels.

Weights are packed into panels once, when they are loaded, as derived weights. Loop-invariant operands,
kernels of convolutions, and the keys and values of attention are packed by a kernel before; all other
products pack their right operand while they run (`dlc.lowering.cpu.product.inline_packing`). Panels of
small integers and of bf16 hold pairs of steps of k. The kernel of a convolution in Winograd's form is
transformed before it is packed (`dlc.passes.kernel.winograd`).
"""

from __future__ import annotations

from dlc.dialects import array, flow, kernel, weight
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.array.shape import LARGEST_I32, without_reshapes
from dlc.dialects.builtin import Module
from dlc.dialects.kernel.attention import Attention
from dlc.dialects.kernel.product_schedule import (
    Blas,
    Packed,
    PackedPairs,
    PackInline,
    PackPairsInline,
    Winograd,
)
from dlc.dialects.kernel.products import Conv, Gemm, Product, panel_count
from dlc.dialects.kernel.winograd_kernel import WinogradKernel
from dlc.ir.attributes import Symbol
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.dims import Dim, Size, product
from dlc.ir.passes import Context, Options, define_pass
from dlc.ir.rewrite import EQUAL, Rewriter
from dlc.ir.types import F32, F64, I32
from dlc.passes.graph.device_placement import kernels_on_gpu
from dlc.passes.graph.fold_weights import loop_weights, widened_by_products
from dlc.passes.kernel.fold_bf16 import in_pairs
from dlc.passes.kernel.fold_operands import erase_unused, narrow_source
from dlc.passes.kernel.materialize_padding import bordered
from dlc.passes.kernel.winograd import winograd_columns, winograd_tile
from dlc.target import cpu_of
from dlc.target.cpu import CpuTarget
from dlc.target.register_blocking import panel_columns


@define_pass("pack", required=True)
def pack(module: Op, context: Context) -> None:
    """Choose BLAS or generated code for each product, and pack right operands into panels."""
    assert isinstance(module, Module)
    options, cpu = context.options, cpu_of(context.options)
    on_gpu = set(kernels_on_gpu(module))
    # From this level on what a loop computes from weights leaves it (`distribute`).
    slices: set[Value] = loop_weights(module) if options.level >= 2 else set()
    for op in list(module.walk()):
        if op in on_gpu:
            continue
        if isinstance(op, Conv) and op.schedule is None and not op.outs:
            is_weight = _stored(op.rhs) is not None or without_reshapes(op.rhs) in slices
            _convolution(op, module, context, is_weight=is_weight)
        elif isinstance(op, Attention) and not op.panel and not op.outs:
            _attention(op, cpu)
        elif isinstance(op, Gemm) and op.schedule is None and not op.outs:
            reason = _why_blas(op, options)
            if reason:
                context.log.did(f"call BLAS: {reason}", op)
                op.attributes["schedule"] = Blas()
                continue
            context.log.did("generate the product", op)
            _read_narrow(op, context)
            columns = _columns(op, op.inner, cpu)
            is_hoisted = _is_loop_invariant(op.rhs) or without_reshapes(op.rhs) in slices
            if _stored(op.rhs) is None and not is_hoisted:
                kind = PackPairsInline if in_pairs(op) else PackInline
                op.attributes["schedule"] = kind(columns)
            else:
                _use_panels(op, _packed(op, columns), module)


def _read_narrow(op: Gemm, context: Context) -> None:
    """Read a right operand of 16-bit elements that is widened to f32 before as it is stored.

    The product widens it in registers, or while it packs it: half as much memory is read.
    """
    if kernel.array_type(op.lhs).dtype is not F32:
        return
    source = narrow_source(op.rhs)
    if source is None:
        return
    if kernel.array_type(source).dtype not in widened_by_products(context):
        erase_unused(source)
        return
    wide = op.rhs
    context.log.did("read a 16-bit operand as stored", op)
    op.set_operands([op.lhs, source, *op.operands[2:]])
    erase_unused(wide)


def _is_loop_invariant(value: Value) -> bool:
    """Whether a value is invariant in the loop around it, so that its packing can be hoisted."""
    loop = value.block.parent if value.block is not None else None
    if not isinstance(loop, flow.Scan | flow.While):
        return False
    arguments = loop.body.arguments
    invariant = set(arguments[len(arguments) - len(loop.constants) :])
    pending = [value]
    while pending:
        current = pending.pop()
        if current in invariant:
            continue
        if not isinstance(current.op, array.Reshape | array.Constant | kernel.Generic):
            return False
        pending += current.op.operands
    return True


def _convolution(op: Conv, module: Module, context: Context, *, is_weight: bool) -> None:
    if op.is_depthwise:
        context.log.did("generate the convolution, channel by channel", op)
        return
    tile = winograd_tile(op, context, is_stored=is_weight)
    if tile is not None:
        cpu = cpu_of(context.options)
        _use_panels(op, Winograd(tile, winograd_columns(op, tile, cpu)), module)
        return
    if context.options.matmul == "blas" and op.groups == 1:
        context.log.did("call BLAS: asked for", op)
        _as_im2col_product(op, context.rewriter)
        return
    context.log.did("generate the convolution", op)
    depth = product(kernel.array_type(op.rhs).shape[:-1])
    _use_panels(op, _packed(op, _columns(op, depth, cpu_of(context.options))), module)


def _packed(op: Product, columns: int) -> Packed:
    """Panels for the dtype of a product: integers, and where it pays bf16, are multiplied in pairs."""
    pairs = op.accumulator is I32 or (isinstance(op, Gemm) and in_pairs(op))
    return PackedPairs(columns) if pairs else Packed(columns)


def _as_im2col_product(op: Conv, rewriter: Rewriter) -> None:
    """Replace a convolution by a product with its im2col matrix."""
    emit = rewriter.before(op)
    rows = im2col(emit, op)
    pixels, outputs = op.domain
    depth = kernel.array_type(rows).shape[-1]
    weights = emit(array.Reshape(op.rhs, (depth, outputs)))
    (epilogue,) = op.take_regions()
    product_of_rows = Gemm(
        rows, weights, op.extras, [], epilogue, (pixels, outputs), depth, schedule=Blas()
    )
    rewriter.replace(op, emit.all(product_of_rows), relation=EQUAL)


def im2col(emit: Builder, op: Conv) -> Value:
    """The im2col matrix `[pixels, h * w * c]`: a row for the window at each pixel of the result."""
    batch, _, _, channels = kernel.array_type(op.lhs).shape
    picture = op.lhs
    if any(pair != (0, 0) for pair in op.padding):
        picture = bordered(emit, op)
    height, width = op.extents
    taps: list[Value] = []
    for h in range(op.window[0]):
        for w in range(op.window[1]):
            starts = (0, h * op.dilations[0], w * op.dilations[1], 0)
            ends = (
                batch,
                starts[1] + (height - 1) * op.strides[0] + 1,
                starts[2] + (width - 1) * op.strides[1] + 1,
                channels,
            )
            taps.append(emit(array.Slice(picture, starts, ends, (1, *op.strides, 1))))
    whole = emit(array.Concatenate(tuple(taps), 3)) if len(taps) > 1 else taps[0]
    return emit(array.Reshape(whole, (batch * height * width, len(taps) * channels)))


def _attention(op: Attention, cpu: CpuTarget) -> None:
    """Pack the keys, transposed, and the values of attention into panels."""
    emit = Builder.before_op(op)
    query = kernel.array_type(op.query)
    *_, rows, depth = query.shape
    columns = panel_columns(query.dtype, rows, op.width, depth, cpu)
    keys = panels_of(emit, op.keys, columns, True)
    values = panels_of(emit, op.values, columns, False)
    op.set_operands([op.query, keys, values, *op.operands[3:]])
    op.attributes["panel"] = columns


def _columns(op: Product, depth: Size, cpu: CpuTarget) -> int:
    """The width of a panel in columns, all of one group, for a k of `depth`."""
    groups = op.groups if isinstance(op, Conv) else 1
    rows, columns = op.domain[-2], op.columns // groups
    return panel_columns(op.accumulator, rows, columns, depth, cpu)


def _why_blas(op: Gemm, options: Options) -> str:
    """Why a product is left to BLAS; empty for generated ones.

    Measured in f32 with 256-bit registers, generated products are faster at every size, packing included
    (`docs/performance.md`). Without fused multiply-add BLAS may find a better processor than the target.
    """
    if op.accumulator not in (F32, F64) or _is_long(op):
        return ""
    match options.matmul:
        case "blas":
            return "asked for"
        case "generated":
            return ""
        case _ if op.accumulator is F64:
            return "f64"
        case _ if not cpu_of(options).fma:
            return "the target does not multiply and add in one instruction"
        case _:
            return ""


def _is_long(op: Gemm) -> bool:
    """Whether a size is known to exceed the i32 integers of BLAS."""
    shapes = [tensor_type(operand).shape for operand in op.operands]
    return any(isinstance(size, int) and size > LARGEST_I32 for shape in shapes for size in shape)


def _use_panels(op: Gemm | Conv, schedule: Packed | Winograd, module: Module) -> None:
    emit = Builder.before_op(op)
    lhs = op.lhs
    if isinstance(op, Gemm) and op.lhs_transposed:
        lhs = _swapped(emit, lhs)
    stored = _stored(op.rhs)
    if stored is None:
        rhs = _panels(emit, op, op.rhs, schedule)
    else:
        rhs = _derived_panels(op, schedule, stored, module, emit)
    old_rhs = op.rhs
    op.set_operands([lhs, rhs, *op.operands[2:]])
    op.attributes["schedule"] = schedule
    _erase_unused(old_rhs)
    if isinstance(op, Gemm):
        op.attributes["lhs_transposed"] = op.attributes["rhs_transposed"] = False


def _erase_unused(value: Value) -> None:
    """Erase an unread operand: a weight that is still read is kept in memory unpacked as well."""
    while not value.uses:
        match value.op:
            case array.Reshape(source=source) as op:
                op.erase()
                value = source
            case weight.Get() as op:
                op.erase()
                return
            case _:
                return


def _stored(value: Value) -> weight.Get | None:
    """The weight of which a value is a reshape, perhaps outside a loop; None if it is not a weight."""
    found: Value | None = value
    while found is not None:
        match found.op:
            case weight.Get() as op:
                return op
            case array.Reshape(source=source):
                found = source
            case _:
                found = _before_loop(found)
    return None


def _before_loop(value: Value) -> Value | None:
    """The value outside a loop that is a constant of its body; None for any other value."""
    loop = value.block.parent if value.op is None and value.block is not None else None
    if not isinstance(loop, flow.Scan | flow.While):
        return None
    first = len(loop.body.arguments) - len(loop.constants)
    number = loop.body.arguments.index(value) - first
    return loop.constants[number] if number >= 0 else None


def _panels(emit: Builder, op: Gemm | Conv, value: Value, schedule: Packed | Winograd) -> Value:
    """The right operand of a product in panels, that of Winograd's form transformed before."""
    columns = schedule.columns
    if isinstance(schedule, Winograd):
        return emit(WinogradKernel((value,), (), schedule.tile, columns))
    if isinstance(schedule, PackedPairs):
        return _in_pairs(emit, _panels(emit, op, value, Packed(columns)))
    if isinstance(op, Gemm):
        return panels_of(emit, value, columns, op.rhs_transposed)
    *taps, outputs = kernel.array_type(value).shape
    depth, each = product(taps), outputs // op.groups
    if op.groups == 1:
        return panels_of(emit, emit(array.Reshape(value, (depth, outputs))), columns, False)
    split = emit(array.Reshape(value, (depth, op.groups, each)))
    matrices = emit(array.Transpose(split, (1, 0, 2)))
    panels = panels_of(emit, matrices, columns, False)
    count = op.groups * panel_count(each, columns)
    return emit(array.Reshape(panels, (count, depth, columns)))


def _in_pairs(emit: Builder, panels: Value) -> Value:
    """Panels `[.., p, k, columns]` with two steps of k side by side."""
    *outer, depth, columns = kernel.array_type(panels).shape
    rank, pairs = len(outer), depth // 2
    split = emit(array.Reshape(panels, (*outer, pairs, 2, columns)))
    beside = emit(array.Transpose(split, (*range(rank), rank, rank + 2, rank + 1)))
    return emit(array.Reshape(beside, (*outer, pairs, columns * 2)))


def _swapped(emit: Builder, value: Value) -> Value:
    rank = kernel.array_type(value).rank
    return emit(array.Transpose(value, (*range(rank - 2), rank - 1, rank - 2)))


def panels_of(emit: Builder, value: Value, columns: int, transposed: bool) -> Value:
    """`[.., k, n]` as `[.., p, k, columns]`, filled up with zeros."""
    if transposed:
        value = _swapped(emit, value)
    type = kernel.array_type(value)
    *batch, k, n = type.shape
    whole = panel_count(n, columns)
    padding = whole * columns - n
    if padding != 0:
        zero = array.fill(emit, 0, type.with_shape(()))
        none = (0,) * type.rank
        value = emit(array.Pad(value, zero, none, (*none[:-1], padding), none))
    split = emit(array.Reshape(value, (*batch, k, whole, columns)))
    rank = type.rank + 1
    return emit(array.Transpose(split, (*range(rank - 3), rank - 2, rank - 3, rank - 1)))


def _derived_panels(
    op: Gemm | Conv,
    schedule: Packed | Winograd,
    stored: weight.Get,
    module: Module,
    emit: Builder,
) -> Value:
    """The panels of a weight as a derived weight, one for each weight, shape and panel width."""
    source = kernel.array_type(op.rhs)
    name = f"{stored.symbol.name}.panels{schedule.columns}"
    if isinstance(schedule, PackedPairs):
        name += ".pairs"
    if isinstance(schedule, Winograd):
        name += f".winograd{schedule.tile}"
    if isinstance(op, Conv) and op.groups > 1:
        name += f".{op.groups}"
    if source.shape != kernel.array_type(stored.result).shape:
        name += f".{'x'.join(map(str, source.shape))}"
    if isinstance(op, Gemm) and op.rhs_transposed:
        name += "t"
    derived = module.symbol(name)
    if not isinstance(derived, weight.Derived):
        derived = _derive(op, schedule, stored, module, name)
    return emit(weight.Get(Symbol(name), derived.type))


def _derive(
    op: Gemm | Conv,
    schedule: Packed | Winograd,
    stored: weight.Get,
    module: Module,
    name: str,
) -> weight.Derived:
    source = kernel.array_type(op.rhs)
    assert not any(isinstance(size, Dim) for size in source.shape)
    body = Block([kernel.array_type(stored.result)])
    inner = Builder(body, op.location)
    (value,) = body.arguments
    if value.type is not source:
        value = inner(array.Reshape(value, source.shape))
    result = _panels(inner, op, value, schedule)
    inner.place(weight.Yield([result]))
    type = kernel.array_type(result)
    derived = weight.Derived(body, name, type, (stored.symbol,))
    Builder(module.body, op.location).place(derived)
    return derived
