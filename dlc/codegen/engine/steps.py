"""The interpreter of the step table as LLVM text.

The caller's thread alone walks the program; workers take part in waves that it shares (`sharing`).
"""

from __future__ import annotations

from dlc.codegen.engine.decisions import WalkWord
from dlc.codegen.engine.walk import ORDER_SHIFT, call_tables, step_words, walk_word
from dlc.runtime.abi import Opcode, Status

STEPS = f"""
; ---- the walk

; Walks the program of a call, and shares its waves with the workers of a pool up to `%threads` threads.
define internal void @run(ptr %call, ptr %pool, i64 %threads) {{
entry:
  %walk = alloca [{WalkWord.COUNT} x i64], align 64
  %call_word = ptrtoint ptr %call to i64
  %pool_word = ptrtoint ptr %pool to i64
  call void @put(ptr %walk, i64 {WalkWord.CALL}, i64 %call_word)
  call void @put(ptr %walk, i64 {WalkWord.POOL}, i64 %pool_word)
  call void @put(ptr %walk, i64 {WalkWord.THREAD}, i64 0)
  call void @put(ptr %walk, i64 {WalkWord.THREADS}, i64 %threads)
  call void @put(ptr %walk, i64 {WalkWord.ORDER}, i64 0)
  call void @put(ptr %walk, i64 {WalkWord.BACKWARD}, i64 0)
{call_tables("PROGRAM", "SIZES")}
  br label %next

next:
  %index = phi i64 [0, %entry], [%wave_end, %wave], [%loop_to, %loop], [%next_to, %next_step],
                   [%branch_to, %branch], [%following, %limit_passed], [%following, %zero],
                   [%a, %jump], [%following, %combine]
  %step = call i64 @step_word(i64 %index)
{step_words("OPCODE", "A", "B", "C")}
  %following = add i64 %index, 1
  switch i64 %opcode, label %leave [
    i64 {Opcode.WAVE}, label %wave
    i64 {Opcode.LOOP}, label %loop
    i64 {Opcode.NEXT}, label %next_step
    i64 {Opcode.BRANCH}, label %branch
    i64 {Opcode.LIMIT}, label %limit
    i64 {Opcode.ZERO}, label %zero
    i64 {Opcode.JUMP}, label %jump
    i64 {Opcode.COMBINE}, label %combine
  ]

wave:
  %wave_end = add i64 %following, %a
  %ended = call i64 @wave(ptr %walk, i64 %step)
  %stays = icmp eq i64 %ended, 0
  br i1 %stays, label %next, label %leave

loop:
  %trip = call i64 @argument_word(ptr %program, i64 %b)
  %trips = call i64 @resolve(ptr %walk, ptr %call, i64 %trip)
  %has_round = call i64 @enter_loop(ptr %walk, i64 %a, i64 %trips)
  %enters = icmp ne i64 %has_round, 0
  %loop_to = select i1 %enters, i64 %following, i64 %c
  br label %next

next_step:
  %goes_on = call i64 @next_round(ptr %walk, i64 %a)
  %again = icmp ne i64 %goes_on, 0
  %next_to = select i1 %again, i64 %c, i64 %following
  br label %next

branch:
  %condition = call i64 @argument_word(ptr %program, i64 %a)
  %condition_word = call i64 @resolve(ptr %walk, ptr %call, i64 %condition)
  %condition_place = inttoptr i64 %condition_word to ptr
  %byte = load i8, ptr %condition_place
  %is_false = icmp eq i8 %byte, 0
  %branch_to = select i1 %is_false, i64 %b, i64 %c
  br label %next

limit:
  {walk_word("ORDER").strip()}
  %order_after = add i64 %order, {1 << ORDER_SHIFT}
  call void @put(ptr %walk, i64 {WalkWord.ORDER}, i64 %order_after)
  %limit_counter = call ptr @counter(ptr %walk, i64 %a)
  %turns = load i64, ptr %limit_counter
  %turns_allowed = call i64 @get(ptr %sizes, i64 %b)
  %too_many = icmp sge i64 %turns, %turns_allowed
  br i1 %too_many, label %limit_reached, label %limit_passed

limit_reached:
  call void @end_early(ptr %walk, i64 0, i64 %c, i64 {Status.LIMIT}, i64 %turns_allowed)
  br label %leave

limit_passed:
  %turns_after = add i64 %turns, 1
  store i64 %turns_after, ptr %limit_counter
  br label %next

zero:
  %zero_counter = call ptr @counter(ptr %walk, i64 %a)
  store i64 0, ptr %zero_counter
  br label %next

jump:
  br label %next

combine:
  call i64 @combine(ptr %program, ptr %sizes, ptr %walk, i64 %step)
  br label %next

leave:
  ret void
}}
"""
