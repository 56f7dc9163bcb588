"""LLVM text of a kernel for NVIDIA GPUs: the operations of the loop level, and those of a block of threads.

The parameters of a kernel are its pointers and sizes, 8 bytes each, and the address of the words to which
it writes a failure. A block of threads computes the tile with the number of the block.
"""

from __future__ import annotations

from collections.abc import Mapping

from dlc.codegen.llvm.loop import write_block
from dlc.codegen.llvm.text import FunctionText, llvm_type, memory_type, writes
from dlc.codegen.nvptx.fragments import SHARED
from dlc.dialects import simt
from dlc.ir.core import Op
from dlc.ir.types import DType, VectorType

ALL = -1
"""The mask of all threads of a warp."""
WHOLE_WARP = 31
"""The operand of `shfl` for segments of 32 threads."""
SHARED_ALIGNMENT = 16


def kernel_text(function: simt.Func, name: str) -> str:
    """The text of a module with the kernel, under the name `name`."""
    text = FunctionText(name)
    tile, thread, *arguments = function.body.arguments
    if function.dynamic_bytes:
        _place_buffers(function, text)
    for value, register in ((tile, "ctaid.x"), (thread, "tid.x")):
        number = text.intrinsic("i32", f"llvm.nvvm.read.ptx.sreg.{register}")
        text.names[value] = text.assign(f"zext i32 {number} to i64")
    parameters: list[str] = []
    for position, argument in enumerate(arguments):
        text.names[argument] = f"%a{position}"
        parameters.append(f"{llvm_type(argument.type)} %a{position}")
    write_block(function.body, text)
    head = f"define ptx_kernel void @{name}({', '.join([*parameters, 'ptr %fault'])}) #0 {{"
    # By default ptxas aims at 64 registers, and spills a few bytes rather than use some more.
    bounds = f'"nvvm.maxntid"="{function.threads}" "nvvm.minctasm"="{function.blocks}"'
    attributes = f"attributes #0 = {{ nounwind {bounds} }}"
    body = [*text.entry, *text.lines]
    return "\n".join(
        [*sorted(text.declarations), "", head, "entry:", *body, "}", "", attributes, ""]
    )


def _place_buffers(function: simt.Func, text: FunctionText) -> None:
    """Name the buffers of a kernel as parts of the shared memory that a launch asks for."""
    whole = f"@{text.function}_shared"
    text.declarations[
        f"{whole} = external addrspace({SHARED}) global [0 x i8], align {SHARED_ALIGNMENT}"
    ] = None
    for op, begin in function.shared().items():
        place = text.assign(f"getelementptr i8, ptr addrspace({SHARED}) {whole}, i64 {begin}")
        text.names[op.result] = text.assign(f"addrspacecast ptr addrspace({SHARED}) {place} to ptr")


@writes(simt.Shared)
def _shared(op: simt.Shared, text: FunctionText) -> tuple[str, ...]:
    if op.result in text.names:
        return (text.names[op.result],)
    room = f"@{text.function}.{text.fresh()[1:]}"
    type = f"[{op.elements} x {memory_type(op.dtype)}]"
    text.declarations[
        f"{room} = internal addrspace({SHARED}) global {type} poison, align {SHARED_ALIGNMENT}"
    ] = None
    return (f"addrspacecast (ptr addrspace({SHARED}) {room} to ptr)",)


@writes(simt.Barrier)
def _barrier(op: Op, text: FunctionText) -> tuple[str, ...]:
    text.call("llvm.nvvm.barrier.cta.sync.aligned.all", ("i32", "0"))
    return ()


APPROXIMATIONS: Mapping[type[Op], str] = {
    simt.Exp2: "llvm.nvvm.ex2.approx.ftz.f",
    simt.Divide: "llvm.nvvm.div.full",
    simt.Sqrt: "llvm.nvvm.sqrt.approx.f",
    simt.Rsqrt: "llvm.nvvm.rsqrt.approx.f",
}
"""The intrinsics of functions by the special function unit."""


@writes(*APPROXIMATIONS)
def _approximation(op: Op, text: FunctionText) -> tuple[str, ...]:
    """The intrinsic of a number, or of each lane of a register."""
    intrinsic, type = APPROXIMATIONS[op.__class__], op.result.type
    names = [text.name(operand) for operand in op.operands]
    if not isinstance(type, VectorType):
        return (text.intrinsic("float", intrinsic, *[("float", name) for name in names]),)
    spelled, whole = llvm_type(type), "poison"
    for lane in range(type.lanes):
        parts = [text.assign(f"extractelement {spelled} {name}, i64 {lane}") for name in names]
        one = text.intrinsic("float", intrinsic, *[("float", part) for part in parts])
        whole = text.assign(f"insertelement {spelled} {whole}, float {one}, i64 {lane}")
    return (whole,)


@writes(simt.ShuffleXor)
def _exchange(op: simt.ShuffleXor, text: FunctionText) -> tuple[str, ...]:
    type, name = op.value.type, text.name(op.value)
    assert isinstance(type, DType)
    spelled, distance = llvm_type(type), op.distance
    if type.bits == 64:
        halves = text.assign(f"bitcast {spelled} {name} to <2 x i32>")
        result = "poison"
        for half in range(2):
            part = text.assign(f"extractelement <2 x i32> {halves}, i64 {half}")
            moved = _moved(text, part, distance)
            result = text.assign(f"insertelement <2 x i32> {result}, i32 {moved}, i64 {half}")
        return (text.assign(f"bitcast <2 x i32> {result} to {spelled}"),)
    if type.bits == 32:
        moved = _moved(text, text.assign(f"bitcast {spelled} {name} to i32"), distance)
        return (text.assign(f"bitcast i32 {moved} to {spelled}"),)
    moved = _moved(text, text.assign(f"zext {spelled} {name} to i32"), distance)
    return (text.assign(f"trunc i32 {moved} to {spelled}"),)


def _moved(text: FunctionText, word: str, distance: int) -> str:
    """A 32-bit word of the thread whose lane differs in the bits of `distance`."""
    numbers = [("i32", str(number)) for number in (distance, WHOLE_WARP)]
    return text.intrinsic(
        "i32", "llvm.nvvm.shfl.sync.bfly.i32", ("i32", str(ALL)), ("i32", word), *numbers
    )
