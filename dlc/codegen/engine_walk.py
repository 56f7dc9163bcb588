"""What a thread of the engine knows on its way through a program, its *walk*, as LLVM text.

The walk is words on the thread's own stack. Here are its layout, the values of arguments, and how a
failure is written into the call.
"""

from __future__ import annotations

from enum import IntEnum

from dlc.runtime.abi import (
    ARG_WORDS,
    MAX_ARGS,
    MAX_COUNTERS,
    THREAD,
    ArgKind,
    ArgWord,
    CallWord,
    FaultWord,
    Status,
    StepWord,
)


class WalkWord(IntEnum):
    """What a thread knows on its way through a program."""

    CALL = 0
    POOL = 1
    THREAD = 2
    THREADS = 3
    BARRIERS = 4  # passed so far
    OWED = 5  # 1 if a barrier is to be passed before anything that it could matter to
    SHARED = 6  # 1 if more than thread 0 has worked, or read, since the last barrier
    FAILED = 7  # 1 if this thread has seen a failure: it computes no more tiles
    ORDER = 8  # waves begun and limits tested, shifted left by `ORDER_SHIFT`
    FAULT = 9
    COUNTERS = 13
    COUNTS = 13 + MAX_COUNTERS  # the trip count of each counter's loop
    ARGS = 13 + 2 * MAX_COUNTERS
    COUNT = 13 + 2 * MAX_COUNTERS + MAX_ARGS


ORDER_SHIFT = 24
LAST_IN_WAVE = (1 << ORDER_SHIFT) - 1
"""In the order of failures: after every op of the wave."""

_ARGS_AT = 1  # program[1]


def step_words(*names: str) -> str:
    """Lines that load fields of `%step`: `step_words("A")` defines %a."""
    return "\n".join(
        f"  %{name.lower()} = call i64 @get(ptr %step, i64 {StepWord[name]})" for name in names
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
  %is_before = icmp ult i64 %order, %known_order
  %is_same = icmp eq i64 %order, %known_order
  %is_lower = icmp slt i64 %tile, %known_tile
  %is_lower_there = and i1 %is_same, %is_lower
  %is_earlier = or i1 %is_before, %is_lower_there
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

; Ends the call for a reason that all threads see alike; thread 0 takes note of it.
define internal void @end_early(ptr %walk, i64 %within, i64 %op, i64 %status, i64 %a) {{
entry:
{walk_word("THREAD")}
  %is_other = icmp ne i64 %thread, 0
  br i1 %is_other, label %done, label %note

note:
  %call = call ptr @pointer(ptr %walk, i64 {WalkWord.CALL})
{walk_word("ORDER")}
  %place = or i64 %order, %within
  %fault = call ptr @at(ptr %walk, i64 {WalkWord.FAULT})
  call void @put(ptr %fault, i64 {FaultWord.STATUS}, i64 %status)
  call void @put(ptr %fault, i64 {FaultWord.TILE}, i64 0)
  call void @put(ptr %fault, i64 {FaultWord.A}, i64 %a)
  call void @put(ptr %fault, i64 {FaultWord.B}, i64 0)
  call void @note_fault(ptr %call, i64 %place, i64 %op, ptr %fault)
  br label %done

done:
  ret void
}}
"""
_ARGUMENTS = f"""
; ---- arguments

define internal i64 @size(ptr %call, i64 %index) alwaysinline {{
  %sizes = call ptr @pointer(ptr %call, i64 {CallWord.SIZES})
  %value = call i64 @get(ptr %sizes, i64 %index)
  ret i64 %value
}}

define internal ptr @counter(ptr %walk, i64 %number) alwaysinline {{
  %word = add i64 %number, {WalkWord.COUNTERS}
  %place = call ptr @at(ptr %walk, i64 %word)
  ret ptr %place
}}

define internal ptr @argument(ptr %call, i64 %index) alwaysinline {{
  %program = call ptr @pointer(ptr %call, i64 {CallWord.PROGRAM})
  %table = call i64 @get(ptr %program, i64 {_ARGS_AT})
  %words = mul i64 %index, {ARG_WORDS}
  %word = add i64 %table, %words
  %place = call ptr @at(ptr %program, i64 %word)
  ret ptr %place
}}

; The value of an argument.
define internal i64 @resolve(ptr %walk, ptr %call, ptr %argument) {{
entry:
  %kind = call i64 @get(ptr %argument, i64 {ArgWord.KIND})
  %offset = call i64 @get(ptr %argument, i64 {ArgWord.OFFSET})
  %number = call i64 @get(ptr %argument, i64 {ArgWord.COUNTER})
  switch i64 %kind, label %pointer [
    i64 {ArgKind.SIZE}, label %size
    i64 {ArgKind.COUNTER}, label %counter
  ]

size:
  %value = call i64 @size(ptr %call, i64 %offset)
  ret i64 %value

counter:
  %its_place = call ptr @counter(ptr %walk, i64 %number)
  %count = load i64, ptr %its_place
  ret i64 %count

pointer:
  %root = call i64 @get(ptr %argument, i64 {ArgWord.ROOT})
  %roots = call ptr @pointer(ptr %call, i64 {CallWord.ROOTS})
  %start = call i64 @get(ptr %roots, i64 %root)
  %distance = call i64 @size(ptr %call, i64 %offset)
  %fixed = add i64 %start, %distance
  %is_fixed = icmp slt i64 %number, 0
  br i1 %is_fixed, label %found, label %moving

moving:
  %is_thread = icmp eq i64 %number, {THREAD}
  %counter_place = call ptr @counter(ptr %walk, i64 %number)
  %thread_place = call ptr @at(ptr %walk, i64 {WalkWord.THREAD})
  %place = select i1 %is_thread, ptr %thread_place, ptr %counter_place
  %steps = load i64, ptr %place
  %stride_index = call i64 @get(ptr %argument, i64 {ArgWord.STRIDE})
  %stride = call i64 @size(ptr %call, i64 %stride_index)
  %moved = mul i64 %steps, %stride
  %there = add i64 %fixed, %moved
  br label %found

found:
  %address = phi i64 [%fixed, %pointer], [%there, %moving]
  %is_loaded = icmp eq i64 %kind, {ArgKind.LOADED}
  br i1 %is_loaded, label %load, label %done

load:
  %memory = inttoptr i64 %address to ptr
  %content = load i64, ptr %memory, align 1
  ret i64 %content

done:
  ret i64 %address
}}
"""
WALK = _FAULTS + _ARGUMENTS
