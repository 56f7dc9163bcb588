"""The thread pool of the engine as LLVM text: start, wake and park workers.

The memory of the pool is a row of 256 bytes for each thread. Workers are started when first needed and
never end. They know of no call: a worker watches the number of the wave in row 0, takes part in each wave
that is published there (`sharing`), and sleeps on a futex when none has come for a while. Memory of zeros
is a pool without workers, so a forked child, which finds zeros there, starts its own.
"""

from __future__ import annotations

from enum import IntEnum

from dlc.codegen.engine.decisions import WalkWord
from dlc.runtime.abi import MAX_CPUS, WorkerWord
from dlc.target.waits import X86_64

ROW_WORDS = 32


class PoolWord(IntEnum):
    """The words of row 0, that of the calling thread, which needs no state."""

    BUSY = 0  # 1 while a call uses the workers
    WORKERS = 1  # started so far
    WAVE = 2  # the number of the last wave that was published
    SLEEPERS = 3  # workers whose state is `ASLEEP`
    WAVES = 8  # by parity of the wave's number: its description, `WaveWord`
    DONE = 28  # chunks of the wave that are computed


class RowWord(IntEnum):
    """The words of a row: a cache line for the worker's state, and one for its queue.

    `WorkerWord` has two more, which the loader knows.
    """

    STATE = 0  # `AWAKE` or `ASLEEP`
    POOL = 1
    THREAD = 2
    QUEUE = 24  # chunks of a wave that this thread takes first (`dlc.codegen.engine.decisions`)


AWAKE = 0
ASLEEP = 1

_FUTEX = 202
_THREAD_NUMBER = 186
_SET_AFFINITY = 203
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

; Waits until the word is `wanted`. After a long while it sleeps between two looks.
define internal void @wait_for(ptr %word, i64 %wanted) {{
entry:
  %time = alloca [2 x i64]
  store i64 0, ptr %time
  call void @put(ptr %time, i64 1, i64 {X86_64.nap_nanoseconds})
  %start = call i64 @cycles()
  br label %look

look:
  %value = load atomic i64, ptr %word acquire, align 8
  %here = icmp eq i64 %value, %wanted
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
  ret void
}}
"""

_WORKERS = f"""
; ---- workers

define internal ptr @row_word(ptr %pool, i64 %thread, i64 %number) alwaysinline {{
  %row = mul i64 %thread, {ROW_WORDS}
  %word = add i64 %row, %number
  %place = call ptr @at(ptr %pool, i64 %word)
  ret ptr %place
}}

; Takes the pool for a call that requests a number of threads; returns how many it gets.
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

; Gives the pool back. Workers may still look for chunks of the last wave; they find none.
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
  %row = call ptr @row_word(ptr %pool, i64 %worker, i64 0)
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

; If workers sleep, wakes those that `thread` has to wake: thread + 2^r for every 2^r above it.
; So 0 wakes 1, 2, 4 ..., 1 wakes 3, 5, 9 ..., and all are awake after log2(threads) steps.
define internal void @wake(ptr %pool, i64 %thread, i64 %threads) {{
entry:
  %sleepers = call ptr @at(ptr %pool, i64 {PoolWord.SLEEPERS})
  %asleep = load atomic i64, ptr %sleepers seq_cst, align 8
  %none = icmp eq i64 %asleep, 0
  br i1 %none, label %done, label %next

next:
  %distance = phi i64 [1, %entry], [%distance_after, %skip]
  %other = add i64 %thread, %distance
  %inside = icmp slt i64 %other, %threads
  br i1 %inside, label %choose, label %done

choose:
  %is_mine = icmp sgt i64 %distance, %thread
  br i1 %is_mine, label %rouse, label %skip

rouse:
  %state = call ptr @row_word(ptr %pool, i64 %other, i64 {RowWord.STATE})
  %is_roused = call i1 @rouse(ptr %pool, ptr %state)
  br i1 %is_roused, label %call, label %skip

call:
  call void @wake_sleeper(ptr %state)
  br label %skip

skip:
  %distance_after = shl i64 %distance, 1
  br label %next

done:
  ret void
}}

; Changes a worker's state to `AWAKE`; returns whether it was `ASLEEP`.
define internal i1 @rouse(ptr %pool, ptr %state) {{
entry:
  %found = load atomic i64, ptr %state monotonic, align 8
  %asleep = icmp eq i64 %found, {ASLEEP}
  br i1 %asleep, label %try, label %no

try:
  %swapped = cmpxchg ptr %state, i64 {ASLEEP}, i64 {AWAKE} acq_rel monotonic
  %is_mine = extractvalue {{ i64, i1 }} %swapped, 1
  br i1 %is_mine, label %yes, label %no

yes:
  %sleepers = call ptr @at(ptr %pool, i64 {PoolWord.SLEEPERS})
  %before = atomicrmw sub ptr %sleepers, i64 1 monotonic
  ret i1 true

no:
  ret i1 false
}}

