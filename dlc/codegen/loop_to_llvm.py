"""LLVM text of a lowered kernel: one line or a few for each operation, no analysis.

The function's signature is the kernel's of `dlc.runtime.abi`: `void(ptr args, i64 first, i64 last,
ptr fault)`; `args` has the pointers and sizes in the order of the arguments.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np

from dlc.dialects import loop, scalar, vec
from dlc.dialects.scalar import element
from dlc.ir.attributes import encode
from dlc.ir.core import Block, Op, Value
from dlc.ir.types import BF16, BOOL, F16, F32, POINTER, DType, Type, VectorType
from dlc.runtime.abi import FaultWord

LLVM_TYPES = {
    "f64": "double",
    "f32": "float",
    "f16": "i16",
    "bf16": "i16",
    "index": "i64",
    "bool": "i1",
}
"""How LLVM spells a type that it does not call by its bits.

16-bit floats are their bits, and floats for the one instruction that converts them: given `half` or
`bfloat`, LLVM may move them by converting there and back, through functions that nobody provides.
"""


def llvm_type(type: Type) -> str:
    """The type as LLVM spells it."""
    match type:
        case VectorType(dtype, lanes):
            return f"<{lanes} x {llvm_type(dtype)}>"
        case DType(name):
            return LLVM_TYPES.get(name, f"i{type.bits}")
        case _ if type is POINTER:
            return "ptr"
        case _:
            raise AssertionError(f"{type} has no LLVM type")


def memory_type(type: Type) -> str:
    """The type of the same value in memory: bools are bytes."""
    if element(type) is not BOOL:
        return llvm_type(type)
    return f"<{type.lanes} x i8>" if isinstance(type, VectorType) else "i8"


def suffix(type: Type) -> str:
    """The type in the name of an overloaded intrinsic: `v8f32`."""
    dtype = element(type)
    name = {"index": "i64", "bool": "i1"}.get(dtype.name, dtype.name.replace("u", "i"))
    return f"v{type.lanes}{name}" if isinstance(type, VectorType) else name


class FunctionText:
    """Collects the lines of one function and the intrinsics it declares."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.declarations: dict[str, None] = {}
        self.names: dict[Value, str] = {}
        self.label = "entry"
        self._count = 0

    def fresh(self) -> str:
        """A new local name."""
        self._count += 1
        return f"%v{self._count}"

    def fresh_label(self) -> str:
        """A new block label."""
        self._count += 1
        return f"b{self._count}"

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def assign(self, text: str) -> str:
        """A line that computes something; the name of it."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def start(self, label: str) -> None:
        """Begin a basic block."""
        self.lines.append(f"{label}:")
        self.label = label

    def intrinsic(self, result: str, name: str, *arguments: tuple[str, str]) -> str:
        """A call of an LLVM intrinsic with (type, value) arguments."""
        types = ", ".join(type for type, _ in arguments)
        self.declarations[f"declare {result} @{name}({types})"] = None
        given = ", ".join(f"{type} {value}" for type, value in arguments)
        return self.assign(f"call {result} @{name}({given})")

    def name(self, value: Value) -> str:
        return self.names[value]


def function_text(function: loop.Func, name: str) -> str:
    """A module's text with the one function, named `name`."""
    text = FunctionText()
    _prologue(function, text)
    _block(function.body, text)
    body = [*text.entry, *text.lines]
    declarations = sorted(text.declarations)
    head = f"define void @{name}(ptr noalias %args, i64 %first, i64 %last, ptr %fault) #0 {{"
    attributes = 'attributes #0 = { nounwind "no-trapping-math"="true" "frame-pointer"="none" }'
    return "\n".join([*declarations, "", head, "entry:", *body, "}", "", attributes, ""])


def _prologue(function: loop.Func, text: FunctionText) -> None:
    first, last, *arguments = function.body.arguments
    text.names[first], text.names[last] = "%first", "%last"
    for position, argument in enumerate(arguments):
        place = text.assign(f"getelementptr i64, ptr %args, i64 {position}")
        text.names[argument] = text.assign(f"load {llvm_type(argument.type)}, ptr {place}, align 8")


def _block(block: Block, text: FunctionText) -> tuple[str, ...]:
    """Write a block; the names of what its terminator hands over."""
    for op in block:
        if op.terminator:
            if isinstance(op, loop.Return):
                text.line("ret void")
            return tuple([text.name(operand) for operand in op.operands])
        writer = WRITERS.get(type(op))
        if writer is None:
            raise AssertionError(f"{op.name} has no LLVM text")
        results = writer(op, text)
        for value, result in zip(op.results, results, strict=True):
            text.names[value] = result
    raise AssertionError("the block has no terminator")


