"""LLVM text of a lowered kernel: one or a few lines for each operation, without analysis.

The function has the signature of kernels in `dlc.runtime.abi`: `void(ptr args, i64 first, i64 last,
ptr fault)`; `args` has the pointers and sizes in the order of the arguments.
"""

from __future__ import annotations

from dlc.codegen.llvm.object_code import CONSTANTS_STAY
from dlc.codegen.llvm.scalar import BINARY
from dlc.codegen.llvm.text import WRITERS, FunctionText, llvm_type, memory_type, writes
from dlc.dialects import loop, scalar, vec
from dlc.dialects.scalar import element
from dlc.ir.core import Block, Op, Value
from dlc.ir.types import BOOL, F32, I16, Type, VectorType
from dlc.runtime.abi import FaultWord


def function_text(function: loop.Func, name: str) -> str:
    """The text of a module with the function, under the name `name`."""
    text = FunctionText(name)
    _prologue(function, text)
    write_block(function.body, text)
    body = [*text.entry, *text.lines]
    declarations = sorted(text.declarations)
    head = f"define void @{name}(ptr noalias %args, i64 %first, i64 %last, ptr %fault) #0 {{"
    facts = 'nounwind "no-trapping-math"="true" "frame-pointer"="none"'
    if _is_crowded(function):
        facts += f" {CONSTANTS_STAY}"
    attributes = f"attributes #0 = {{ {facts} }}"
    return "\n".join([*declarations, "", head, "entry:", *body, "}", "", attributes, ""])


CROWD = 8
"""Half of 16 registers."""


def _is_crowded(function: loop.Func) -> bool:
    """Whether sums of a loop and constants beside it would compete for 16 registers.

    The constants are those of a function in the epilogue of a product. Where registers have 64 bytes, there
    are 32.
    """
    ops = list(function.walk())
    sums = [
        sum(isinstance(value.type, VectorType) for value in op.initial)
        for op in ops
        if isinstance(op, loop.For)
    ]
    if max(sums, default=0) < CROWD:
        return False
    registers = [
        value.type for op in ops for value in op.results if isinstance(value.type, VectorType)
    ]
    if any(type.lanes * type.dtype.bytes >= 64 for type in registers):
        return False
    constants = {
        op.value
        for op in ops
        if isinstance(op, scalar.Constant) and isinstance(op.type, VectorType)
    }
    return len(constants) >= CROWD


def _prologue(function: loop.Func, text: FunctionText) -> None:
    first, last, *arguments = function.body.arguments
    text.names[first], text.names[last] = "%first", "%last"
    for position, argument in enumerate(arguments):
        place = text.assign(f"getelementptr i64, ptr %args, i64 {position}")
        text.names[argument] = text.assign(f"load {llvm_type(argument.type)}, ptr {place}, align 8")


def write_block(block: Block, text: FunctionText) -> tuple[str, ...]:
    """Write a block and return the names of the values that its terminator yields."""
    for op in block:
        if op.terminator:
            if isinstance(op, loop.Return):
                text.line("ret void")
            return tuple([text.name(operand) for operand in op.operands])
        writer = WRITERS.get(type(op))
        if writer is None:
            raise op.fail(f"{op.name} is not an operation of a loop")
        results = writer(op, text)
        for value, result in zip(op.results, results, strict=True):
            text.names[value] = result
    raise AssertionError("the block has no terminator")


# Control.


@writes(loop.For)
def _for(op: loop.For, text: FunctionText) -> tuple[str, ...]:
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
    carried = write_block(op.body, text)
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
def _while(op: loop.While, text: FunctionText) -> tuple[str, ...]:
    head, body, done = text.fresh_label(), text.fresh_label(), text.fresh_label()
    before = text.label
    initial = [text.name(value) for value in op.initial]
    text.line(f"br label %{head}")
    text.start(head)
    names = [text.fresh() for _ in initial]
    marks = len(text.lines)
    text.names.update(zip(op.condition.arguments, names, strict=True))
    text.names.update(zip(op.body.arguments, names, strict=True))
    (test,) = write_block(op.condition, text)
    tested = text.label
    text.line(f"br i1 {test}, label %{body}, label %{done}")
    text.start(body)
    carried = write_block(op.body, text)
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
def _if(op: loop.If, text: FunctionText) -> tuple[str, ...]:
    yes, no, done = text.fresh_label(), text.fresh_label(), text.fresh_label()
    text.line(f"br i1 {text.name(op.condition)}, label %{yes}, label %{no}")
    text.start(yes)
    from_yes = write_block(op.then, text)
    end_yes = text.label
    text.line(f"br label %{done}")
    text.start(no)
    from_no = write_block(op.otherwise, text)
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
def _fail(op: loop.Fail, text: FunctionText) -> tuple[str, ...]:
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
def _call(op: loop.Call, text: FunctionText) -> tuple[str, ...]:
    text.call(op.callee, *[(llvm_type(value.type), text.name(value)) for value in op.arguments])
    return ()


@writes(loop.Imported)
def _imported(op: loop.Imported, text: FunctionText) -> tuple[str, ...]:
    """The table of imports holds addresses: the word is the address of a symbol of its name."""
    text.declarations[f'@"{op.symbol}" = external global i8'] = None
    return (text.assign(f'ptrtoint ptr @"{op.symbol}" to i64'),)


