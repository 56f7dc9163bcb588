"""What a fuzzer is, and what becomes of one of its cases."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from dlc.errors import ArtifactError, DlcError, InternalError

Verdict: TypeAlias = Literal["agreed", "refused", "unstable", "no peer", "wrong", "crashed"]
ROOT = Path(__file__).parents[2]
FAILURES: tuple[Verdict, ...] = ("wrong", "crashed")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case.

    `unstable` is one whose result rounding alone decides, such as the sign of a difference of equals,
    and `no peer` one that the other implementation does not run. `count` says how many comparisons it
    made: sizes, results, steps of training.
    """

    verdict: Verdict
    what: str = ""
    count: int = 1


Check: TypeAlias = Callable[[int], Outcome]
"""Makes the case of a seed and tries it. The same seed gives the same case on every machine."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A fuzzer: `start` is called once in each process, `seconds` is the longest that a case may take.

    After `recycled` cases a process makes room for a fresh one: what leaks or only ever grows ends there.
    """

    what: str
    start: Callable[[], Check]
    seconds: float = 120.0
    recycled: int = 1_000


def attempt(check: Check, seed: int) -> Outcome:
    """What becomes of a case, whatever it raises."""
    try:
        return check(seed)
    except InternalError as error:
        return Outcome("crashed", reason(error))
    except ArtifactError as error:
        # A program that was just compiled: the checks of its loader found a fault of the compiler.
        return Outcome("wrong", reason(error))
    except DlcError as error:
        return Outcome("refused", reason(error))
    except Exception as error:  # noqa: BLE001 - what else comes out is what a fuzzer looks for
        return Outcome("crashed", described(error))


def reason(error: DlcError) -> str:
    """The code and the message of a refusal, as it stands."""
    first = error.diagnostics[0]
    return f"{first.code} {first.message}"


def described(error: BaseException) -> str:
    """An exception and where it was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    file = Path(last.filename)
    file = file.relative_to(ROOT) if file.is_relative_to(ROOT) else Path(file.name)
    return f"{type(error).__name__} at {file}:{last.lineno}: {error}"


_QUOTED = re.compile(r"'[^']*'|`[^`]*`|\"[^\"]*\"")
_NUMBER = re.compile(r"-?\b\d[\w.]*(?:[-+]\d+)?")
_LIST = re.compile(r"\[[^\[\]]*\]")
_PATH = re.compile(r"(?<![\w.])/\S*/\S*")
_TEMPORARY = re.compile(r"\b[a-z]{1,2}\d+\b")
LONGEST = 160


def placeholders(what: str) -> str:
    """A reason without what differs from case to case, so that equal reasons can be counted.

    >>> placeholders("D0301 n12: cannot multiply 'x3' f32[3, 4] by f32[5]")
    'D0301 NAME: cannot multiply NAME f32[..] by f32[..]'
    """
    code, _, message = what.partition(" ")
    message = _QUOTED.sub("NAME", message)
    message = _PATH.sub("PATH", message)
    message = _LIST.sub("[..]", message)
    message = _TEMPORARY.sub("NAME", message)
    message = _NUMBER.sub("N", message)
    return f"{code} {message}"[:LONGEST].rstrip()
