"""Output of the command line: data to stdout, everything else to stderr, and the exit code."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from typing import TextIO, cast

from dlc.errors import (
    DlcError,
    InternalError,
    UsageError,
    diagnostic_data,
    no_memory,
    not_installed,
    visible,
)
from dlc.errors.warn import told_to
from dlc.version import VERSION

INTERRUPTED = 130
_OUTPUT_ERRORS = {errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}
"""Errors of writing to stdout. Files are written in one place, which reports its errors itself."""


_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Signs that end lines, turn the direction of a text, or are commands to a terminal."""


class Interrupted(Exception):
    """Ctrl-C, in the midst of a command."""


def spell_out() -> None:
    """Letters that a terminal's encoding lacks are written as escapes; there is no reason to fail.

    Where a shell has closed stderr, `2>&-`, what is said goes nowhere; with stdout closed it is an error to
    write something, and only that.
    """
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def guarded(action: Callable[[], int | None], *, as_json: bool) -> int:
    """Do something; whatever goes wrong is told in dlc's form. Gives the exit code.

    With `as_json` an error is also an object on stdout, so that a program finds it there.
    """
    try:
        code = _attempted(action, as_json)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader of our output has gone, as `head` does: nothing is wrong, nothing is to be said.
        _drop(sys.stdout)
        return 0
    except OSError as error:
        _drop(sys.stdout)
        return _told(_output_lost(error), as_json=False)


def _attempted(action: Callable[[], int | None], as_json: bool) -> int:
    try:
        with told_to(note):
            return action() or 0
    except DlcError as error:
        return _told(error, as_json)
    except (KeyboardInterrupt, Interrupted):
        return _interrupted(as_json)
    except ModuleNotFoundError as error:
        own = (error.name or "dlc").startswith("dlc")
        return _told(_unexpected(error) if own else not_installed(error), as_json)
    except MemoryError:
        return _told(no_memory(), as_json)
    except OSError as error:
        if error.errno in _OUTPUT_ERRORS:
            raise
        if error.errno == errno.ENOMEM:
            return _told(no_memory(), as_json)
        if "llvmlite" in str(error):
            return _told(_no_llvm(), as_json)
        return _told(_unexpected(error), as_json)
    except Exception as error:  # noqa: BLE001 - a traceback helps no user
        return _told(_unexpected(error), as_json)


def _no_llvm() -> UsageError:
    """The error for LLVM that is installed and that the system does not load."""
    return UsageError(
        "llvmlite, which brings LLVM, is installed but cannot be loaded",
        code="D0921",
        help="give the process more memory (ulimit -v), or reinstall it: "
        "pip install --force-reinstall llvmlite",
    )


def _drop(stream: TextIO) -> None:
    """Let what is still to be written go nowhere: the interpreter would complain at its end."""
    with suppress(OSError, ValueError):  # one that is not a file, as in a test, has nothing to lose
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _output_lost(error: OSError) -> UsageError:
    closed = error.errno == errno.EBADF
    why = "it is closed" if closed else (error.strerror or str(error)).lower()
    return UsageError(
        f"cannot write the output: {why}", code="D0502", help="send it to another place"
    )


def _told(error: DlcError, as_json: bool) -> int:
    note(error.render())
    if as_json:
        print_json(errors_data(error))
    return error.exit_code


def errors_data(error: DlcError) -> dict[str, object]:
    """An error for programs: what a command with `--json` writes instead of its result."""
    return {"errors": [diagnostic_data(diagnostic) for diagnostic in error.diagnostics]}


def _interrupted(as_json: bool) -> int:
    note("interrupted")
    if as_json:
        print_json({"errors": [], "interrupted": True})
    return INTERRUPTED


def _unexpected(error: Exception) -> InternalError:
    """An exception that nobody foresaw, with the place of ours where it was raised."""
    trace = error.__traceback__
    where = ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename.replace(os.sep, "/")
        if "/dlc/" in file:
            where = f" at dlc/{file.rpartition('/dlc/')[2]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return InternalError(
        f"{type(error).__name__}{where}: {error}",
        help="this is a mistake in dlc: please report it with the model and the command",
    )


def note(text: str) -> None:
    """Say something that is not a result, where it can be said: on a full disk the result still counts."""
    _say(f"{visible(text)}\n")


def _say(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        _drop(sys.stderr)


def notes(texts: Iterable[str]) -> None:
    """Say several such things."""
    for text in texts:
        note(text)


def say_version(*, as_json: bool) -> None:
    """The version on stdout."""
    if as_json:
        print_json({"version": VERSION})
    else:
        print(f"dlc {VERSION}")


def print_text(text: str) -> None:
    """A text on stdout: to a file or another program as it is, to a terminal without what that obeys."""
    text = text.rstrip("\n")
    print(visible(text) if sys.stdout.isatty() else text)


def print_json(data: object) -> None:
    """One JSON value on stdout; numbers that JSON lacks are the texts `nan`, `inf` and `-inf`."""
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_spelled(data), ensure_ascii=False)
    # JSON escapes some of what a terminal obeys itself; the rest, too, stands inside of texts only.
    print(_UNPRINTABLE.sub(lambda found: json.dumps(found[0])[1:-1], text))


def _spelled(data: object) -> object:
    match data:
        case float() if not math.isfinite(data):
            return str(data)
        case dict():
            return {
                name: _spelled(value) for name, value in cast("dict[str, object]", data).items()
            }
        case list() | tuple():
            return [_spelled(value) for value in cast("Sequence[object]", data)]
        case _:
            return data


@contextmanager
def progress(what: str) -> Generator[None]:
    """While inside, and longer than a second, say so on stderr if a person is watching."""
    began = time.perf_counter()
    ended = threading.Event()

    def watch() -> None:
        if ended.wait(1.0):
            return
        while not ended.wait(0.5):
            _say(f"\r{what} {time.perf_counter() - began:.0f} s")
        _say(f"\r{what} {time.perf_counter() - began:.1f} s\n")

    watcher = threading.Thread(target=watch, daemon=True)
    if sys.stderr.isatty():
        with suppress(RuntimeError):  # the system has no thread for it
            watcher.start()
    try:
        yield
    finally:
        ended.set()
        if watcher.is_alive():
            watcher.join()
        spent = time.perf_counter() - began
        if spent > 1.0 and not sys.stderr.isatty():
            note(f"{what} {spent:.1f} s")
