"""LLVM text of a kernel for NVIDIA GPUs: the loop level's, and what threads of a block do together.

The kernel takes its pointers and sizes one by one, 8 bytes each, and last the address of the words in which
it notes a failure. A block of threads does the tile that has the block's number.
"""

from __future__ import annotations

from dlc.codegen.llvm.loop import write_block
from dlc.codegen.llvm.text import FunctionText, llvm_type, memory_type, writes
from dlc.codegen.nvptx.fragments import SHARED
from dlc.dialects import simt
from dlc.ir.core import Op
from dlc.ir.types import DType

ALL = -1
"""The mask of all threads of a warp."""
WHOLE_WARP = 31
"""What `shfl` is told for pieces of 32 threads."""
SHARED_ALIGNMENT = 16


def kernel_text(function: simt.Func, name: str) -> str:
    """A module's text with the one kernel, named `name`."""
    text = FunctionText(name)
    tile, thread, *arguments = function.body.arguments
    for value, register in ((tile, "ctaid.x"), (thread, "tid.x")):
        number = text.intrinsic("i32", f"llvm.nvvm.read.ptx.sreg.{register}")
        text.names[value] = text.assign(f"zext i32 {number} to i64")
    parameters: list[str] = []
    for position, argument in enumerate(arguments):
        text.names[argument] = f"%a{position}"
        parameters.append(f"{llvm_type(argument.type)} %a{position}")
    write_block(function.body, text)
    head = f"define ptx_kernel void @{name}({', '.join([*parameters, 'ptr %fault'])}) #0 {{"
    # Left to itself, ptxas aims at 64 registers and rather spills a few bytes than take some more.
    bounds = f'"nvvm.maxntid"="{function.threads}" "nvvm.minctasm"="{function.blocks}"'
    attributes = f"attributes #0 = {{ nounwind {bounds} }}"
    body = [*text.entry, *text.lines]
    return "\n".join(
        [*sorted(text.declarations), "", head, "entry:", *body, "}", "", attributes, ""]
    )


@writes(simt.Shared)
def _shared(op: Op, text: FunctionText) -> tuple[str, ...]:
    assert isinstance(op, simt.Shared)
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


@writes(simt.ShuffleXor)
def _exchange(op: Op, text: FunctionText) -> tuple[str, ...]:
    assert isinstance(op, simt.ShuffleXor)
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
    """A word of 32 bits from the thread at that distance."""
    numbers = [("i32", str(number)) for number in (distance, WHOLE_WARP)]
    return text.intrinsic(
        "i32", "llvm.nvvm.shfl.sync.bfly.i32", ("i32", str(ALL)), ("i32", word), *numbers
    )
