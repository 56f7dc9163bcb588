"""The engine: native code that runs the programs of `dlc.runtime.abi`, the same in every artifact.

The engine is LLVM text for the baseline processor of an architecture. Integer functions (`decisions`) are
written in Python and compiled into it; threads, atomics, system calls and the floating-point state are
written as LLVM text. `pool` starts, wakes and parks threads; `sharing` has the queues of chunks by which
they share a wave; `waves` runs the kernels of a wave; `steps` interprets the step table; `walk` has the
state of a thread. This module has the entry, and the few lines that depend on the processor.
"""

from __future__ import annotations

from functools import cache

from dlc.codegen.engine.decisions import FUNCTIONS
from dlc.codegen.engine.pool import POOL
from dlc.codegen.engine.steps import STEPS
from dlc.codegen.engine.walk import WALK, call_tables
from dlc.codegen.engine.waves import WAVES
from dlc.codegen.engine.work_stealing import SHARING
from dlc.codegen.integer_functions import internal_functions
from dlc.codegen.kernels import cache_key, cached_object
from dlc.codegen.link.image import Image, link
from dlc.codegen.llvm.begun import BegunObjects, ObjectCache
from dlc.codegen.llvm.target_machine import machine_of
from dlc.runtime.abi import ABI_VERSION, MAX_THREADS, CallWord, Status
from dlc.target.cpu import CpuTarget

ENTRY = "dlc_enter"
"""The exported function of the image: it takes a `dlc_call` and returns its status."""

_WORDS = """
; ---- words: everything the engine shares with Python is an array of 64-bit words

define internal ptr @at(ptr %words, i64 %word) alwaysinline {
  %place = getelementptr i64, ptr %words, i64 %word
  ret ptr %place
}

define internal i64 @get(ptr %words, i64 %word) alwaysinline {
  %place = getelementptr i64, ptr %words, i64 %word
  %value = load i64, ptr %place
  ret i64 %value
}

define internal ptr @pointer(ptr %words, i64 %word) alwaysinline {
  %place = getelementptr i64, ptr %words, i64 %word
  %value = load ptr, ptr %place
  ret ptr %value
}

define internal void @put(ptr %words, i64 %word, i64 %value) alwaysinline {
  %place = getelementptr i64, ptr %words, i64 %word
  store i64 %value, ptr %place
  ret void
}
"""

_X86_64 = """
; ---- x86-64

declare void @llvm.x86.sse2.pause()
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
declare i64 @llvm.readcyclecounter()

; What a thread does between two looks at memory that another will write.
define internal void @relax() alwaysinline {
  call void @llvm.x86.sse2.pause()
  ret void
}

define internal i64 @cycles() alwaysinline {
  %now = call i64 @llvm.readcyclecounter()
  ret i64 %now
}

define internal i32 @float_state() alwaysinline {
  %word = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %word)
  %state = load i32, ptr %word
  ret i32 %state
}

define internal void @set_float_state(i32 %state) alwaysinline {
  %word = alloca i32
  store i32 %state, ptr %word
  call void @llvm.x86.sse.ldmxcsr(ptr %word)
  ret void
}

; Round to nearest, no exceptions trapped, denormals kept: the bits do not depend on who calls.
define internal void @default_float_state() alwaysinline {
  call void @set_float_state(i32 8064)
  ret void
}
"""

_ENTER = f"""
; ---- the entry

; Runs the call on as many threads as it is worth and can get, and returns its status.
define i32 @{ENTRY}(ptr %call) {{
  %version = call i64 @get(ptr %call, i64 {CallWord.VERSION})
  %known = icmp eq i64 %version, {ABI_VERSION}
  br i1 %known, label %begin, label %refuse

refuse:
  ret i32 {Status.VERSION}

begin:
  call void @put(ptr %call, i64 {CallWord.USED}, i64 1)
  call void @put(ptr %call, i64 {CallWord.TRACE_COUNT}, i64 0)
  call void @put(ptr %call, i64 {CallWord.STATUS}, i64 {Status.OK})
  call void @put(ptr %call, i64 {CallWord.LOCK}, i64 0)
  %callers_state = call i32 @float_state()
  call void @default_float_state()
  %pool = call ptr @pointer(ptr %call, i64 {CallWord.POOL})
  %no_pool = icmp eq ptr %pool, null
  br i1 %no_pool, label %alone, label %ask

ask:
  %allowed = call i64 @get(ptr %call, i64 {CallWord.THREADS})
  %wanted = call i64 @llvm.smin.i64(i64 %allowed, i64 {MAX_THREADS})
{call_tables("PROGRAM", "SIZES")}
  %useful = call i64 @useful_threads(ptr %program, ptr %sizes, i64 %wanted)
  %several = icmp sgt i64 %useful, 1
  br i1 %several, label %enlist, label %alone

enlist:
  ; Another call has the pool, or no thread can be started: the caller does it alone, to the same bits.
  %threads = call i64 @enlist(ptr %pool, i64 %useful)
  %enlisted = icmp sgt i64 %threads, 1
  br i1 %enlisted, label %together, label %alone

together:
  call void @put(ptr %call, i64 {CallWord.USED}, i64 %threads)
  call void @run(ptr %call, ptr %pool, i64 %threads)
  call void @dismiss(ptr %pool)
  br label %done

alone:
  call void @run(ptr %call, ptr %pool, i64 1)
  br label %done

done:
  call void @set_float_state(i32 %callers_state)
  %status = call i64 @get(ptr %call, i64 {CallWord.STATUS})
  %code = trunc i64 %status to i32
  ret i32 %code
}}

declare i64 @llvm.smin.i64(i64, i64)
"""


@cache
def engine_text() -> str:
    """The LLVM text of the engine for x86-64."""
    decisions = internal_functions(*FUNCTIONS)
    parts = (_WORDS, _X86_64, POOL, SHARING, WALK, WAVES, STEPS, _ENTER, decisions)
    return "; The engine of dlc, x86-64.\n" + "".join(parts)


_BASELINE, _LEVEL = "x86-64", 2
_MADE: dict[str, Image] = {}
"""The engine, once this process has it."""


def engine_image(cache: ObjectCache | None = None) -> Image:
    """The engine compiled and linked, once in a process; its entry is `ENTRY`."""
    if ENTRY not in _MADE:
        target = CpuTarget.named(_BASELINE)
        _MADE[ENTRY] = link({"engine": cached_object(engine_text(), target, _LEVEL, cache)})
    return _MADE[ENTRY]


def begin_engine(objects: BegunObjects) -> None:
    """Begin with the object file for `engine_image`, unless this process has it."""
    if ENTRY not in _MADE:
        target, text = CpuTarget.named(_BASELINE), engine_text()
        key = cache_key(text, target, _LEVEL)
        objects.begin(key, lambda: text, machine_of(target, _LEVEL))
