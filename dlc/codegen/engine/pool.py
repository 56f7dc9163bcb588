"""The thread pool of the engine as LLVM text: enlist, wake and park workers; the barrier between waves.

The memory of the pool is a row of 256 bytes for each thread. Workers are started when first needed and
never end. A worker polls its mailbox, which receives the address of a call to work on; after a while it
sleeps on a futex. Memory of zeros is a pool without workers, so a forked child, which finds zeros there,
starts its own.
"""

from __future__ import annotations

from enum import IntEnum

from dlc.runtime.abi import CallWord
from dlc.target.waits import X86_64

ROW_WORDS = 32


class PoolWord(IntEnum):
    """The first words of row 0, that of the calling thread, which needs no mailbox."""

    BUSY = 0  # 1 while a call uses the workers
    BARRIERS = 1  # passed so far
    WORKERS = 2  # started so far


class RowWord(IntEnum):
    """The words of a row: a cache line for the mailbox, and two for the messages of barriers."""

    CALL = 0  # the mailbox: address of the call to work on, `EMPTY`, or `ASLEEP`
    POOL = 1
    THREAD = 2
    HEARD = 8  # by parity of the barrier's number, then by round


EMPTY = 0
ASLEEP = 1

_FUTEX = 202
_WAIT_PRIVATE = 128
_WAKE_PRIVATE = 129
_SET_MASK = 2
_SIGSET_BYTES = 128
_NOT_BLOCKED = (
    4,
    5,
    6,
    7,
    8,
    11,
    31,
)  # ILL TRAP ABRT BUS FPE SEGV SYS: signals that the thread itself causes
_BLOCKED = -1 - sum(1 << (signal - 1) for signal in _NOT_BLOCKED)

_FUTEXES = f"""
; ---- the system

declare i64 @syscall(i64, ...)
declare i32 @sched_yield()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)

; Sleeps while the low half of the word has this value: until woken, or for the time given.
define internal void @sleep_while(ptr %word, i64 %value, ptr %time) {{
  %half = trunc i64 %value to i32
  %ignored = call i64 (i64, ...) @syscall(i64 {_FUTEX}, ptr %word, i64 {_WAIT_PRIVATE}, i32 %half,
                                          ptr %time, ptr null, i64 0)
  ret void
}}

define internal void @wake_sleeper(ptr %word) {{
  %ignored = call i64 (i64, ...) @syscall(i64 {_FUTEX}, ptr %word, i64 {_WAKE_PRIVATE}, i64 1,
                                          ptr null, ptr null, i64 0)
  ret void
}}
"""

_BARRIER = f"""
; ---- the barrier

; Where `thread` hears, in this round of the barrier, from the thread that comes 2^round before it.
; Two barriers in a row use different lines: who is late with one never reads what belongs to the next.
define internal ptr @hearing(ptr %pool, i64 %thread, i64 %barrier, i64 %round) alwaysinline {{
  %row = mul i64 %thread, {ROW_WORDS}
  %parity = and i64 %barrier, 1
  %line = shl i64 %parity, 3
  %in_row = add i64 %line, %round
  %in_lines = add i64 %in_row, {RowWord.HEARD}
  %word = add i64 %row, %in_lines
  %place = call ptr @at(ptr %pool, i64 %word)
  ret ptr %place
}}

; A moment of a wait that began at `%start`: first quickly, then politely, as there may be fewer
; processors than threads.
define internal void @wait_a_moment(i64 %start) {{
  %now = call i64 @cycles()
  %waited = sub i64 %now, %start
  %is_short = icmp ult i64 %waited, {X86_64.spin_cycles}
  br i1 %is_short, label %spin, label %yield

spin:
  call void @relax()
  ret void

yield:
  %ignored = call i32 @sched_yield()
  ret void
}}

; Waits until the word is `wanted` or `wanted` + 1, and returns it.
; After a long while it sleeps between two looks.
define internal i64 @wait_for(ptr %word, i64 %wanted) {{
entry:
  %time = alloca [2 x i64]
  store i64 0, ptr %time
  call void @put(ptr %time, i64 1, i64 {X86_64.nap_nanoseconds})
  %start = call i64 @cycles()
  br label %look

look:
  %value = load atomic i64, ptr %word acquire, align 8
  %message = and i64 %value, -2
  %here = icmp eq i64 %message, %wanted
  br i1 %here, label %done, label %pass_time

pass_time:
  %now = call i64 @cycles()
  %waited = sub i64 %now, %start
  %is_long = icmp uge i64 %waited, {X86_64.yield_cycles}
  br i1 %is_long, label %nap, label %stay

stay:
  call void @wait_a_moment(i64 %start)
  br label %look

nap:
  call void @sleep_while(ptr %word, i64 %value, ptr %time)
  br label %look

done:
  ret i64 %value
}}

; Returns when all threads of a call have come to barrier number `barrier`: 1 if any of them came
; with `leave` = 1, the same answer for all. In round r a thread tells the one 2^r after it what it knows
; and hears from the one 2^r before it; after log2(threads) rounds it has heard of everyone.
define internal i64 @barrier(ptr %pool, i64 %thread, i64 %threads, i64 %barrier, i64 %leave) {{
entry:
  %number = shl i64 %barrier, 1
  br label %next

next:
  %round = phi i64 [0, %entry], [%round_after, %tell]
  %distance = phi i64 [1, %entry], [%distance_after, %tell]
  %known = phi i64 [%leave, %entry], [%known_after, %tell]
  %more = icmp slt i64 %distance, %threads
  br i1 %more, label %tell, label %done

tell:
  %beyond = add i64 %thread, %distance
  %wraps = icmp sge i64 %beyond, %threads
  %back = select i1 %wraps, i64 %threads, i64 0
  %listener = sub i64 %beyond, %back
  %ear = call ptr @hearing(ptr %pool, i64 %listener, i64 %barrier, i64 %round)
  %message = or i64 %number, %known
  store atomic i64 %message, ptr %ear release, align 8
  %own_ear = call ptr @hearing(ptr %pool, i64 %thread, i64 %barrier, i64 %round)
  %heard = call i64 @wait_for(ptr %own_ear, i64 %number)
  %news = and i64 %heard, 1
  %known_after = or i64 %known, %news
  %round_after = add i64 %round, 1
  %distance_after = shl i64 %distance, 1
  br label %next

done:
  ret i64 %known
}}
"""

