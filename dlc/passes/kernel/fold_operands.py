"""Products read their operands as they are stored: transposed, and on GPUs in 16 bits.

For a CPU both are work that packing does on the way, and there products take transposed ones as they lie.
On a GPU a product reads both by itself, which saves a pass over memory, and factors of f16 and bf16 go to
the instructions that multiply such: what products of 16-bit factors are in f32 is exact, so nothing is
rounded that was not rounded before.
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
from dlc.ir.types import BF16, F16, F32, DType
from dlc.passes.graph.device_placement import ops_of


@define_pass("fold_operands")
def fold_operands(module: Op, context: Context, *, gpu_only: bool = False) -> None:
    """Let products read operands that were only transposed or widened as they were before.

    `gpu_only` leaves the kernels alone that are not placed on a GPU.
    """
    for op in ops_of(module, gpu_only=gpu_only):
        match op:
            case Gemm() if not op.outs:
                _in_16_bits(op, context)
                _as_stored(op, context)
            case Conv() if not op.outs:
                _in_16_bits(op, context)
            case Attention() if not op.outs:
                _attention_in_16_bits(op, context)
            case _:
                pass


@define_pass("fold_transposes")
def fold_transposes(module: Op, context: Context) -> None:
    """Let products read operands that were only transposed as they were before."""
    for op in list(module.walk()):
        if isinstance(op, Gemm) and not op.outs:
            _as_stored(op, context)


@define_pass("constant_padding")
def constant_padding(module: Op, context: Context, *, gpu_only: bool = False) -> None:
    """Have the zeros around pictures as numbers of the artifact: no kernel of a GPU reads them.

    `gpu_only` leaves the kernels alone that are not placed on a GPU.
    """
    for op in ops_of(module, gpu_only=gpu_only):
        if isinstance(op, Conv) and not op.outs:
            zeros = Dense.splat(0, kernel.array_type(op.blank))
            made = Builder.before_op(op)(array.Constant(zeros))
            op.replace_operand(op.blank, made)


# Factors of 16 bits.


def _in_16_bits(op: Gemm | Conv, context: Context) -> None:
    """Multiply numbers of 16 bits where both operands are such, widened."""
    made = _all_narrow(op, 2, context)
    if made is not None:
        context.log.did("multiply as stored, in 16 bits", op)
        _read(op, made)


def _attention_in_16_bits(op: Attention, context: Context) -> None:
    """Attend in 16 bits where queries, keys and values are such, widened, and the result is such."""
    depth = kernel.array_type(op.query).shape[-1]
    fits = all(isinstance(size, int) and 0 < size <= MOST_NARROW for size in (depth, op.width))
    result = op.results[0]
    dtype = _rounded_to(result)
    if dtype is None or not fits:
        return
    made = _all_narrow(op, 3, context)
    if made is None or kernel.array_type(made[0]).dtype is not dtype:
        return
    context.log.did("attend as stored, in 16 bits", op)
    _read(op, [*made, *[_narrow(mask) or mask for mask in op.mask]])
    (rounds,) = result.uses
    result.type = kernel.array_type(result).with_dtype(dtype)
    rounds.result.replace_by(result)
    rounds.erase()


def _rounded_to(value: Value) -> DType | None:
    """The dtype of 16 bits that the only reader of a value rounds it to, doing nothing else."""
    if len(value.uses) != 1:
        return None
    (reader,) = value.uses
    if not isinstance(reader, kernel.Generic) or len(reader.inputs) != 1:
        return None
    dtype = kernel.array_type(reader.results[0]).dtype
    return dtype if dtype in (F16, BF16) and _is_copy(reader) else None


def _all_narrow(op: Gemm | Conv | Attention, count: int, context: Context) -> list[Value] | None:
    """Arrays in 16 bits that the first operands are the widened forms of.

    None if some is not, or they differ.
    """
    found = [_narrow(value) for value in op.operands[:count]]
    made = [value for value in found if value is not None]
    dtypes = {kernel.array_type(value).dtype for value in made}
    if len(made) == count and len(dtypes) == 1:
        return made
    if made:
        context.log.refused("its factors are not all of the same 16 bits", op)
    for value in made:
        _erase_unused(value)
    return None


def _read(op: Gemm | Conv | Attention, operands: Sequence[Value]) -> None:
    """Let a kernel read other operands first."""
    before = op.operands[: len(operands)]
    op.set_operands([*operands, *op.operands[len(operands) :]])
    for value in before:
        _erase_unused(value)


def _narrow(value: Value) -> Value | None:
    """The array in 16 bits that a value is the widened form of, made anew where it was moved around."""
    match value.op:
        case array.Reshape() as op:
            source = _narrow(op.source)
            return None if source is None else _before(op, array.Reshape(source, op.shape))
        case kernel.Generic(inputs=(source,), outs=()) as op if len(op.results) == 1:
            widened = _widened(op)
            if widened is not None:
                return source if _is_copy(op) else _moved(op, source, widened)
            narrow = _narrow(source)
            if narrow is None:
                return None
            made = _moved(op, narrow, kernel.array_type(narrow).dtype)
            if made is None:
                _erase_unused(narrow)
            return made
        case _:
            return None


def _widened(op: kernel.Generic) -> DType | None:
    """The dtype of 16 bits that a kernel reads, if each element it reads is widened at once."""
    (argument,) = op.arrays
    dtype = kernel.array_type(argument).dtype
    loads = [use for use in argument.uses if isinstance(use, kernel.Load)]
    casts = [use for load in loads for use in load.result.uses]
    wide = all(isinstance(use, scalar.Cast) and use.result.type is F32 for use in casts)
    return dtype if dtype in (F16, BF16) and wide else None


def _is_copy(op: kernel.Generic) -> bool:
    """Whether a kernel does nothing but convert each element in its place."""
    result = op.body.terminator.operands[0]
    load = result.op.source.op if isinstance(result.op, scalar.Cast) else None
    return isinstance(load, kernel.Load) and list(load.indices) == op.indices


def _moved(op: kernel.Generic, source: Value, dtype: DType) -> Value | None:
    """A kernel that only moves elements around, from an array of another dtype; None if it computes."""
    body = Block([*[index.type for index in op.indices], source.type])
    emit = Builder(body, op.location)
    known: dict[Value, Value] = dict(zip([*op.indices, *op.arrays], body.arguments, strict=True))
    for inner in op.body:
        if inner.terminator:
            emit.place(kernel.Yield([known[value] for value in inner.operands]))
            break
        operands = [known[value] for value in inner.operands]
        match inner:
            case scalar.Cast(dtype=to) if to is F32 and operands[0].type is dtype:
                known[inner.result] = operands[0]
            case scalar.Constant(value=0, type=type) if type is F32:
                known[inner.result] = emit(scalar.Constant(0.0, dtype))
            case kernel.Load() | scalar.Select():
                known[inner.result] = emit(clone(inner, operands))
            case _ if not inner.regions and F32 not in [
                v.type for v in (*inner.operands, *inner.results)
            ]:
                known.update(zip(inner.results, emit.all(clone(inner, operands)), strict=True))
            case _:
                return None
    result = body.terminator.operands[0]
    if result.type is not dtype:
        return None
    return _before(op, kernel.Generic([source], [], body, op.domain))


def _before(op: Op, made: Op) -> Value:
    return Builder.before_op(op)(made)


# Transposed operands.


def _as_stored(op: Gemm, context: Context) -> None:
    """Read matrices that were only transposed as they were."""
    for number, name in enumerate(("lhs_transposed", "rhs_transposed")):
        value = op.operands[number]
        source = _turned(value)
        if source is not None:
            context.log.did("read a matrix as stored", op)
            operands = list(op.operands[:2])
            operands[number] = source
            op.attributes[name] = not op.attributes[name]
            _read(op, operands)


def _turned(value: Value) -> Value | None:
    """The array that a value is with its last two axes swapped."""
    match value.op:
        case kernel.Generic(inputs=(source,), outs=()) as op if len(op.domain) > 1:
            result = op.body.terminator.operands[0]
            swapped = [*op.indices[:-2], op.indices[-1], op.indices[-2]]
            load = result.op
            if isinstance(load, kernel.Load) and list(load.indices) == swapped:
                return source
            return None
        case _:
            return None


def _erase_unused(value: Value) -> None:
    """Erase what made a value that nothing reads any more."""
    while isinstance(value.op, kernel.Generic | array.Reshape) and not value.uses:
        op, value = value.op, value.op.operands[0]
        op.erase()
