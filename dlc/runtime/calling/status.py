"""Errors of calls: from status words to an error with the line of the model text."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from dlc.errors import CallError, SourceLocation
from dlc.runtime.abi import CallWord, Status
from dlc.runtime.artifact.manifest import Need, Op

_CODES = {
    Status.INDEX: "D0807",
    Status.RANGE: "D0807",
    Status.LIMIT: "D0808",
    Status.CANCELLED: "D0809",
    Status.STOPPED: "D0809",
    Status.BOUND: "D0810",
    Status.VERSION: "D0812",
}
_MESSAGES = {
    Status.INDEX: "the index {a} is out of range for an axis of size {b}",
    Status.RANGE: "the slice from index {a} on leaves its axis of size {b}",
    Status.LIMIT: "the loop did not end within its limit of {a} rounds",
    Status.CANCELLED: "the call was cancelled",
    Status.STOPPED: "the call was stopped after the op that was asked for",
    Status.BOUND: "the computed size {a} exceeds its bound {b}",
    Status.VERSION: "the engine in the artifact is of another version of the call interface",
}
_FROM_0 = (
    "an index that is computed counts from 0: where(i < 0, i + {b}, i) counts from the end, too"
)
_MOST_INDEX = (1 << 63) - 1
"""What compiled code takes for an index of u64 that i64 does not hold."""
_NOTHING = "there is nothing to take from an axis of size 0"
_CALL = re.compile(r"([A-Za-z]\w*)\(.*\)")
_CHOOSING = ("argmax", "argmin", "top_k")
"""Functions that fail where an axis has too few elements to choose from, and take no index."""
_OF_AN_OP = (Status.INDEX, Status.RANGE, Status.LIMIT, Status.BOUND)


def call_error(
    what: str, words: Sequence[int], ops: Sequence[Op], texts: Callable[[], Mapping[str, str]]
) -> CallError:
    """The error for a `dlc_call` of the entry point `what` that ended with a status other than OK.

    `texts` has the model text by file name, for the excerpt under the message. Without it the message
    contains the name of the computed value, if it has one; the name of a kernel would not help the caller.
    """
    try:
        status = Status(words[CallWord.STATUS])
    except ValueError:
        message = f"{what}: the engine gave the unknown status {words[CallWord.STATUS]}"
        return CallError(message, code="D0812")
    step = words[CallWord.STATUS_STEP]
    op = ops[step] if status in _OF_AN_OP and 0 <= step < len(ops) else Op("")
    a, b = words[CallWord.STATUS_A], words[CallWord.STATUS_B]
    message = _filled(op.message, a, b) if op.message else _told(status, a, b)
    sources = texts()
    quoted = _quoted(op, sources)
    named = op.name if quoted is None and op.name != op.kernel else ""
    told = [op.place if quoted is None else "", what, named, message]
    return CallError(
        ": ".join(filter(None, told)),
        code=_CODES[status],
        place=quoted,
        help=None if op.message else _ways_out(status, a, b, quoted, sources),
        sources=sources,
    )


def failure(status: Status, a: int, b: int, place: SourceLocation | None) -> CallError:
    """The error for a status and its two numbers, in the evaluation of an operation.

    >>> print(failure(Status.INDEX, 3, 2, None))
    error[D0807]: the index 3 is out of range for an axis of size 2
    """
    return CallError(
        _told(status, a, b), code=_CODES[status], place=place, help=_way_out(status, a, b)
    )


def _told(status: Status, a: int, b: int) -> str:
    if status == Status.INDEX and b == 0:
        return _NOTHING
    message = _MESSAGES[status]
    if status in (Status.INDEX, Status.RANGE) and a == _MOST_INDEX:
        message = message.replace("{a}", "{a} or more")
    return _filled(message, a, b)


def _way_out(status: Status, a: int, b: int) -> str | None:
    """The way out for a negative index: only literals in the text count from the end."""
    return _filled(_FROM_0, a, b) if status == Status.INDEX and -b <= a < 0 else None


def _ways_out(
    status: Status, a: int, b: int, place: SourceLocation | None, sources: Mapping[str, str]
) -> str | None:
    called = _called(place, sources) if status in (Status.INDEX, Status.RANGE) else ""
    if called in _CHOOSING:
        called = ""
    told = f"an argument of {called} holds the index, or one that it follows from" if called else ""
    return "; ".join(filter(None, [told, _way_out(status, a, b)])) or None


def _called(place: SourceLocation | None, sources: Mapping[str, str]) -> str:
    """The name of what the text calls at a place, if it is a call.

    >>> _called(SourceLocation("a.dlm", 1, 5, 14), {"a.dlm": "y = ctc(x, y)"})
    'ctc'
    """
    if place is None:
        return ""
    lines = sources[place.file].splitlines()
    line = lines[place.line - 1] if place.line <= len(lines) else ""
    call = _CALL.fullmatch(line[place.column - 1 : place.end - 1 if place.end else None])
    return call[1] if call else ""


def _filled(message: str, a: int, b: int) -> str:
    return message.replace("{a}", str(a)).replace("{b}", str(b))


def located_error(
    error: CallError, what: str, op: Op, texts: Callable[[], Mapping[str, str]]
) -> CallError:
    """An error in a call of the entry point `what`, with the operation that failed."""
    (said,) = error.diagnostics
    sources = texts()
    quoted = _quoted(op, sources)
    told = [op.place if quoted is None else "", what, op.name, said.message]
    message = ": ".join(filter(None, told))
    return CallError(message, code=said.code, place=quoted, help=said.help, sources=sources)


@contextmanager
def called(what: str) -> Generator[None]:
    """A context for evaluating the entry point `what`: failures name it, as those of compiled code do."""
    try:
        yield
    except CallError as error:
        told = [replace(said, message=f"{what}: {said.message}") for said in error.diagnostics]
        raise CallError(told, sources=error.sources) from None


def need_error(
    what: str,
    need: Need,
    sizes: Sequence[int],
    dims: Mapping[str, int],
    texts: Callable[[], Mapping[str, str]],
    way_out: Callable[[], str | None] | None = None,
) -> CallError:
    """The error for a call of the entry point `what` that does not meet a need; `way_out` finds its help.

    `sizes` are the values of the sizes that it compares, and `dims` has those of the dims they depend on.
    """
    sources = texts()
    quoted = _quoted(need, sources)
    where = " and ".join(f"{name} is {value}" for name, value in dims.items())
    message = f"{need.told} where {where}"
    for key, size in zip(("{n}", "{m}"), sizes, strict=False):
        message = message.replace(key, str(size))
    told = ": ".join(filter(None, [need.place if quoted is None else "", what, message]))
    return CallError(told, code=need.code, place=quoted, sources=sources, help=way_out)


def _quoted(record: Op | Need, sources: Mapping[str, str]) -> SourceLocation | None:
    """The location to show under a message, if its text is in the artifact.

    Other files are never opened, since an untrusted artifact may name any.
    """
    place = place_of(record.place, record.end)
    return place if place is not None and place.file in sources else None


def place_of(text: str, end: int = 0) -> SourceLocation | None:
    """The location of a text `file:line:col`, with the end column `end`; None if the text has no location.

    >>> place_of("nets/mlp.dlm:12:5", 8)
    SourceLocation(file='nets/mlp.dlm', line=12, column=5, end=8)
    """
    file, _, rest = text.partition(":")
    line, _, column = rest.partition(":")
    if not (file and line.isdecimal() and column.isdecimal() and len(rest) < 20):
        return None
    return SourceLocation(file, max(1, int(line)), max(1, int(column)), end)