Write = Callable[[Op, FunctionText], tuple[str, ...]]
WRITERS: dict[type[Op], Write] = {}
"""How each operation is written; it gives the names of its results."""


def writes(*classes: type[Op]) -> Callable[[Write], Write]:
    """Register the text of operations of these classes."""

    def apply(write: Write) -> Write:
        WRITERS.update(dict.fromkeys(classes, write))
        return write

    return apply


# Control.


@writes(loop.For)
def _for(op: Op, text: FunctionText) -> tuple[str, ...]:
    assert isinstance(op, loop.For)
    head, body, done = text.fresh_label(), text.fresh_label(), text.fresh_label()
    before = text.label
    lower, upper, step = (text.name(v) for v in (op.lower, op.upper, op.step))
    initial = [text.name(value) for value in op.initial]
    text.line(f"br label %{head}")
    text.start(head)
    arguments = op.body.arguments
    names = [text.fresh() for _ in arguments]
    marks = len(text.lines)
    text.names.update(zip(arguments, names, strict=True))
    test = text.assign(f"icmp slt i64 {names[0]}, {upper}")
    text.line(f"br i1 {test}, label %{body}, label %{done}")
    text.start(body)
    carried = _block(op.body, text)
    latch = text.label
    following = text.assign(f"add nsw i64 {names[0]}, {step}")
    text.line(f"br label %{head}")
    phis = [
        f"  {name} = phi {llvm_type(a.type)} [ {start}, %{before} ], [ {again}, %{latch} ]"
        for name, a, start, again in zip(
            names, arguments, [lower, *initial], [following, *carried], strict=True
        )
    ]
    text.lines[marks:marks] = phis
    text.start(done)
    return tuple(names[1:])


@writes(loop.While)
def _while(op: Op, text: FunctionText) -> tuple[str, ...]:
    assert isinstance(op, loop.While)
    head, body, done = text.fresh_label(), text.fresh_label(), text.fresh_label()
    before = text.label
    initial = [text.name(value) for value in op.initial]
    text.line(f"br label %{head}")
    text.start(head)
    names = [text.fresh() for _ in initial]
    marks = len(text.lines)
    text.names.update(zip(op.condition.arguments, names, strict=True))
    text.names.update(zip(op.body.arguments, names, strict=True))
    (test,) = _block(op.condition, text)
    tested = text.label
    text.line(f"br i1 {test}, label %{body}, label %{done}")
    text.start(body)
    carried = _block(op.body, text)
    latch = text.label
    text.line(f"br label %{head}")
    types = [llvm_type(value.type) for value in op.initial]
    text.lines[marks:marks] = [
        f"  {name} = phi {type} [ {start}, %{before} ], [ {again}, %{latch} ]"
        for name, type, start, again in zip(names, types, initial, carried, strict=True)
    ]
    assert tested
    text.start(done)
    return tuple(names)


@writes(loop.If)
def _if(op: Op, text: FunctionText) -> tuple[str, ...]:
    assert isinstance(op, loop.If)
    yes, no, done = text.fresh_label(), text.fresh_label(), text.fresh_label()
    text.line(f"br i1 {text.name(op.condition)}, label %{yes}, label %{no}")
    text.start(yes)
    from_yes = _block(op.then, text)
    end_yes = text.label
    text.line(f"br label %{done}")
    text.start(no)
    from_no = _block(op.otherwise, text)
    end_no = text.label
    text.line(f"br label %{done}")
    text.start(done)
    return tuple(
        [
            text.assign(f"phi {llvm_type(v.type)} [ {a}, %{end_yes} ], [ {b}, %{end_no} ]")
            for v, a, b in zip(op.results, from_yes, from_no, strict=True)
        ]
    )


@writes(loop.Fail)
def _fail(op: Op, text: FunctionText) -> tuple[str, ...]:
    assert isinstance(op, loop.Fail)
    words = {
        FaultWord.TILE: text.name(op.tile),
        FaultWord.A: text.name(op.first),
        FaultWord.B: text.name(op.second),
        FaultWord.STATUS: str(op.code),
    }
    for word, value in words.items():
        place = text.assign(f"getelementptr i64, ptr %fault, i64 {int(word)}")
        text.line(f"store i64 {value}, ptr {place}, align 8")
    return ()


@writes(loop.Call)
def _call(op: Op, text: FunctionText) -> tuple[str, ...]:
    assert isinstance(op, loop.Call)
    types = [llvm_type(value.type) for value in op.arguments]
    text.declarations[f"declare void @{op.callee}({', '.join(types)})"] = None
    given = ", ".join(
        f"{type} {text.name(value)}" for type, value in zip(types, op.arguments, strict=True)
    )
    text.line(f"call void @{op.callee}({given})")
    return ()


