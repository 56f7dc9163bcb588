"""Operand folding: products read operands as they are stored, transposed, and on GPUs in 16 bits.

On a CPU packing transposes, and widens, on the way. On a GPU a product reads both layouts itself, which
saves a pass over memory, and f16 and bf16 factors go to the matrix instructions for them (tensor cores). A
product of two 16-bit factors is exact in f32, so nothing is rounded that was not rounded before.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array, kernel, scalar
from dlc.dialects.kernel.attention import MOST_NARROW, Attention
from dlc.dialects.kernel.products import Conv, Gemm
from dlc.ir.attributes import Dense
from dlc.ir.clone import clone
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.passes import Context, define_pass
from dlc.ir.types import BF16, F16, F32, F64, DType
from dlc.passes.graph.device_placement import ops_of


@define_pass("fold_operands")
def fold_operands(module: Op, context: Context, *, gpu_only: bool = False) -> None:
    """Fold transposes and casts from 16 bits into the products that read them.

    With `gpu_only` only products placed on a GPU.
    """
    for op in ops_of(module, gpu_only=gpu_only):
        match op:
            case Gemm() if not op.outs:
                _fold_casts(op, context)
                _fold_transposes(op, context)
            case Conv() if not op.outs:
                _fold_casts(op, context)
            case Attention() if not op.outs:
                _fold_attention_casts(op, context)
            case _:
                pass


@define_pass("fold_transposes")
def fold_transposes(module: Op, context: Context) -> None:
    """Fold transposes into the products that read them."""
    for op in list(module.walk()):
        if isinstance(op, Gemm) and not op.outs:
            _fold_transposes(op, context)


@define_pass("constant_padding")
def constant_padding(module: Op, context: Context) -> None:
    """Make the padding value of convolutions a constant, which no call writes and no GPU kernel reads."""
    for op in list(module.walk()):
        if isinstance(op, Conv) and not op.outs:
            zeros = Dense.splat(0, kernel.array_type(op.blank))
            constant = Builder.before_op(op)(array.Constant(zeros))
            op.replace_operand(op.blank, constant)


# 16-bit operands.


def _fold_casts(op: Gemm | Conv, context: Context) -> None:
    """Multiply in 16 bits where both operands are 16-bit values cast to f32."""
    narrow_operands = _narrow_sources(op, 2, context)
    if narrow_operands is not None:
        context.log.did("read 16-bit operands as stored", op)
        set_first_operands(op, narrow_operands)


def _fold_attention_casts(op: Attention, context: Context) -> None:
    """Read queries, keys and values in 16 bits, if that is their dtype and the result is rounded to it."""
    depth = kernel.array_type(op.query).shape[-1]
    fits = all(isinstance(size, int) and 0 < size <= MOST_NARROW for size in (depth, op.width))
    result = op.results[0]
    dtype = _rounded_to(result)
    if dtype is None or not fits:
        return
    narrow_operands = _narrow_sources(op, 3, context)
    if narrow_operands is None or kernel.array_type(narrow_operands[0]).dtype is not dtype:
        return
    context.log.did("read 16-bit queries, keys and values as stored", op)
    set_first_operands(op, [*narrow_operands, *[narrow_source(mask) or mask for mask in op.mask]])
    (rounding,) = result.uses
    result.type = kernel.array_type(result).with_dtype(dtype)
    rounding.result.replace_by(result)
    rounding.erase()


def _rounded_to(value: Value) -> DType | None:
    """The 16-bit dtype to which the only reader of a value casts it, if it does nothing else."""
    if len(value.uses) != 1:
        return None
    (reader,) = value.uses
    if not isinstance(reader, kernel.Generic) or len(reader.inputs) != 1:
        return None
    dtype = kernel.array_type(reader.results[0]).dtype
    return dtype if dtype in (F16, BF16) and is_copy(reader) else None


def _narrow_sources(
    op: Gemm | Conv | Attention, count: int, context: Context
) -> list[Value] | None:
    """The 16-bit arrays of which the first operands are casts; None unless all are of one dtype."""
    candidates = [narrow_source(value) for value in op.operands[:count]]
    narrow = [value for value in candidates if value is not None]
    dtypes = {kernel.array_type(value).dtype for value in narrow}
    if len(narrow) == count and len(dtypes) == 1:
        return narrow
    if narrow:
        context.log.refused("its operands are not all of the same 16-bit dtype", op)
    for value in narrow:
        erase_unused(value)
    return None


def set_first_operands(op: Gemm | Conv | Attention, operands: Sequence[Value]) -> None:
    """Replace the first operands of a kernel."""
    old_operands = op.operands[: len(operands)]
    op.set_operands([*operands, *op.operands[len(operands) :]])
    for value in old_operands:
        erase_unused(value)


def narrow_source(value: Value, dtypes: Sequence[DType] = (F16, BF16)) -> Value | None:
    """The array of one of these 16-bit dtypes of which a value is a cast to floats, recreated if its
    elements were moved in between."""
    match value.op:
        case array.Reshape() as op:
            source = narrow_source(op.source, dtypes)
            return None if source is None else _before(op, array.Reshape(source, op.shape))
        case kernel.Generic(inputs=(source,), outs=()) as op if len(op.results) == 1:
            widened = _widened_dtype(op)
            if widened is not None and widened in dtypes:
                return source if is_copy(op) else _narrowed_move(op, source, widened)
            narrow = narrow_source(source, dtypes)
            if narrow is None:
                return None
            moved = _narrowed_move(op, narrow, kernel.array_type(narrow).dtype)
            if moved is None:
                erase_unused(narrow)
            return moved
        case _:
            return None


def _widened_dtype(op: kernel.Generic) -> DType | None:
    """The 16-bit dtype that a kernel reads, if it casts every element to floats right after loading."""
    (argument,) = op.arrays
    dtype = kernel.array_type(argument).dtype
    loads = [use for use in argument.uses if isinstance(use, kernel.Load)]
    casts = [use for load in loads for use in load.result.uses]
    to = kernel.array_type(op.results[0]).dtype
    wide = all(isinstance(use, scalar.Cast) and use.result.type is to for use in casts)
    return dtype if dtype.bits == 16 and to in (F32, F64) and wide else None


def is_copy(op: kernel.Generic) -> bool:
    """Whether a kernel only casts each element of one array."""
    result = op.body.terminator.operands[0]
    load = result.op.source.op if isinstance(result.op, scalar.Cast) else None
    return isinstance(load, kernel.Load) and _reads_whole(op, load, op.indices)


def _reads_whole(op: kernel.Generic, load: kernel.Load, indices: Sequence[Value]) -> bool:
    """Whether a kernel loads at these of its indices every element of its array: of a part, such as
    `w[:, 0:4]`, the indices are the same."""
    extent = dict(zip(op.indices, op.domain, strict=True))
    shape = kernel.array_type(load.array).shape
    return list(load.indices) == list(indices) and shape == tuple([extent[i] for i in indices])


def _narrowed_move(op: kernel.Generic, source: Value, dtype: DType) -> Value | None:
    """The same kernel on an array of another dtype, if it only moves elements; otherwise None."""
    body = Block([*[index.type for index in op.indices], source.type])
    emit = Builder(body, op.location)
    wide = kernel.array_type(op.results[0]).dtype
    clone_of: dict[Value, Value] = dict(zip([*op.indices, *op.arrays], body.arguments, strict=True))
    for inner in op.body:
        if inner.terminator:
            emit.place(kernel.Yield([clone_of[value] for value in inner.operands]))
            break
        operands = [clone_of[value] for value in inner.operands]
        match inner:
            case scalar.Cast(dtype=to) if to is wide and operands[0].type is dtype:
                clone_of[inner.result] = operands[0]
            case scalar.Constant(value=0, type=type) if type is wide:
                clone_of[inner.result] = emit(scalar.Constant(0, dtype))
            case kernel.Load() | scalar.Select():
                clone_of[inner.result] = emit(clone(inner, operands))
            case _ if not inner.regions and wide not in [
                v.type for v in (*inner.operands, *inner.results)
            ]:
                clone_of.update(zip(inner.results, emit.all(clone(inner, operands)), strict=True))
            case _:
                return None
    result = body.terminator.operands[0]
    if result.type is not dtype:
        return None
    return _before(op, kernel.Generic([source], [], body, op.domain))


def _before(op: Op, made: Op) -> Value:
    return Builder.before_op(op)(made)


# Transposed operands.


def _fold_transposes(op: Gemm, context: Context) -> None:
    """Read the source of a transpose instead, and flip the attribute of the product."""
    for index, attribute in enumerate(("lhs_transposed", "rhs_transposed")):
        value = op.operands[index]
        source = _transpose_source(value)
        if source is not None and context.rewrites.take():
            context.log.did("fold a transpose into the product", op)
            operands = list(op.operands[:2])
            operands[index] = source
            op.attributes[attribute] = not op.attributes[attribute]
            set_first_operands(op, operands)


def _transpose_source(value: Value) -> Value | None:
    """The array of which a value is the transpose in its last two axes; None if it is none."""
    match value.op:
        case kernel.Generic(inputs=(source,), outs=()) as op if len(op.domain) > 1:
            result = op.body.terminator.operands[0]
            swapped = [*op.indices[:-2], op.indices[-1], op.indices[-2]]
            load = result.op
            if isinstance(load, kernel.Load) and _reads_whole(op, load, swapped):
                return source
            return None
        case _:
            return None


def erase_unused(value: Value) -> None:
    """Erase the producers of an unread value."""
    while isinstance(value.op, kernel.Generic | array.Reshape) and not value.uses:
        op, value = value.op, value.op.operands[0]
        op.erase()
