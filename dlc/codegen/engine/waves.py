"""Waves of the engine as LLVM text: the tiles of a chunk, running kernels, the end of a wave."""

from __future__ import annotations

from dlc.codegen.engine.decisions import WalkWord
from dlc.codegen.engine.walk import LAST_IN_WAVE, ORDER_SHIFT, call_tables, step_words, walk_word
from dlc.runtime.abi import (
    ARG_WORDS,
    STEP_WORDS,
    CallWord,
    FaultWord,
    Status,
    StepWord,
    TraceWord,
)

WAVES = f"""
; ---- waves

; Computes a chunk of a wave that costs `%sum`: the tiles that begin in this one of `%chunks` equal parts.
; Stops after the first op that fails.
define internal void @work(ptr %walk, i64 %step, i64 %sum, i64 %chunk, i64 %chunks) {{
entry:
  %call = call ptr @pointer(ptr %walk, i64 {WalkWord.CALL})
{call_tables("PROGRAM", "SIZES")}
{walk_word("BACKWARD")}
{step_words("A", "B")}
  %turns = icmp ne i64 %backward, 0
  %may_turn = icmp eq i64 %b, 0
  %is_backward = and i1 %turns, %may_turn
  %is_whole = icmp eq i64 %chunks, 1
  br i1 %is_whole, label %next, label %divide

divide:
  %next_chunk = add i64 %chunk, 1
  %chunk_begin = call i64 @part_begin(i64 %sum, i64 %chunk, i64 %chunks)
  %chunk_end = call i64 @part_begin(i64 %sum, i64 %next_chunk, i64 %chunks)
  br label %next

next:
  %from = phi i64 [0, %entry], [%chunk_begin, %divide], [%from, %continue]
  %to = phi i64 [0, %entry], [%chunk_end, %divide], [%to, %continue]
  %index = phi i64 [0, %entry], [0, %divide], [%index_after, %continue]
  %begin = phi i64 [0, %entry], [0, %divide], [%end, %continue]
  %more = icmp slt i64 %index, %a
  br i1 %more, label %measure, label %done

measure:
  %index_after = add i64 %index, 1
  %words = mul i64 %index_after, {STEP_WORDS}
  %op = add i64 %step, %words
  %op_fields = call ptr @at(ptr %program, i64 %op)
  %tiles_index = call i64 @get(ptr %op_fields, i64 {StepWord.D})
  %tiles = call i64 @get(ptr %sizes, i64 %tiles_index)
  br i1 %is_whole, label %compute, label %cut

cut:
  %cost_index = call i64 @get(ptr %op_fields, i64 {StepWord.E})
  %cost = call i64 @get(ptr %sizes, i64 %cost_index)
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
  %count = sub i64 %last, %first
  %together = select i1 %is_backward, i64 1, i64 %count
  %status = call i64 @run_kernel(ptr %walk, i64 %op, i64 %index, i64 %first, i64 %last, i64 %together)
  %fine = icmp eq i64 %status, {Status.OK}
  br i1 %fine, label %continue, label %done

continue:
  br label %next

done:
  ret void
}}

; Runs tiles `%first` up to `%last` of the op with number `%index` in its wave, `%together` at a time, the
; last ones first. Returns a status other than {Status.OK} if any fails.
define internal i64 @run_kernel(ptr %walk, i64 %step, i64 %index, i64 %first, i64 %last, i64 %together) {{
entry:
  %call = call ptr @pointer(ptr %walk, i64 {WalkWord.CALL})
  %args = call ptr @at(ptr %walk, i64 {WalkWord.ARGS})
  %fault = call ptr @at(ptr %walk, i64 {WalkWord.FAULT})
{call_tables("PROGRAM")}
{step_words("A", "B", "C", "F")}
  %first_argument = call i64 @argument_word(ptr %program, i64 %b)
  br label %next

next:
  %number = phi i64 [0, %entry], [%number_after, %add]
  %more = icmp slt i64 %number, %c
  br i1 %more, label %add, label %ready

add:
  %words = mul i64 %number, {ARG_WORDS}
  %argument = add i64 %first_argument, %words
  %value = call i64 @resolve(ptr %walk, ptr %call, i64 %argument)
  call void @put(ptr %args, i64 %number, i64 %value)
  %number_after = add i64 %number, 1
  br label %next

ready:
  %code = call ptr @pointer(ptr %call, i64 {CallWord.CODE})
  %kernel = getelementptr i8, ptr %code, i64 %a
{walk_word("ORDER")}
  %place = or i64 %order, %index
  %records = call i64 @get(ptr %call, i64 {CallWord.TRACE})
  %is_traced = icmp ne i64 %records, 0
  br i1 %is_traced, label %trace, label %plain

plain:
  %plain_status = call i64 @run_tiles(ptr %call, ptr %kernel, ptr %args, i64 %first, i64 %last,
                                      i64 %together, i64 %place, i64 %f, ptr %fault)
  ret i64 %plain_status

trace:
  %start = call i64 @cycles()
  %status = call i64 @run_tiles(ptr %call, ptr %kernel, ptr %args, i64 %first, i64 %last,
                                i64 %together, i64 %place, i64 %f, ptr %fault)
  %end = call i64 @cycles()
{walk_word("THREAD")}
  call void @record(ptr %call, i64 %f, i64 %thread, i64 %start, i64 %end)
  ret i64 %status
}}

; The tiles of `run_kernel`. All are computed even where some fail: the first may be among the last.
define internal i64 @run_tiles(ptr %call, ptr %kernel, ptr %args, i64 %first, i64 %last, i64 %together,
                               i64 %place, i64 %op, ptr %fault) {{
entry:
  br label %next

next:
  %to = phi i64 [%last, %entry], [%from, %after]
  %before = phi i64 [{Status.OK}, %entry], [%status, %after]
  %from = sub i64 %to, %together
  call void @put(ptr %fault, i64 {FaultWord.STATUS}, i64 {Status.OK})
  call void %kernel(ptr %args, i64 %from, i64 %to, ptr %fault)
  %own = call i64 @get(ptr %fault, i64 {FaultWord.STATUS})
  %status = or i64 %before, %own
  %fine = icmp eq i64 %own, {Status.OK}
  br i1 %fine, label %after, label %failed

failed:
  call void @note_fault(ptr %call, i64 %place, i64 %op, ptr %fault)
  br label %after

after:
  %more = icmp sgt i64 %from, %first
  br i1 %more, label %next, label %done

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

; One wave, until all of its tiles are computed. Returns 1 if the call is to end here.
define internal i64 @wave(ptr %walk, i64 %step) {{
entry:
  %call = call ptr @pointer(ptr %walk, i64 {WalkWord.CALL})
{call_tables("PROGRAM", "SIZES")}
{walk_word("THREADS")}
{walk_word("ORDER")}
{step_words("B", "C")}
  %order_after = add i64 %order, {1 << ORDER_SHIFT}
  call void @put(ptr %walk, i64 {WalkWord.ORDER}, i64 %order_after)
  %one_thread = icmp eq i64 %threads, 1
  %is_serial = icmp ne i64 %b, 0
  %is_alone = or i1 %one_thread, %is_serial
  br i1 %is_alone, label %compute, label %estimate

estimate:
  %cost = call i64 @wave_cost(ptr %program, ptr %sizes, i64 %step)
  %workers = call i64 @employed_threads(i64 %cost, i64 %threads)
  %several = icmp sgt i64 %workers, 1
  br i1 %several, label %share, label %compute

share:
  call void @share(ptr %walk, i64 %step, i64 %cost, i64 %workers)
  br label %computed

compute:
  call void @work(ptr %walk, i64 %step, i64 0, i64 0, i64 1)
  br label %computed

computed:
  %has_changed = icmp ne i64 %c, 0
  br i1 %has_changed, label %look_further, label %may_cancel

may_cancel:
  call void @notice_cancel(ptr %walk, ptr %call)
  br label %look_further

look_further:
  %stop = call i64 @get(ptr %call, i64 {CallWord.STOP_AFTER})
  %may_stop = icmp sge i64 %stop, 0
  br i1 %may_stop, label %look_for_stop, label %judge

look_for_stop:
  %here = call i64 @has_op(ptr %program, i64 %step, i64 %stop)
  %is_here = icmp ne i64 %here, 0
  br i1 %is_here, label %stop_here, label %judge

stop_here:
  call void @end_early(ptr %walk, i64 {LAST_IN_WAVE}, i64 %stop, i64 {Status.STOPPED}, i64 0)
  br label %judge

judge:
  %status = call i64 @get(ptr %call, i64 {CallWord.STATUS})
  %failed = icmp ne i64 %status, {Status.OK}
  %ends = zext i1 %failed to i64
  ret i64 %ends
}}

; Notes that someone wants the call to end.
define internal void @notice_cancel(ptr %walk, ptr %call) {{
entry:
  %flag = call ptr @pointer(ptr %call, i64 {CallWord.CANCEL})
  %none = icmp eq ptr %flag, null
  br i1 %none, label %done, label %look

look:
  %value = load atomic i32, ptr %flag monotonic, align 4
  %wanted = icmp ne i32 %value, 0
  br i1 %wanted, label %cancel, label %done

cancel:
  call void @end_early(ptr %walk, i64 {LAST_IN_WAVE}, i64 -1, i64 {Status.CANCELLED}, i64 0)
  br label %done

done:
  ret void
}}
"""