# Memory.


@writes(loop.Buffer)
def _buffer(op: Op, text: FunctionText) -> tuple[str, ...]:
    assert isinstance(op, loop.Buffer)
    name = text.fresh()
    text.entry.append(f"  {name} = alloca [{op.elements} x {memory_type(op.dtype)}], align 64")
    return (name,)


def _address(text: FunctionText, pointer: Value, index: Value, type: Type) -> str:
    dtype = memory_type(element(type))
    return text.assign(f"getelementptr {dtype}, ptr {text.name(pointer)}, i64 {text.name(index)}")


@writes(loop.Offset)
def _offset(op: Op, text: FunctionText) -> tuple[str, ...]:
    assert isinstance(op, loop.Offset)
    return (_address(text, op.pointer, op.index, op.dtype),)


@writes(loop.Load, vec.Load)
def _load(op: Op, text: FunctionText) -> tuple[str, ...]:
    assert isinstance(op, loop.Load | vec.Load)
    type = op.result.type
    place = _address(text, op.pointer, op.index, type)
    raw = text.assign(f"load {memory_type(type)}, ptr {place}, align {element(type).bytes}")
    return (_from_memory(text, raw, type),)


def _from_memory(text: FunctionText, raw: str, type: Type) -> str:
    if element(type) is not BOOL:
        return raw
    return text.assign(
        f"icmp ne {memory_type(type)} {raw}, zeroinitializer"
        if isinstance(type, VectorType)
        else f"icmp ne i8 {raw}, 0"
    )


def _to_memory(text: FunctionText, value: Value) -> str:
    name = text.name(value)
    if element(value.type) is not BOOL:
        return name
    return text.assign(f"zext {llvm_type(value.type)} {name} to {memory_type(value.type)}")


@writes(loop.Store, vec.Store)
def _store(op: Op, text: FunctionText) -> tuple[str, ...]:
    assert isinstance(op, loop.Store | vec.Store)
    type = op.value.type
    place = _address(text, op.pointer, op.index, type)
    raw = _to_memory(text, op.value)
    text.line(f"store {memory_type(type)} {raw}, ptr {place}, align {element(type).bytes}")
    return ()


@writes(vec.Gather)
def _gather(op: Op, text: FunctionText) -> tuple[str, ...]:
    assert isinstance(op, vec.Gather)
    dtype, lanes = op.type.dtype, op.type.lanes
    memory = memory_type(op.type)
    result = "poison"
    for lane in range(lanes):
        position = text.assign(
            f"extractelement <{lanes} x i64> {text.name(op.indices)}, i64 {lane}"
        )
        place = text.assign(
            f"getelementptr {memory_type(dtype)}, ptr {text.name(op.pointer)}, i64 {position}"
        )
        one = text.assign(f"load {memory_type(dtype)}, ptr {place}, align {dtype.bytes}")
        result = text.assign(
            f"insertelement {memory} {result}, {memory_type(dtype)} {one}, i64 {lane}"
        )
    return (_from_memory(text, result, op.type),)


@writes(vec.Scatter)
def _scatter(op: Op, text: FunctionText) -> tuple[str, ...]:
    assert isinstance(op, vec.Scatter)
    type = op.value.type
    assert isinstance(type, VectorType)
    raw = _to_memory(text, op.value)
    one_type = memory_type(type.dtype)
    for lane in range(type.lanes):
        position = text.assign(
            f"extractelement <{type.lanes} x i64> {text.name(op.indices)}, i64 {lane}"
        )
        place = text.assign(
            f"getelementptr {one_type}, ptr {text.name(op.pointer)}, i64 {position}"
        )
        one = text.assign(f"extractelement {memory_type(type)} {raw}, i64 {lane}")
        text.line(f"store {one_type} {one}, ptr {place}, align {type.dtype.bytes}")
    return ()


# Registers.


@writes(vec.Broadcast)
def _broadcast(op: Op, text: FunctionText) -> tuple[str, ...]:
    assert isinstance(op, vec.Broadcast)
    return (_splat(text, text.name(op.source), op.result.type),)


def _splat(text: FunctionText, one: str, type: Type) -> str:
    assert isinstance(type, VectorType)
    spelled, lanes = llvm_type(type), type.lanes
    single = text.assign(f"insertelement {spelled} poison, {llvm_type(type.dtype)} {one}, i64 0")
    return text.assign(
        f"shufflevector {spelled} {single}, {spelled} poison, <{lanes} x i32> zeroinitializer"
    )


