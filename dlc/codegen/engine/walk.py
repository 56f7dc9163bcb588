"""The state of a thread in a program, its *walk*, as LLVM text.

The walk is an array of words on the stack of the thread, indexed by `WalkWord`. This module evaluates
arguments and writes failures into the call.
"""

from __future__ import annotations

from dlc.codegen.engine.decisions import WalkWord
from dlc.runtime.abi import ArgKind, ArgWord, CallWord, FaultWord, Status, StepWord

ORDER_SHIFT = 24
LAST_IN_WAVE = (1 << ORDER_SHIFT) - 1
"""The position of a failure after every op of a wave."""


def step_words(*names: str) -> str:
    """Lines that load fields of step `%step` of `%program`: `step_words("A")` defines %a."""
    lines = ["  %fields = call ptr @at(ptr %program, i64 %step)"]
    lines += [
        f"  %{name.lower()} = call i64 @get(ptr %fields, i64 {StepWord[name]})" for name in names
    ]
    return "\n".join(lines)


def call_tables(*names: str) -> str:
    """Lines that load pointers of `%call`: `call_tables("SIZES")` defines %sizes."""
    return "\n".join(
        f"  %{name.lower()} = call ptr @pointer(ptr %call, i64 {CallWord[name]})" for name in names
    )


def walk_word(name: str) -> str:
    """The line that loads a word of `%walk`, in lower case."""
    return f"  %{name.lower()} = call i64 @get(ptr %walk, i64 {WalkWord[name]})"


_FAULTS = f"""
; ---- failures

; Takes note of a failure, unless an earlier one in program order is known.
define internal void @note_fault(ptr %call, i64 %order, i64 %op, ptr %fault) {{
entry:
  %lock = call ptr @at(ptr %call, i64 {CallWord.LOCK})
  br label %try

try:
  %taken = cmpxchg ptr %lock, i64 0, i64 1 acquire monotonic
  %mine = extractvalue {{ i64, i1 }} %taken, 1
  br i1 %mine, label %compare, label %wait

wait:
  call void @relax()
  br label %try

compare:
  %tile = call i64 @get(ptr %fault, i64 {FaultWord.TILE})
  %known = call i64 @get(ptr %call, i64 {CallWord.STATUS})
  %known_order = call i64 @get(ptr %call, i64 {CallWord.STATUS_ORDER})
  %known_tile = call i64 @get(ptr %call, i64 {CallWord.STATUS_TILE})
  %is_first = icmp eq i64 %known, {Status.OK}
  %earlier = call i64 @is_earlier(i64 %order, i64 %tile, i64 %known_order, i64 %known_tile)
  %is_earlier = icmp ne i64 %earlier, 0
  %matters = or i1 %is_first, %is_earlier
  br i1 %matters, label %write, label %unlock

write:
  %status = call i64 @get(ptr %fault, i64 {FaultWord.STATUS})
  %a = call i64 @get(ptr %fault, i64 {FaultWord.A})
  %b = call i64 @get(ptr %fault, i64 {FaultWord.B})
  call void @put(ptr %call, i64 {CallWord.STATUS}, i64 %status)
  call void @put(ptr %call, i64 {CallWord.STATUS_STEP}, i64 %op)
  call void @put(ptr %call, i64 {CallWord.STATUS_TILE}, i64 %tile)
  call void @put(ptr %call, i64 {CallWord.STATUS_A}, i64 %a)
  call void @put(ptr %call, i64 {CallWord.STATUS_B}, i64 %b)
  call void @put(ptr %call, i64 {CallWord.STATUS_ORDER}, i64 %order)
  br label %unlock

unlock:
  store atomic i64 0, ptr %lock release, align 8
  ret void
}}

; Ends the call for another reason than a tile that failed.
define internal void @end_early(ptr %walk, i64 %within, i64 %op, i64 %status, i64 %a) {{
  %call = call ptr @pointer(ptr %walk, i64 {WalkWord.CALL})
{walk_word("ORDER")}
  %place = or i64 %order, %within
  %fault = call ptr @at(ptr %walk, i64 {WalkWord.FAULT})
  call void @put(ptr %fault, i64 {FaultWord.STATUS}, i64 %status)
  call void @put(ptr %fault, i64 {FaultWord.TILE}, i64 0)
  call void @put(ptr %fault, i64 {FaultWord.A}, i64 %a)
  call void @put(ptr %fault, i64 {FaultWord.B}, i64 0)
  call void @note_fault(ptr %call, i64 %place, i64 %op, ptr %fault)
  ret void
}}
"""
_ARGUMENTS = f"""
; ---- arguments

define internal ptr @counter(ptr %walk, i64 %number) alwaysinline {{
  %word = add i64 %number, {WalkWord.COUNTERS}
  %place = call ptr @at(ptr %walk, i64 %word)
  ret ptr %place
}}

; The value of an argument, which is a word of the program.
define internal i64 @resolve(ptr %walk, ptr %call, i64 %argument) {{
{call_tables("PROGRAM", "SIZES", "ROOTS")}
  %value = call i64 @argument_value(ptr %program, ptr %sizes, ptr %roots, ptr %walk,
                                    i64 %argument)
  %kind_word = add i64 %argument, {ArgWord.KIND}
  %kind = call i64 @get(ptr %program, i64 %kind_word)
  %is_loaded = icmp eq i64 %kind, {ArgKind.LOADED}
  br i1 %is_loaded, label %load, label %done

load:
  %memory = inttoptr i64 %value to ptr
  %content = load i64, ptr %memory, align 1
  ret i64 %content

done:
  ret i64 %value
}}
"""
WALK = _FAULTS + _ARGUMENTS
