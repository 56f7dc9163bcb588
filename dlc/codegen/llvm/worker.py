"""The worker process that makes object files for the compiler (`dlc.codegen.llvm.background` starts it).

It reads jobs from standard input: a line of JSON with the fields of a `Machine` and the number of bytes of
a text, then the text. For each job it writes a line with the number of bytes of the object file, then the
file; 0 bytes mean that LLVM refused the text. The compiler then compiles the text itself, to report why.
"""

from __future__ import annotations

import json
import signal
import sys
from queue import SimpleQueue
from threading import Thread

from dlc.codegen.llvm.object_code import Machine, compile_text
from dlc.errors import DlcError


def serve() -> None:
    """Do jobs until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started it decides what an interrupt ends
    jobs: SimpleQueue[tuple[str, Machine] | None] = SimpleQueue()
    Thread(target=_read, args=(jobs,), daemon=True).start()
    results = sys.stdout.buffer
    while job := jobs.get():
        try:
            made = compile_text(*job)
        except DlcError:
            made = b""
        results.write(b"%d\n" % len(made) + made)
        results.flush()


def _read(jobs: SimpleQueue[tuple[str, Machine] | None]) -> None:
    """Read jobs as they come, so that who writes them need not wait for those before."""
    source = sys.stdin.buffer
    while line := source.readline():
        *machine, length = json.loads(line)
        jobs.put((source.read(length).decode(), Machine(*machine)))
    jobs.put(None)
