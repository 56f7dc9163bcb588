"""Sharing of a wave among threads, as LLVM text: queues of chunks, and work stealing.

The caller's thread walks the program alone. A wave that is worth several threads is cut into chunks of
equal cost, and each thread has a queue of consecutive ones. A thread takes the first chunk of its own
queue, again and again, then steals the last ones of the others' queues. So threads that are on time work on
memory of their own, and a thread that is late, or was never woken, delays the wave by one chunk at most.

A queue is one word, which is changed by compare-and-swap. It has the number of its wave: whoever comes to a
queue of an earlier wave first fills it, the owner or a thief, and whoever comes late to a wave finds no
chunk. A worker looks at the memory of a call only while a chunk that it took is not counted as done; the
caller ends the wave, and perhaps the call, when all of its chunks are.
"""

from __future__ import annotations

from enum import IntEnum

from dlc.codegen.engine.decisions import QUEUE_END, WalkWord
from dlc.codegen.engine.pool import PoolWord, RowWord
from dlc.runtime.abi import MAX_COUNTERS


class WaveWord(IntEnum):
    """The description of a wave that was published."""

    WALK = 0  # the caller's walk
    STEP = 1
    COST = 2
    CHUNKS = 3  # of each thread
    THREADS = 4  # that may take part
    COUNT = 8


NONE = -1

_FIELDS = ("walk", "step", "cost", "chunks", "threads")

_LOAD = "\n".join(
    f"""\
  %{name}_at = call ptr @at(ptr %fields, i64 {WaveWord[name.upper()]})
  %{name} = load atomic i64, ptr %{name}_at monotonic, align 8"""
    for name in _FIELDS
)
_STORE = "\n".join(
    f"""\
  %{name}_at = call ptr @at(ptr %fields, i64 {WaveWord[name.upper()]})
  store atomic i64 %{name}, ptr %{name}_at monotonic, align 8"""
    for name in _FIELDS
)