; What a worker does, for ever: wait for a wave, wake others, take part.
define internal ptr @worker(ptr %row) {{
entry:
  %walk = alloca [{WalkWord.COUNT} x i64], align 64
  %pool = call ptr @pointer(ptr %row, i64 {RowWord.POOL})
  %thread = call i64 @get(ptr %row, i64 {RowWord.THREAD})
  call void @put(ptr %walk, i64 {WalkWord.THREAD}, i64 %thread)
  call void @settle(ptr %row)
  %birth = call i64 @cycles()
  br label %again

again:
  %last = phi i64 [0, %entry], [%wave, %again]
  %start = phi i64 [%birth, %entry], [%moment, %again]
  %wave = call i64 @next_wave(ptr %pool, ptr %row, i64 %last, i64 %start)
  %worked = call i1 @join(ptr %walk, ptr %pool, i64 %thread, i64 %wave)
  %now = call i64 @cycles()
  %moment = select i1 %worked, i64 %now, i64 %start
  br label %again
}}

; Says which thread of the system a worker is, then keeps to the processor that it was given by then: who
; gives it one later finds the number.
define internal void @settle(ptr %row) {{
entry:
  %cpus = alloca [{MAX_CPUS // 64} x i64], align 8
  %number = call i64 (i64, ...) @syscall(i64 {_THREAD_NUMBER})
  %told = call ptr @at(ptr %row, i64 {WorkerWord.SYSTEM_THREAD})
  store atomic i64 %number, ptr %told seq_cst, align 8
  %given = call ptr @at(ptr %row, i64 {WorkerWord.CPU})
  %after = load atomic i64, ptr %given seq_cst, align 8
  %is_free = icmp eq i64 %after, 0
  br i1 %is_free, label %done, label %keep

keep:
  call void @llvm.memset.p0.i64(ptr align 8 %cpus, i8 0, i64 {MAX_CPUS // 8}, i1 false)
  %cpu = sub i64 %after, 1
  %bit = and i64 %cpu, 63
  %mask = shl i64 1, %bit
  %far = lshr i64 %cpu, 6
  %word = and i64 %far, {MAX_CPUS // 64 - 1}
  call void @put(ptr %cpus, i64 %word, i64 %mask)
  %ignored = call i64 (i64, ...) @syscall(i64 {_SET_AFFINITY}, i64 0, i64 {MAX_CPUS // 8}, ptr %cpus)
  br label %done

done:
  ret void
}}

; Waits until another wave than the last is published, and returns its number; sleeps if the worker has had
; nothing to do since `%start` for long.
define internal i64 @next_wave(ptr %pool, ptr %row, i64 %last, i64 %start) {{
entry:
  %number = call ptr @at(ptr %pool, i64 {PoolWord.WAVE})
  %sleepers = call ptr @at(ptr %pool, i64 {PoolWord.SLEEPERS})
  br label %look

look:
  %begin = phi i64 [%start, %entry], [%begin, %linger], [%begin, %stay], [%awake_at, %slept]
  %wave = load atomic i64, ptr %number acquire, align 8
  %is_new = icmp ne i64 %wave, %last
  br i1 %is_new, label %done, label %wait

wait:
  %now = call i64 @cycles()
  %waited = sub i64 %now, %begin
  %busy = load atomic i64, ptr %pool monotonic, align 8
  %is_idle = icmp eq i64 %busy, 0
  %patience = select i1 %is_idle, i64 {X86_64.linger_cycles}, i64 {X86_64.yield_cycles}
  %patient = icmp ult i64 %waited, %patience
  br i1 %patient, label %choose, label %lie_down

choose:
  br i1 %is_idle, label %linger, label %stay

linger:
  call void @relax()
  br label %look

stay:
  call void @wait_a_moment(i64 %begin)
  br label %look

lie_down:
  ; Says so before it looks once more: who publishes a wave looks for sleepers afterwards.
  %state = call ptr @row_word(ptr %row, i64 0, i64 {RowWord.STATE})
  %before = atomicrmw add ptr %sleepers, i64 1 seq_cst
  store atomic i64 {ASLEEP}, ptr %state seq_cst, align 8
  br label %look_again

look_again:
  %wave_now = load atomic i64, ptr %number seq_cst, align 8
  %came = icmp ne i64 %wave_now, %last
  br i1 %came, label %get_up, label %sleep

get_up:
  %is_roused = call i1 @rouse(ptr %pool, ptr %state)
  br label %slept

sleep:
  call void @sleep_while(ptr %state, i64 {ASLEEP}, ptr null)
  %state_now = load atomic i64, ptr %state acquire, align 8
  %is_asleep = icmp eq i64 %state_now, {ASLEEP}
  br i1 %is_asleep, label %look_again, label %slept

slept:
  %awake_at = call i64 @cycles()
  br label %look

done:
  ret i64 %wave
}}

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""

POOL = _FUTEXES + _WORKERS