# Memory.


@writes(loop.Buffer)
def _buffer(op: loop.Buffer, text: FunctionText) -> tuple[str, ...]:
    name = text.fresh()
    text.entry.append(f"  {name} = alloca [{op.elements} x {memory_type(op.dtype)}], align 64")
    return (name,)


def _address(text: FunctionText, pointer: Value, index: Value, type: Type) -> str:
    dtype = memory_type(element(type))
    return text.assign(f"getelementptr {dtype}, ptr {text.name(pointer)}, i64 {text.name(index)}")


@writes(loop.Offset)
def _offset(op: loop.Offset, text: FunctionText) -> tuple[str, ...]:
    return (_address(text, op.pointer, op.index, op.dtype),)


@writes(loop.Load, vec.Load)
def _load(op: loop.Load | vec.Load, text: FunctionText) -> tuple[str, ...]:
    type = op.result.type
    place = _address(text, op.pointer, op.index, type)
    raw = text.assign(f"load {memory_type(type)}, ptr {place}, align {_alignment(op, type)}")
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
def _store(op: loop.Store | vec.Store, text: FunctionText) -> tuple[str, ...]:
    type = op.value.type
    place = _address(text, op.pointer, op.index, type)
    raw = _to_memory(text, op.value)
    text.line(f"store {memory_type(type)} {raw}, ptr {place}, align {_alignment(op, type)}")
    return ()


def _alignment(op: Op, type: Type) -> int:
    """The known alignment of an access in bytes."""
    known = op.alignment if isinstance(op, vec.Load | vec.Store) else None
    return known or element(type).bytes


@writes(loop.Prefetch)
def _prefetch(op: loop.Prefetch, text: FunctionText) -> tuple[str, ...]:
    place = _address(text, op.pointer, op.index, op.dtype)
    read, near, data = ("i32", "0"), ("i32", "3"), ("i32", "1")
    text.call("llvm.prefetch.p0", ("ptr", place), read, near, data)
    return ()


@writes(vec.Gather)
def _gather(op: vec.Gather, text: FunctionText) -> tuple[str, ...]:
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
def _scatter(op: vec.Scatter, text: FunctionText) -> tuple[str, ...]:
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
def _broadcast(op: vec.Broadcast, text: FunctionText) -> tuple[str, ...]:
    return (_splat(text, text.name(op.source), op.result.type),)


def _splat(text: FunctionText, one: str, type: Type) -> str:
    assert isinstance(type, VectorType)
    spelled, lanes = llvm_type(type), type.lanes
    single = text.assign(f"insertelement {spelled} poison, {llvm_type(type.dtype)} {one}, i64 0")
    return text.assign(
        f"shufflevector {spelled} {single}, {spelled} poison, <{lanes} x i32> zeroinitializer"
    )


@writes(vec.Ramp)
def _ramp(op: vec.Ramp, text: FunctionText) -> tuple[str, ...]:
    start = _splat(text, text.name(op.start), op.result.type)
    number = llvm_type(op.start.type)
    steps = ", ".join(f"{number} {lane}" for lane in range(op.lanes))
    return (text.assign(f"add {llvm_type(op.result.type)} {start}, <{steps}>"),)


@writes(vec.Shuffle)
def _shuffle(op: vec.Shuffle, text: FunctionText) -> tuple[str, ...]:
    type = llvm_type(op.one.type)
    order = ", ".join(f"i32 {lane}" for lane in op.order)
    one, other = text.name(op.one), text.name(op.other)
    mask = f"<{len(op.order)} x i32> <{order}>"
    return (text.assign(f"shufflevector {type} {one}, {type} {other}, {mask}"),)


DOT_PAIRS = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}
"""Intrinsics by the lanes of i32. With the addition behind them LLVM makes one instruction where the
processor has it."""


@writes(vec.DotPairs)
def _dot_pairs(op: Op, text: FunctionText) -> tuple[str, ...]:
    assert isinstance(op, vec.DotPairs)
    type = op.sum.type
    assert isinstance(type, VectorType)
    if type.dtype is F32:
        return (_dot_bf16_pairs(op, type, text),)
    whole, halves = llvm_type(type), llvm_type(VectorType(I16, 2 * type.lanes))
    pairs = [
        (halves, text.assign(f"bitcast {whole} {text.name(value)} to {halves}"))
        for value in (op.lhs, op.rhs)
    ]
    products = text.intrinsic(whole, f"llvm.x86.{DOT_PAIRS[type.lanes]}", *pairs)
    return (text.assign(f"add {whole} {products}, {text.name(op.sum)}"),)


def _dot_bf16_pairs(op: vec.DotPairs, type: VectorType, text: FunctionText) -> str:
    """The sums with `vdpbf16ps`, which takes registers of bf16."""
    whole, halves = llvm_type(type), f"<{2 * type.lanes} x bfloat>"
    pairs = [
        (halves, text.assign(f"bitcast {llvm_type(value.type)} {text.name(value)} to {halves}"))
        for value in (op.lhs, op.rhs)
    ]
    name = f"llvm.x86.avx512bf16.dpbf16ps.{type.lanes * 32}"
    return text.intrinsic(whole, name, (whole, text.name(op.sum)), *pairs)


@writes(vec.Reduce)
def _reduce(op: vec.Reduce, text: FunctionText) -> tuple[str, ...]:
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