SHARING = f"""
; ---- sharing

; Where the wave of this number is described. The next one is described elsewhere.
define internal ptr @fields_of(ptr %pool, i64 %wave) alwaysinline {{
  %parity = and i64 %wave, 1
  %words = mul i64 %parity, {WaveWord.COUNT}
  %word = add i64 %words, {PoolWord.WAVES}
  %fields = call ptr @at(ptr %pool, i64 %word)
  ret ptr %fields
}}

; Publishes a wave, computes chunks of it, and returns when all of them are computed.
define internal void @share(ptr %own_walk, i64 %step, i64 %cost, i64 %threads) {{
  %pool = call ptr @pointer(ptr %own_walk, i64 {WalkWord.POOL})
  %chunks = call i64 @chunks_each(i64 %cost, i64 %threads)
  %number = call ptr @at(ptr %pool, i64 {PoolWord.WAVE})
  %done = call ptr @at(ptr %pool, i64 {PoolWord.DONE})
  %last = load atomic i64, ptr %number monotonic, align 8
  %wave = add i64 %last, 1
  %fields = call ptr @fields_of(ptr %pool, i64 %wave)
  %walk = ptrtoint ptr %own_walk to i64
{_STORE}
  store atomic i64 0, ptr %done monotonic, align 8
  store atomic i64 %wave, ptr %number seq_cst, align 8
  call void @wake(ptr %pool, i64 0, i64 %threads)
  %worked = call i1 @take_part(ptr %own_walk, ptr %pool, i64 0, i64 %wave, ptr %own_walk, i64 %step,
                               i64 %cost, i64 %chunks, i64 %threads)
  %all = mul i64 %chunks, %threads
  call void @wait_for(ptr %done, i64 %all)
  ret void
}}

; A worker's part in a wave; returns whether it computed something.
define internal i1 @join(ptr %own_walk, ptr %pool, i64 %thread, i64 %wave) {{
entry:
  %fields = call ptr @fields_of(ptr %pool, i64 %wave)
{_LOAD}
  ; What was read belongs to the wave if none has been published since.
  fence acquire
  %number = call ptr @at(ptr %pool, i64 {PoolWord.WAVE})
  %wave_now = load atomic i64, ptr %number monotonic, align 8
  %is_same = icmp eq i64 %wave_now, %wave
  %is_wanted = icmp slt i64 %thread, %threads
  %joins = and i1 %is_same, %is_wanted
  br i1 %joins, label %begin, label %none

begin:
  call void @wake(ptr %pool, i64 %thread, i64 %threads)
  %walk_pointer = inttoptr i64 %walk to ptr
  %worked = call i1 @take_part(ptr %own_walk, ptr %pool, i64 %thread, i64 %wave, ptr %walk_pointer,
                               i64 %step, i64 %cost, i64 %chunks, i64 %threads)
  ret i1 %worked

none:
  ret i1 false
}}

; Computes chunks of a wave until all are taken: those of the own queue from the first on, then the last
; ones of the others', from the next thread on. Returns whether it computed any.
define internal i1 @take_part(ptr %walk, ptr %pool, i64 %thread, i64 %wave, ptr %caller, i64 %step,
                              i64 %cost, i64 %chunks, i64 %threads) {{
entry:
  %done = call ptr @at(ptr %pool, i64 {PoolWord.DONE})
  %all = mul i64 %chunks, %threads
  br label %next_own

next_own:
  %own = phi i64 [0, %entry], [%own_after, %compute_own]
  %chunk = call i64 @take(ptr %pool, i64 %thread, i64 %wave, i64 %chunks, i1 true)
  %is_chunk = icmp ne i64 %chunk, {NONE}
  br i1 %is_chunk, label %compute_own, label %report

compute_own:
  call void @compute(ptr %walk, ptr %caller, i64 %step, i64 %cost, i64 %chunk, i64 %chunks, i64 %all)
  %own_after = add i64 %own, 1
  br label %next_own

report:
  %before_own = atomicrmw add ptr %done, i64 %own release
  br label %next_victim

next_victim:
  %stolen = phi i64 [0, %report], [%stolen, %visit], [%stolen_after, %compute_stolen]
  %distance = phi i64 [1, %report], [%distance_after, %visit], [%distance, %compute_stolen]
  %beyond = add i64 %thread, %distance
  %wraps = icmp sge i64 %beyond, %threads
  %back = select i1 %wraps, i64 %threads, i64 0
  %victim = sub i64 %beyond, %back
  %is_left = icmp slt i64 %distance, %threads
  br i1 %is_left, label %steal, label %leave

steal:
  %theft = call i64 @take(ptr %pool, i64 %victim, i64 %wave, i64 %chunks, i1 false)
  %is_theft = icmp ne i64 %theft, {NONE}
  br i1 %is_theft, label %compute_stolen, label %visit

visit:
  %distance_after = add i64 %distance, 1
  br label %next_victim

compute_stolen:
  call void @compute(ptr %walk, ptr %caller, i64 %step, i64 %cost, i64 %theft, i64 %chunks, i64 %all)
  %before_stolen = atomicrmw add ptr %done, i64 1 release
  %stolen_after = add i64 %stolen, 1
  br label %next_victim

leave:
  %sum = add i64 %own, %stolen
  %some = icmp ne i64 %sum, 0
  ret i1 %some
}}

; Takes the first, or the last, chunk of a thread's queue for a wave; returns its number, or {NONE}.
define internal i64 @take(ptr %pool, i64 %owner, i64 %wave, i64 %chunks, i1 %is_first) {{
entry:
  %begin = mul i64 %owner, %chunks
  %end = add i64 %begin, %chunks
  %full = call i64 @queue_of(i64 %wave, i64 %begin, i64 %end)
  %place = call ptr @row_word(ptr %pool, i64 %owner, i64 {RowWord.QUEUE})
  br label %try

try:
  %found = load atomic i64, ptr %place monotonic, align 8
  %found_wave = call i64 @queue_wave(i64 %found)
  %is_old = icmp slt i64 %found_wave, %wave
  %is_over = icmp sgt i64 %found_wave, %wave
  %queue = select i1 %is_old, i64 %full, i64 %found
  %first = call i64 @queue_first(i64 %queue)
  %after_last = call i64 @queue_end(i64 %queue)
  %is_empty = icmp sge i64 %first, %after_last
  %fails = or i1 %is_over, %is_empty
  br i1 %fails, label %none, label %swap

swap:
  %step = select i1 %is_first, i64 {QUEUE_END}, i64 -1
  %rest = add i64 %queue, %step
  %swapped = cmpxchg ptr %place, i64 %found, i64 %rest acq_rel monotonic
  %is_mine = extractvalue {{ i64, i1 }} %swapped, 1
  br i1 %is_mine, label %taken, label %try

taken:
  %last = sub i64 %after_last, 1
  %chunk = select i1 %is_first, i64 %first, i64 %last
  ret i64 %chunk

none:
  ret i64 {NONE}
}}

; Computes a chunk that was taken, with the counters of the caller, who goes on when it is done. Each queue
; has `%each` of the `%chunks`.
define internal void @compute(ptr %walk, ptr %caller, i64 %step, i64 %cost, i64 %chunk, i64 %each,
                              i64 %chunks) {{
entry:
  %backward = call i64 @get(ptr %caller, i64 {WalkWord.BACKWARD})
  %turned = call i64 @chunk_in_direction(i64 %chunk, i64 %each, i64 %backward)
  %is_caller = icmp eq ptr %walk, %caller
  br i1 %is_caller, label %work, label %follow

follow:
  %call = call i64 @get(ptr %caller, i64 {WalkWord.CALL})
  %order = call i64 @get(ptr %caller, i64 {WalkWord.ORDER})
  call void @put(ptr %walk, i64 {WalkWord.CALL}, i64 %call)
  call void @put(ptr %walk, i64 {WalkWord.ORDER}, i64 %order)
  call void @put(ptr %walk, i64 {WalkWord.BACKWARD}, i64 %backward)
  %counters = call ptr @at(ptr %walk, i64 {WalkWord.COUNTERS})
  %callers = call ptr @at(ptr %caller, i64 {WalkWord.COUNTERS})
  call void @llvm.memcpy.p0.p0.i64(ptr %counters, ptr %callers, i64 {8 * MAX_COUNTERS}, i1 false)
  br label %work

work:
  call void @work(ptr %walk, i64 %step, i64 %cost, i64 %turned, i64 %chunks)
  ret void
}}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""
