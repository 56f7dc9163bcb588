"""LLVM text of arithmetic: one instruction for each operation, or a few."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np

from dlc.codegen.llvm.text import FunctionText, llvm_type, suffix, writes
from dlc.dialects import scalar
from dlc.dialects.numeric import highest, lowest
from dlc.dialects.scalar import element
from dlc.ir.attributes import encode
from dlc.ir.core import Op
from dlc.ir.types import BF16, BOOL, F16, F32, F64, I32, U32, DType, Type, VectorType

Two = Callable[[FunctionText, Type, str, str], str]


def _by_kind(floating: str, signed: str, unsigned: str) -> Two:
    """An instruction for each kind of element; names that start with a dot are intrinsics."""

    def write(text: FunctionText, type: Type, lhs: str, rhs: str) -> str:
        kind = element(type).kind
        what = floating if kind == "float" else unsigned if kind in ("uint", "bool") else signed
        assert what, f"no instruction for {type}"
        spelled = llvm_type(type)
        if what.startswith("."):
            name = f"llvm{what}.{suffix(type)}"
            # Which of two zeros is the larger is not stated; x86 takes two instructions more to know.
            flags = "nsz " if kind == "float" else ""
            return text.intrinsic(spelled, name, (spelled, lhs), (spelled, rhs), flags=flags)
        return text.assign(f"{what} {spelled} {lhs}, {rhs}")

    return write


def _same(instruction: str) -> Two:
    return _by_kind("", instruction, instruction)


BINARY: dict[str, Two] = {
    "scalar.add": _by_kind("fadd", "add", "add"),
    "scalar.subtract": _by_kind("fsub", "sub", "sub"),
    "scalar.multiply": _by_kind("fmul", "mul", "mul"),
    "scalar.divide": _by_kind("fdiv", "", ""),
    "scalar.raw_divide": _by_kind("", "sdiv", "udiv"),
    "scalar.maximum": _by_kind(".maximum", ".smax", ".umax"),
    "scalar.minimum": _by_kind(".minimum", ".smin", ".umin"),
    "scalar.and": _same("and"),
    "scalar.or": _same("or"),
    "scalar.xor": _same("xor"),
    "scalar.raw_shift_left": _same("shl"),
    "scalar.raw_shift_right": _by_kind("", "ashr", "lshr"),
}


@writes(
    scalar.Add,
    scalar.Subtract,
    scalar.Multiply,
    scalar.Divide,
    scalar.Maximum,
    scalar.Minimum,
    scalar.And,
    scalar.Or,
    scalar.Xor,
    scalar.ShiftLeft,
    scalar.ShiftRight,
    scalar.RawDivide,
    scalar.RawShiftLeft,
    scalar.RawShiftRight,
)
def _binary(op: Op, text: FunctionText) -> tuple[str, ...]:
    lhs, rhs = op.operands
    return (BINARY[op.name](text, lhs.type, text.name(lhs), text.name(rhs)),)


FLOAT_UNARY: dict[str, str] = {
    "scalar.abs": "fabs",
    "scalar.sqrt": "sqrt",
    "scalar.floor": "floor",
    "scalar.ceil": "ceil",
    "scalar.round": "roundeven",
    "scalar.trunc": "trunc",
}


@writes(scalar.Abs, scalar.Sqrt, scalar.Floor, scalar.Ceil, scalar.Round, scalar.Trunc)
def _unary(op: Op, text: FunctionText) -> tuple[str, ...]:
    (source,) = op.operands
    type, name = source.type, text.name(source)
    spelled = llvm_type(type)
    if element(type).is_float:
        intrinsic = f"llvm.{FLOAT_UNARY[op.name]}.{suffix(type)}"
        return (text.intrinsic(spelled, intrinsic, (spelled, name)),)
    if element(type).kind == "uint":
        return (name,)
    zero = ("i1", "false")  # not poison for the lowest number, which stays as it is: integers wrap
    return (text.intrinsic(spelled, f"llvm.abs.{suffix(type)}", (spelled, name), zero),)


@writes(scalar.Negate)
def _negate(op: Op, text: FunctionText) -> tuple[str, ...]:
    (source,) = op.operands
    spelled, name = llvm_type(source.type), text.name(source)
    if element(source.type).is_float:
        return (text.assign(f"fneg {spelled} {name}"),)
    return (
        text.assign(
            f"sub {spelled} zeroinitializer, {name}"
            if isinstance(source.type, VectorType)
            else f"sub {spelled} 0, {name}"
        ),
    )


@writes(scalar.Not)
def _not(op: Op, text: FunctionText) -> tuple[str, ...]:
    (source,) = op.operands
    ones = constant_text(True if element(source.type) is BOOL else -1, source.type)
    return (text.assign(f"xor {llvm_type(source.type)} {text.name(source)}, {ones}"),)


@writes(scalar.Fma)
def _fma(op: Op, text: FunctionText) -> tuple[str, ...]:
    type = llvm_type(op.result.type)
    arguments = [(type, text.name(operand)) for operand in op.operands]
    return (text.intrinsic(type, f"llvm.fma.{suffix(op.result.type)}", *arguments),)


@writes(scalar.Constant)
def _constant(op: scalar.Constant, text: FunctionText) -> tuple[str, ...]:
    return (constant_text(op.value, op.type),)


def constant_text(value: float, type: Type) -> str:
    """A constant as an operand."""
    dtype = element(type)
    one = _number(value, dtype)
    if isinstance(type, VectorType):
        return f"<{', '.join([f'{llvm_type(dtype)} {one}'] * type.lanes)}>"
    return one


def _number(value: float, dtype: DType) -> str:
    if dtype is BOOL:
        return "true" if value else "false"
    if not dtype.is_float:
        return str(int(value))
    if dtype in (F16, BF16):
        return str(int(encode(np.asarray(value), dtype).view(np.uint16)))
    if dtype is F32:
        with np.errstate(over="ignore"):
            value = float(np.float32(value))
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


FLOAT_PREDICATES = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


@writes(scalar.Compare)
def _compare(op: scalar.Compare, text: FunctionText) -> tuple[str, ...]:
    type = op.lhs.type
    operands = f"{llvm_type(type)} {text.name(op.lhs)}, {text.name(op.rhs)}"
    kind = element(type).kind
    if kind == "float":
        return (text.assign(f"fcmp {FLOAT_PREDICATES[op.predicate]} {operands}"),)
    sign = "" if op.predicate in ("eq", "ne") else "u" if kind in ("uint", "bool") else "s"
    return (text.assign(f"icmp {sign}{op.predicate} {operands}"),)


@writes(scalar.Select)
def _select(op: Op, text: FunctionText) -> tuple[str, ...]:
    parts = ", ".join(f"{llvm_type(v.type)} {text.name(v)}" for v in op.operands)
    return (text.assign(f"select {parts}"),)


@writes(scalar.Bitcast)
def _bitcast(op: scalar.Bitcast, text: FunctionText) -> tuple[str, ...]:
    source = f"{llvm_type(op.source.type)} {text.name(op.source)}"
    return (text.assign(f"bitcast {source} to {llvm_type(op.result.type)}"),)


@writes(scalar.Cast)
def _cast(op: scalar.Cast, text: FunctionText) -> tuple[str, ...]:
    source, target = op.source.type, op.result.type
    name, here, there = text.name(op.source), llvm_type(source), llvm_type(target)
    old, new = element(source), element(target)
    if new is BOOL:
        zero = constant_text(0, source)
        test = "fcmp une" if old.is_float else "icmp ne"
        return (text.assign(f"{test} {here} {name}, {zero}"),)
    if old is new:
        return (name,)
    if old.is_float and new.is_float:
        return (_float_to_float(text, name, source, target),)
    if old.is_float:
        if isinstance(source, VectorType) and old in (F32, F64) and new.bits <= 32:
            return (_saturated_lanes(text, name, source, new),)
        kind = "fptoui" if new.kind == "uint" else "fptosi"
        intrinsic = f"llvm.{kind}.sat.{suffix(target)}.{suffix(source)}"
        return (text.intrinsic(there, intrinsic, (here, name)),)
    unsigned = old.kind in ("uint", "bool")
    if new.is_float:
        return (text.assign(f"{'uitofp' if unsigned else 'sitofp'} {here} {name} to {there}"),)
    if here == there:
        return (name,)
    if new.bits < old.bits:
        return (text.assign(f"trunc {here} {name} to {there}"),)
    return (text.assign(f"{'zext' if unsigned else 'sext'} {here} {name} to {there}"),)


def _saturated_lanes(text: FunctionText, name: str, source: VectorType, to: DType) -> str:
    """Lanes of f32 or f64 as integers of at most 32 bits: saturated, and NaN taken to 0.

    LLVM's intrinsic for it is lowered lane by lane.
    """
    low, high = int(lowest(to)), int(highest(to))
    zero, least, most = (constant_text(bound, source) for bound in (0, low, high))
    number = _where(text, source, f"uno {name}, {zero}", zero, name)
    number = _where(text, source, f"olt {number}, {least}", least, number)
    above = f"oge {number}, {most}"
    wide = VectorType(U32 if to is U32 else I32, source.lanes)
    # Where `high` is between two floats, `most` is the one above, which does not fit.
    inside = _where(text, source, above, most if _is_exact(high, source.dtype) else zero, number)
    instruction = "fptoui" if to is U32 else "fptosi"
    given = f"{llvm_type(source)} {inside} to {llvm_type(wide)}"
    result = text.assign(f"{instruction} {given}")
    if not _is_exact(high, source.dtype):
        result = _where(text, source, above, constant_text(high, wide), result, wide)
    if to.bits == 32:
        return result
    narrow = llvm_type(VectorType(to, source.lanes))
    return text.assign(f"trunc {llvm_type(wide)} {result} to {narrow}")


def _is_exact(number: int, dtype: DType) -> bool:
    """Whether a float holds an integer."""
    return int(dtype.numpy.type(number)) == number


def _where(
    text: FunctionText,
    compared: VectorType,
    test: str,
    yes: str,
    no: str,
    type: VectorType | None = None,
) -> str:
    """Lanes of `yes` where a comparison of floats holds, else of `no`; they are floats or of `type`."""
    predicate, operands = test.split(" ", 1)
    chosen = llvm_type(type or compared)
    holds = text.assign(f"fcmp {predicate} {llvm_type(compared)} {operands}")
    return text.assign(f"select <{compared.lanes} x i1> {holds}, {chosen} {yes}, {chosen} {no}")


def _float_to_float(text: FunctionText, name: str, source: Type, target: Type) -> str:
    """A float in another precision."""
    here, there = _as_float(source), _as_float(target)
    if element(source) in (F16, BF16):
        name = text.assign(f"bitcast {llvm_type(source)} {name} to {here}")
    wider = element(target).bits > element(source).bits
    result = text.assign(f"{'fpext' if wider else 'fptrunc'} {here} {name} to {there}")
    if element(target) in (F16, BF16):
        return text.assign(f"bitcast {there} {result} to {llvm_type(target)}")
    return result


def _as_float(type: Type) -> str:
    """The type to convert from or to: `half` for f16, `bfloat` for bf16."""
    return llvm_type(type).replace("i16", {F16: "half", BF16: "bfloat"}.get(element(type), "i16"))
