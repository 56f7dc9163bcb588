"""How the engine does a wave, as LLVM text: sharing its tiles, running kernels, the barrier before it.

Barriers are paid late: a wave leaves behind that one is owed, and it is passed before the first step
that another thread's work could matter to. So waves that thread 0 does alone need none between them.
"""

from __future__ import annotations

from dlc.codegen.engine_walk import LAST_IN_WAVE, ORDER_SHIFT, WalkWord, step_words, walk_word
from dlc.runtime.abi import (
    ARG_WORDS,
    GRAIN,
    HEADER_WORDS,
    STEP_WORDS,
    CallWord,
    FaultWord,
    Opcode,
    Status,
    StepWord,
    TraceWord,
)

_SHARED_AT = 2  # program[2]

WAVES = f"""
; ---- waves

; What the tiles of a wave cost together. `%step` is the WAVE step, followed by `%calls` CALL steps.
define internal i64 @wave_cost(ptr %call, ptr %step, i64 %calls) {{
entry:
  br label %next

next:
  %index = phi i64 [0, %entry], [%after, %add]
  %sum = phi i64 [0, %entry], [%sum_after, %add]
  %more = icmp slt i64 %index, %calls
  br i1 %more, label %add, label %done

add:
  %after = add i64 %index, 1
  %words = mul i64 %after, {STEP_WORDS}
  %op = call ptr @at(ptr %step, i64 %words)
  %tiles_index = call i64 @get(ptr %op, i64 {StepWord.D})
  %cost_index = call i64 @get(ptr %op, i64 {StepWord.E})
  %tiles = call i64 @size(ptr %call, i64 %tiles_index)
  %cost = call i64 @size(ptr %call, i64 %cost_index)
  %product = mul i64 %tiles, %cost
  %sum_after = add i64 %sum, %product
  br label %next

done:
  ret i64 %sum
}}

; How many threads, of so many, a wave of this cost employs; at least 1.
define internal i64 @employed(i64 %cost, i64 %threads) alwaysinline {{
  %worth = udiv i64 %cost, {GRAIN}
  %at_most = call i64 @llvm.smin.i64(i64 %worth, i64 %threads)
  %at_least = call i64 @llvm.smax.i64(i64 %at_most, i64 1)
  ret i64 %at_least
}}

; How many threads the busiest wave of the program employs, of the number wanted.
define internal i64 @useful_threads(ptr %call, i64 %wanted) {{
entry:
  %program = call ptr @pointer(ptr %call, i64 {CallWord.PROGRAM})
  %steps = call i64 @get(ptr %program, i64 0)
  %is_shared = call i64 @get(ptr %program, i64 {_SHARED_AT})
  %is_alone = icmp eq i64 %is_shared, 0
  %one = icmp sle i64 %wanted, 1
  %none = or i1 %is_alone, %one
  br i1 %none, label %alone, label %next

alone:
  ret i64 1

next:
  %index = phi i64 [0, %entry], [%index_after, %skip]
  %most = phi i64 [1, %entry], [%most_after, %skip]
  %in_program = icmp slt i64 %index, %steps
  %unsettled = icmp slt i64 %most, %wanted
  %more = and i1 %in_program, %unsettled
  br i1 %more, label %look, label %done

look:
  %words = mul i64 %index, {STEP_WORDS}
  %word = add i64 %words, {HEADER_WORDS}
  %step = call ptr @at(ptr %program, i64 %word)
  %opcode = call i64 @get(ptr %step, i64 {StepWord.OPCODE})
{step_words("A", "C")}
  %is_wave = icmp eq i64 %opcode, {Opcode.WAVE}
  %may_share = icmp eq i64 %c, 0
  %counts = and i1 %is_wave, %may_share
  br i1 %counts, label %weigh, label %skip

weigh:
  %cost = call i64 @wave_cost(ptr %call, ptr %step, i64 %a)
  %workers = call i64 @employed(i64 %cost, i64 %wanted)
  %more_workers = call i64 @llvm.smax.i64(i64 %most, i64 %workers)
  br label %skip

skip:
  %most_after = phi i64 [%most, %look], [%more_workers, %weigh]
  %index_after = add i64 %index, 1
  br label %next

done:
  ret i64 %most
}}

; The first tile of an op that lies at or after `%mark`, all counted in cost from where the op begins.
define internal i64 @first_tile(i64 %mark, i64 %begin, i64 %cost, i64 %tiles) {{
entry:
  %before = icmp sle i64 %mark, %begin
  br i1 %before, label %first, label %divide

first:
  ret i64 0

divide:
  %distance = sub i64 %mark, %begin
  %almost = add i64 %distance, %cost
  %rounded_up = sub i64 %almost, 1
  %tile = udiv i64 %rounded_up, %cost
  %inside = call i64 @llvm.smin.i64(i64 %tile, i64 %tiles)
  ret i64 %inside
}}

; This thread's stretch of a wave that costs `%sum` and employs `%workers` threads.
; Stops at the first tile that fails.
define internal void @work(ptr %walk, ptr %step, i64 %calls, i64 %sum, i64 %workers) {{
entry:
  %call = call ptr @pointer(ptr %walk, i64 {WalkWord.CALL})
{walk_word("THREAD")}
  %is_alone = icmp eq i64 %workers, 1
  br i1 %is_alone, label %next, label %divide

divide:
  %share = mul i64 %sum, %thread
  %share_after = add i64 %share, %sum
  %share_begin = udiv i64 %share, %workers
  %share_end = udiv i64 %share_after, %workers
  br label %next

next:
  %from = phi i64 [0, %entry], [%share_begin, %divide], [%from, %continue]
  %to = phi i64 [0, %entry], [%share_end, %divide], [%to, %continue]
  %index = phi i64 [0, %entry], [0, %divide], [%index_after, %continue]
  %begin = phi i64 [0, %entry], [0, %divide], [%end, %continue]
  %more = icmp slt i64 %index, %calls
  br i1 %more, label %measure, label %done

measure:
  %index_after = add i64 %index, 1
  %words = mul i64 %index_after, {STEP_WORDS}
  %op = call ptr @at(ptr %step, i64 %words)
  %tiles_index = call i64 @get(ptr %op, i64 {StepWord.D})
  %tiles = call i64 @size(ptr %call, i64 %tiles_index)
  br i1 %is_alone, label %compute, label %cut

cut:
  %cost_index = call i64 @get(ptr %op, i64 {StepWord.E})
  %cost = call i64 @size(ptr %call, i64 %cost_index)
  %first_cut = call i64 @first_tile(i64 %from, i64 %begin, i64 %cost, i64 %tiles)
  %last_cut = call i64 @first_tile(i64 %to, i64 %begin, i64 %cost, i64 %tiles)
  %product = mul i64 %tiles, %cost
  %end_cut = add i64 %begin, %product
  br label %compute

compute:
  %first = phi i64 [0, %measure], [%first_cut, %cut]
  %last = phi i64 [%tiles, %measure], [%last_cut, %cut]
  %end = phi i64 [0, %measure], [%end_cut, %cut]
  %some = icmp slt i64 %first, %last
  br i1 %some, label %run, label %continue

run:
  %status = call i64 @run_kernel(ptr %walk, ptr %op, i64 %index, i64 %first, i64 %last)
  %fine = icmp eq i64 %status, {Status.OK}
  br i1 %fine, label %continue, label %failed

continue:
  br label %next

failed:
  call void @put(ptr %walk, i64 {WalkWord.FAILED}, i64 1)
  br label %done

done:
  ret void
}}

; Runs tiles `%first` up to `%last` of an op, the wave's number `%index`; returns the status.
define internal i64 @run_kernel(ptr %walk, ptr %step, i64 %index, i64 %first, i64 %last) {{
entry:
  %call = call ptr @pointer(ptr %walk, i64 {WalkWord.CALL})
  %args = call ptr @at(ptr %walk, i64 {WalkWord.ARGS})
  %fault = call ptr @at(ptr %walk, i64 {WalkWord.FAULT})
{step_words("A", "B", "C", "F")}
  %table = call ptr @argument(ptr %call, i64 %b)
  br label %next

next:
  %number = phi i64 [0, %entry], [%number_after, %add]
  %more = icmp slt i64 %number, %c
  br i1 %more, label %add, label %ready

add:
  %words = mul i64 %number, {ARG_WORDS}
  %argument = call ptr @at(ptr %table, i64 %words)
  %value = call i64 @resolve(ptr %walk, ptr %call, ptr %argument)
  call void @put(ptr %args, i64 %number, i64 %value)
  %number_after = add i64 %number, 1
  br label %next

ready:
  %code = call ptr @pointer(ptr %call, i64 {CallWord.CODE})
  %kernel = getelementptr i8, ptr %code, i64 %a
  call void @put(ptr %fault, i64 {FaultWord.STATUS}, i64 {Status.OK})
  %records = call i64 @get(ptr %call, i64 {CallWord.TRACE})
  %is_traced = icmp ne i64 %records, 0
  br i1 %is_traced, label %trace, label %plain

plain:
  call void %kernel(ptr %args, i64 %first, i64 %last, ptr %fault)
  br label %check

trace:
  %start = call i64 @cycles()
  call void %kernel(ptr %args, i64 %first, i64 %last, ptr %fault)
  %end = call i64 @cycles()
{walk_word("THREAD")}
  call void @record(ptr %call, i64 %f, i64 %thread, i64 %start, i64 %end)
  br label %check

check:
  %status = call i64 @get(ptr %fault, i64 {FaultWord.STATUS})
  %fine = icmp eq i64 %status, {Status.OK}
  br i1 %fine, label %done, label %failed

failed:
{walk_word("ORDER")}
  %place = or i64 %order, %index
  call void @note_fault(ptr %call, i64 %place, i64 %f, ptr %fault)
  br label %done

done:
  ret i64 %status
}}

; Writes a trace record if there is room.
define internal void @record(ptr %call, i64 %op, i64 %thread, i64 %start, i64 %end) {{
  %count = call ptr @at(ptr %call, i64 {CallWord.TRACE_COUNT})
  %number = atomicrmw add ptr %count, i64 1 monotonic
  %capacity = call i64 @get(ptr %call, i64 {CallWord.TRACE_CAPACITY})
  %fits = icmp ult i64 %number, %capacity
  br i1 %fits, label %write, label %done

write:
  %records = call ptr @pointer(ptr %call, i64 {CallWord.TRACE})
  %words = mul i64 %number, {TraceWord.COUNT}
  %record = call ptr @at(ptr %records, i64 %words)
  call void @put(ptr %record, i64 {TraceWord.OP}, i64 %op)
  call void @put(ptr %record, i64 {TraceWord.THREAD}, i64 %thread)
  call void @put(ptr %record, i64 {TraceWord.START}, i64 %start)
  call void @put(ptr %record, i64 {TraceWord.END}, i64 %end)
  br label %done

done:
  ret void
}}

; Passes the barrier that is owed, if any; returns 1 if the call is to end here.
define internal i64 @pay(ptr %walk) {{
entry:
{walk_word("OWED")}
  %owes = icmp ne i64 %owed, 0
  br i1 %owes, label %pass, label %none

none:
  ret i64 0

pass:
  %pool = call ptr @pointer(ptr %walk, i64 {WalkWord.POOL})
{walk_word("THREAD")}
{walk_word("THREADS")}
{walk_word("BARRIERS")}
{walk_word("FAILED")}
  %barrier = add i64 %barriers, 1
  call void @put(ptr %walk, i64 {WalkWord.BARRIERS}, i64 %barrier)
  call void @put(ptr %walk, i64 {WalkWord.OWED}, i64 0)
  call void @put(ptr %walk, i64 {WalkWord.SHARED}, i64 0)
  %leave = call i64 @barrier(ptr %pool, i64 %thread, i64 %threads, i64 %barrier, i64 %failed)
  ret i64 %leave
}}

; From here on a barrier stands before whatever comes next, even if thread 0 does it alone.
define internal void @owe(ptr %walk) alwaysinline {{
  call void @put(ptr %walk, i64 {WalkWord.OWED}, i64 1)
  call void @put(ptr %walk, i64 {WalkWord.SHARED}, i64 1)
  ret void
}}

; Whether one of the wave's ops is the one to stop after.
define internal i1 @stops(ptr %step, i64 %calls, i64 %stop) {{
entry:
  br label %next

next:
  %index = phi i64 [0, %entry], [%after, %look]
  %more = icmp slt i64 %index, %calls
  br i1 %more, label %look, label %no

look:
  %after = add i64 %index, 1
  %words = mul i64 %after, {STEP_WORDS}
  %op = call ptr @at(ptr %step, i64 %words)
  %id = call i64 @get(ptr %op, i64 {StepWord.F})
  %found = icmp eq i64 %id, %stop
  br i1 %found, label %yes, label %next

yes:
  ret i1 true

no:
  ret i1 false
}}

; One wave, and the barrier before it. Returns 1 if the call is to end here.
define internal i64 @wave(ptr %walk, ptr %step) {{
entry:
  %call = call ptr @pointer(ptr %walk, i64 {WalkWord.CALL})
{walk_word("THREAD")}
{walk_word("THREADS")}
{walk_word("ORDER")}
{step_words("A", "B", "C")}
  %order_after = add i64 %order, {1 << ORDER_SHIFT}
  call void @put(ptr %walk, i64 {WalkWord.ORDER}, i64 %order_after)
  %one_thread = icmp eq i64 %threads, 1
  %is_serial = icmp ne i64 %c, 0
  %is_alone = or i1 %one_thread, %is_serial
  br i1 %is_alone, label %divided, label %divide

divide:
  %cost = call i64 @wave_cost(ptr %call, ptr %step, i64 %a)
  %crew = call i64 @employed(i64 %cost, i64 %threads)
  br label %divided

divided:
  %sum = phi i64 [0, %entry], [%cost, %divide]
  %workers = phi i64 [1, %entry], [%crew, %divide]
  %several = icmp sgt i64 %workers, 1
  %shared_now = zext i1 %several to i64
  %shared_before = call i64 @get(ptr %walk, i64 {WalkWord.SHARED})
  %shared = or i64 %shared_before, %shared_now
  %matters = icmp ne i64 %shared, 0
  br i1 %matters, label %meet, label %begin

meet:
  %leave = call i64 @pay(ptr %walk)
  %goes_on = icmp eq i64 %leave, 0
  br i1 %goes_on, label %met, label %end

met:
  ; Without a barrier owed, what was shared before stays so.
  %still_shared = call i64 @get(ptr %walk, i64 {WalkWord.SHARED})
  %shared_then = or i64 %still_shared, %shared_now
  call void @put(ptr %walk, i64 {WalkWord.SHARED}, i64 %shared_then)
  br label %begin

begin:
  %failed = call i64 @get(ptr %walk, i64 {WalkWord.FAILED})
  %sound = icmp eq i64 %failed, 0
  %employed = icmp slt i64 %thread, %workers
  %works = and i1 %sound, %employed
  br i1 %works, label %work, label %finish

work:
  call void @work(ptr %walk, ptr %step, i64 %a, i64 %sum, i64 %workers)
  br label %finish

finish:
  %barrier_owed = call i64 @get(ptr %walk, i64 {WalkWord.OWED})
  %owed_now = or i64 %barrier_owed, %b
  call void @put(ptr %walk, i64 {WalkWord.OWED}, i64 %owed_now)
  call void @notice_cancel(ptr %walk, ptr %call)
  %stop = call i64 @get(ptr %call, i64 {CallWord.STOP_AFTER})
  %may_stop = icmp sge i64 %stop, 0
  br i1 %may_stop, label %look_for_stop, label %judge

look_for_stop:
  %is_here = call i1 @stops(ptr %step, i64 %a, i64 %stop)
  br i1 %is_here, label %stop_here, label %judge

stop_here:
  call void @end_early(ptr %walk, i64 {LAST_IN_WAVE}, i64 %stop, i64 {Status.STOPPED}, i64 0)
  ret i64 1

judge:
  ; With others on their way, a failure waits for the next barrier.
  %failed_now = call i64 @get(ptr %walk, i64 {WalkWord.FAILED})
  %alone = zext i1 %one_thread to i64
  %ends = and i64 %failed_now, %alone
  ret i64 %ends

end:
  ret i64 1
}}

; Thread 0 looks whether someone wants the call to end.
define internal void @notice_cancel(ptr %walk, ptr %call) {{
entry:
  %flag = call ptr @pointer(ptr %call, i64 {CallWord.CANCEL})
{walk_word("THREAD")}
  %none = icmp eq ptr %flag, null
  %other = icmp ne i64 %thread, 0
  %skip = or i1 %none, %other
  br i1 %skip, label %done, label %look

look:
  %value = load atomic i32, ptr %flag monotonic, align 4
  %wanted = icmp ne i32 %value, 0
  br i1 %wanted, label %cancel, label %done

cancel:
  call void @end_early(ptr %walk, i64 {LAST_IN_WAVE}, i64 -1, i64 {Status.CANCELLED}, i64 0)
  call void @put(ptr %walk, i64 {WalkWord.FAILED}, i64 1)
  br label %done

done:
  ret void
}}
"""