_WORKERS = f"""
; ---- workers

define internal ptr @row(ptr %pool, i64 %thread) alwaysinline {{
  %word = mul i64 %thread, {ROW_WORDS}
  %row = call ptr @at(ptr %pool, i64 %word)
  ret ptr %row
}}

; Takes the pool for a call that wants so many threads; returns how many it gets.
; 1 means that the pool is not taken: it is busy, or no worker can be started.
define internal i64 @enlist(ptr %pool, i64 %wanted) {{
  %taken = cmpxchg ptr %pool, i64 0, i64 1 acquire monotonic
  %free = extractvalue {{ i64, i1 }} %taken, 1
  br i1 %free, label %count, label %busy

busy:
  ret i64 1

count:
  %workers = call i64 @get(ptr %pool, i64 {PoolWord.WORKERS})
  %ready = add i64 %workers, 1
  %enough = icmp sge i64 %ready, %wanted
  br i1 %enough, label %done, label %start

start:
  %started = call i64 @start_workers(ptr %pool, i64 %ready, i64 %wanted)
  br label %done

done:
  %there = phi i64 [%ready, %count], [%started, %start]
  %threads = call i64 @llvm.smin.i64(i64 %there, i64 %wanted)
  %several = icmp sgt i64 %threads, 1
  br i1 %several, label %keep, label %give_back

give_back:
  store atomic i64 0, ptr %pool release, align 8
  ret i64 1

keep:
  ret i64 %threads
}}

; Gives the pool back. The workers may still be on their way out of the last barrier.
define internal void @dismiss(ptr %pool) {{
  store atomic i64 0, ptr %pool release, align 8
  ret void
}}

; Starts workers number `first` to `wanted` - 1; returns the number of threads there are then.
; They take no signals of the process (Ctrl-C belongs to Python's main thread), only their own faults,
; and inherit the floating-point state, which is the default one by now.
define internal i64 @start_workers(ptr %pool, i64 %first, i64 %wanted) {{
entry:
  %blocked = alloca [{_SIGSET_BYTES} x i8], align 8
  %before = alloca [{_SIGSET_BYTES} x i8], align 8
  %handle = alloca i64
  call void @llvm.memset.p0.i64(ptr align 8 %blocked, i8 -1, i64 {_SIGSET_BYTES}, i1 false)
  call void @put(ptr %blocked, i64 0, i64 {_BLOCKED})
  %masked = call i32 @pthread_sigmask(i32 {_SET_MASK}, ptr %blocked, ptr %before)
  br label %next

next:
  %worker = phi i64 [%first, %entry], [%worker_after, %count]
  %more = icmp slt i64 %worker, %wanted
  br i1 %more, label %start, label %done

start:
  %row = call ptr @row(ptr %pool, i64 %worker)
  %pool_word = ptrtoint ptr %pool to i64
  call void @put(ptr %row, i64 {RowWord.POOL}, i64 %pool_word)
  call void @put(ptr %row, i64 {RowWord.THREAD}, i64 %worker)
  %failed = call i32 @pthread_create(ptr %handle, ptr null, ptr @worker, ptr %row)
  %runs = icmp eq i32 %failed, 0
  br i1 %runs, label %count, label %done

count:
  %thread = load i64, ptr %handle
  %detached = call i32 @pthread_detach(i64 %thread)
  call void @put(ptr %pool, i64 {PoolWord.WORKERS}, i64 %worker)
  %worker_after = add i64 %worker, 1
  br label %next

done:
  %restored = call i32 @pthread_sigmask(i32 {_SET_MASK}, ptr %before, ptr null)
  ret i64 %worker
}}

; Hands the call to the threads that `thread` has to wake: thread + 2^r for every 2^r above it.
; So 0 wakes 1, 2, 4 ..., 1 wakes 3, 5, 9 ..., and all are awake after log2(threads) steps.
define internal void @wake(ptr %pool, ptr %call, i64 %thread, i64 %threads) {{
entry:
  %letter = ptrtoint ptr %call to i64
  br label %next

next:
  %distance = phi i64 [1, %entry], [%distance_after, %skip]
  %other = add i64 %thread, %distance
  %inside = icmp slt i64 %other, %threads
  br i1 %inside, label %choose, label %done

choose:
  %is_mine = icmp sgt i64 %distance, %thread
  br i1 %is_mine, label %deliver, label %skip

deliver:
  %row = call ptr @row(ptr %pool, i64 %other)
  %start = call i64 @cycles()
  br label %try

try:
  ; The last call's letter is still there until the worker has found its way out of the last barrier.
  %found = load atomic i64, ptr %row monotonic, align 8
  %is_working = icmp ugt i64 %found, {ASLEEP}
  br i1 %is_working, label %wait, label %put

wait:
  call void @wait_a_moment(i64 %start)
  br label %try

put:
  %swapped = cmpxchg ptr %row, i64 %found, i64 %letter acq_rel monotonic
  %is_put = extractvalue {{ i64, i1 }} %swapped, 1
  br i1 %is_put, label %delivered, label %try

delivered:
  %asleep = icmp eq i64 %found, {ASLEEP}
  br i1 %asleep, label %rouse, label %skip

rouse:
  call void @wake_sleeper(ptr %row)
  br label %skip

skip:
  %distance_after = shl i64 %distance, 1
  br label %next

done:
  ret void
}}

; What a worker does, for ever: wait for a call, wake others, take part.
define internal ptr @worker(ptr %row) {{
entry:
  %pool = call ptr @pointer(ptr %row, i64 {RowWord.POOL})
  %thread = call i64 @get(ptr %row, i64 {RowWord.THREAD})
  br label %again

again:
  %letter = call i64 @next_letter(ptr %row)
  %call = inttoptr i64 %letter to ptr
  %threads = call i64 @get(ptr %call, i64 {CallWord.USED})
  call void @wake(ptr %pool, ptr %call, i64 %thread, i64 %threads)
  call void @run(ptr %call, ptr %pool, i64 %thread, i64 %threads)
  ; Only now: whoever writes the next letter may rely on this worker having left all barriers.
  store atomic i64 {EMPTY}, ptr %row release, align 8
  br label %again
}}

; Waits for a letter and returns it.
define internal i64 @next_letter(ptr %box) {{
entry:
  %start = call i64 @cycles()
  br label %look

look:
  %content = load atomic i64, ptr %box acquire, align 8
  %arrived = icmp ugt i64 %content, {ASLEEP}
  br i1 %arrived, label %open, label %wait

wait:
  %now = call i64 @cycles()
  %waited = sub i64 %now, %start
  %patient = icmp ult i64 %waited, {X86_64.linger_cycles}
  br i1 %patient, label %spin, label %lie_down

spin:
  call void @relax()
  br label %look

lie_down:
  ; Says so first: who delivers a letter and finds this wakes the sleeper.
  %said = cmpxchg ptr %box, i64 {EMPTY}, i64 {ASLEEP} acq_rel acquire
  %seen = extractvalue {{ i64, i1 }} %said, 0
  %came = icmp ugt i64 %seen, {ASLEEP}
  br i1 %came, label %look, label %sleep

sleep:
  call void @sleep_while(ptr %box, i64 {ASLEEP}, ptr null)
  br label %look

open:
  ret i64 %content
}}

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""

POOL = _FUTEXES + _BARRIER + _WORKERS