@writes(vec.Ramp)
def _ramp(op: Op, text: FunctionText) -> tuple[str, ...]:
    assert isinstance(op, vec.Ramp)
    start = _splat(text, text.name(op.start), op.result.type)
    steps = ", ".join(f"i64 {lane}" for lane in range(op.lanes))
    return (text.assign(f"add {llvm_type(op.result.type)} {start}, <{steps}>"),)


@writes(vec.Extract)
def _extract(op: Op, text: FunctionText) -> tuple[str, ...]:
    assert isinstance(op, vec.Extract)
    source = f"{llvm_type(op.source.type)} {text.name(op.source)}"
    return (text.assign(f"extractelement {source}, i64 {op.lane}"),)


@writes(vec.Pack)
def _pack(op: Op, text: FunctionText) -> tuple[str, ...]:
    assert isinstance(op, vec.Pack)
    type, result = op.result.type, "poison"
    for lane, part in enumerate(op.parts):
        one = f"{llvm_type(part.type)} {text.name(part)}"
        result = text.assign(f"insertelement {llvm_type(type)} {result}, {one}, i64 {lane}")
    return (result,)


@writes(vec.Reduce)
def _reduce(op: Op, text: FunctionText) -> tuple[str, ...]:
    assert isinstance(op, vec.Reduce)
    type = op.source.type
    assert isinstance(type, VectorType)
    value, lanes = text.name(op.source), type.lanes
    binary = BINARY[f"scalar.{op.combine}"]
    while lanes > 1:
        whole, half = VectorType(type.dtype, lanes), VectorType(type.dtype, lanes // 2)
        halves = [
            text.assign(
                f"shufflevector {llvm_type(whole)} {value}, {llvm_type(whole)} poison, "
                f"<{lanes // 2} x i32> <{', '.join(f'i32 {start + k}' for k in range(lanes // 2))}>"
            )
            for start in (0, lanes // 2)
        ]
        value = binary(text, half, halves[0], halves[1])
        lanes //= 2
    one = VectorType(type.dtype, 1)
    return (text.assign(f"extractelement {llvm_type(one)} {value}, i64 0"),)


# Arithmetic.

Two = Callable[[FunctionText, Type, str, str], str]


def _by_kind(floating: str, signed: str, unsigned: str) -> Two:
    """One instruction, chosen by the kind of element; an intrinsic if it starts with a dot."""

    def write(text: FunctionText, type: Type, lhs: str, rhs: str) -> str:
        kind = element(type).kind
        what = floating if kind == "float" else unsigned if kind in ("uint", "bool") else signed
        assert what, f"no instruction for {type}"
        spelled = llvm_type(type)
        if what.startswith("."):
            name = f"llvm{what}.{suffix(type)}"
            return text.intrinsic(spelled, name, (spelled, lhs), (spelled, rhs))
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
    zero = ("i1", "false")  # the lowest number stays as it is: integers wrap
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
def _constant(op: Op, text: FunctionText) -> tuple[str, ...]:
    assert isinstance(op, scalar.Constant)
    return (constant_text(op.value, op.type),)


def constant_text(value: float, type: Type) -> str:
    """A number as an operand."""
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
def _compare(op: Op, text: FunctionText) -> tuple[str, ...]:
    assert isinstance(op, scalar.Compare)
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
def _bitcast(op: Op, text: FunctionText) -> tuple[str, ...]:
    assert isinstance(op, scalar.Bitcast)
    source = f"{llvm_type(op.source.type)} {text.name(op.source)}"
    return (text.assign(f"bitcast {source} to {llvm_type(op.result.type)}"),)


@writes(scalar.Cast)
def _cast(op: Op, text: FunctionText) -> tuple[str, ...]:
    assert isinstance(op, scalar.Cast)
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


def _float_to_float(text: FunctionText, name: str, source: Type, target: Type) -> str:
    """A float in another precision."""
    here, there = _as_float(source), _as_float(target)
    if element(source) is F16:
        name = text.assign(f"bitcast {llvm_type(source)} {name} to {here}")
    wider = element(target).bits > element(source).bits
    result = text.assign(f"{'fpext' if wider else 'fptrunc'} {here} {name} to {there}")
    if element(target) is F16:
        return text.assign(f"bitcast {there} {result} to {llvm_type(target)}")
    return result


def _as_float(type: Type) -> str:
    """The type to convert from or to: `half` for f16."""
    assert element(type) is not BF16, "conversions of bf16 are formulas"
    spelled = llvm_type(type)
    return spelled.replace("i16", "half") if element(type) is F16 else spelled
