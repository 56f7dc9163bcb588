"""Functions about integers as machine code: what Python computes, and a refusal of what it cannot say."""

from __future__ import annotations

import ctypes
import hashlib
import re
from array import array
from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass
from enum import IntEnum
from random import Random

import pytest

from dlc.codegen.integer_functions import OutsideSubset, compile_function, internal_functions
from dlc.codegen.link.image import link
from dlc.codegen.llvm.target_machine import compile_object
from dlc.runtime.cpu.executable_memory import load_image
from dlc.target.cpu import CpuTarget

FACTOR = 3


@dataclass(frozen=True, slots=True)
class Two:
    """Two arrays."""

    xs: array[int]
    ys: array[int]


def arithmetic(t: Two, a: int, b: int) -> int:
    """Every operator, on numbers that are not negative where it divides."""
    c = a * FACTOR - b + 7
    c += a
    c -= b
    c *= 2
    return c + max(a, b) // (min(a, b) + 1) - len(t.xs)


def comparisons(t: Two, a: int, b: int) -> int:
    found = (a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a != b) + 16 * (a > b) + 32 * (a >= b)
    if not a:
        found += 64
    return found if a != b and (b or a > 3) else -found


def loops(t: Two, a: int, b: int) -> int:
    total = 0
    for i in range(len(t.xs)):
        if t.xs[i] == a:
            continue
        if t.xs[i] == b:
            break
        total += t.xs[i]
        t.ys[i] = total
    for i in range(2, len(t.ys)):
        t.ys[i] += t.ys[i - 2]
    rounds = 0
    while 1:
        rounds += 1
        if rounds >= 5 or t.ys[rounds] > a:
            break
    while total > b and total > 0:
        total -= 2
    return total * 100 + rounds


def inner(t: Two, index: int) -> int:
    if index < 0:
        return -1
    t.ys[index] += 1
    return t.xs[index]


def outer(t: Two, a: int, b: int) -> int:
    found = 0
    for i in range(len(t.xs)):
        found += inner(t, i if i != a else -1) * (b if i else 1)
    return found


def guarded(t: Two, a: int, b: int) -> int:
    """What is not needed is not looked at: the array has no such element."""
    if a < len(t.xs) and t.xs[a] > b:
        return 1
    if a >= len(t.xs) or t.xs[a] == b:
        return 2
    return 0


class Field(IntEnum):
    """Fields of a row."""

    COUNT = 0
    PRICE = 1


def price(rows: Sequence[int], row: int) -> int:
    return rows[row + Field.COUNT] * rows[row + Field.PRICE]


def running_sums(rows: Sequence[int], sums: MutableSequence[int], limit: int) -> bool:
    """Tables of words, passed on to another function."""
    total = 0
    for row in range(3):
        total += price(rows, 2 * row)
        sums[row] = total
    return total > limit and not sums[0]


def count_and_keep(t: Two, index: int) -> int:
    t.ys[0] += 1
    return index


def counts_once(t: Two, a: int, b: int) -> int:
    """A place that is added to is looked for once."""
    t.xs[count_and_keep(t, 3)] += a
    return t.ys[0]


def shadows(t: Two, a: int, b: int) -> int:
    """A variable hides what the module calls so."""
    FACTOR = a + 1
    return FACTOR * 2


@pytest.mark.parametrize(
    "function", [arithmetic, comparisons, loops, outer, guarded, counts_once, shadows]
)
def test_machine_code_computes_what_python_does(function: Callable[[Two, int, int], int]) -> None:
    compiled = compile_function(function, Two)
    random = Random(0)
    for _ in range(300):
        xs = array("q", [random.randrange(6) for _ in range(8)])
        a, b = random.randrange(12), random.randrange(12)
        ours, pythons = Two(xs, array("q", range(8))), Two(xs, array("q", range(8)))
        assert compiled(ours, a, b) == function(pythons, a, b)
        assert ours.ys == pythons.ys


def test_functions_of_tables_are_text_that_other_text_calls() -> None:
    entry = """
define i64 @entry(ptr %rows, ptr %sums, i64 %limit) {
  %is_above = call i64 @running_sums(ptr %rows, ptr %sums, i64 %limit)
  ret i64 %is_above
}
"""
    text = internal_functions(running_sums) + entry
    image = link({"entry": compile_object(text, CpuTarget.named("host"))})
    loaded = load_image(image.code, hashlib.sha256(image.code).digest(), image.imports)
    integer, pointer = ctypes.c_int64, ctypes.c_void_p
    code = ctypes.CFUNCTYPE(integer, pointer, pointer, integer)(
        loaded.base + image.entries["entry"]
    )
    random = Random(0)
    for _ in range(100):
        rows = array("q", [random.randrange(4) for _ in range(6)])
        ours, pythons = array("q", [0] * 3), array("q", [0] * 3)
        limit = random.randrange(20)
        found = code(rows.buffer_info()[0], ours.buffer_info()[0], limit)
        assert found == running_sums(rows, pythons, limit)
        assert ours == pythons


def raises_to_a_power(t: Two, a: int, b: int) -> int:
    return a**b


def builds_a_list(t: Two, a: int, b: int) -> int:
    return [a, b][0]


def unpacks(t: Two, a: int, b: int) -> int:
    a, b = b, a
    return a


def reads_nothing(t: Two, a: int, b: int) -> int:
    return undefined + a  # noqa: F821 # pyright: ignore[reportUndefinedVariable, reportUnknownVariableType]


def chains(t: Two, a: int, b: int) -> bool:
    return a < b < 3


def uses_a_test_for_its_value(t: Two, a: int, b: int) -> int:
    return a and b


def takes_three(t: Two, a: int, b: int) -> int:
    return min(a, b, 3)


def steps(t: Two, a: int, b: int) -> int:
    for _ in range(a, b, 2):
        return 1
    return 0


elsewhere = bool
"""No function of this module."""


def calls_what_is_elsewhere(t: Two, a: int, b: int) -> int:
    return elsewhere(a)


def passes_a_number(t: Two, a: int, b: int) -> int:
    return inner(a, b)  # pyright: ignore[reportArgumentType]


def replaces_its_record(t: Two, a: int, b: int) -> int:
    t = a  # pyright: ignore[reportAssignmentType]
    return inner(t, b)


def has_a_default(t: Two, a: int, b: int = 3) -> int:
    return a + b


def takes_a_text(t: Two, a: str, b: int) -> int:
    return b


def knows_no_such_member(t: Two, a: int, b: int) -> int:
    return Field.WEIGHT  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]


REFUSED: dict[Callable[..., int], str] = {
    raises_to_a_power: "a ** b",
    builds_a_list: "[a, b][0]",
    unpacks: "(b, a)",
    reads_nothing: "undefined",
    chains: "a < b < 3",
    uses_a_test_for_its_value: "a and b",
    takes_three: "min(a, b, 3)",
    steps: "for _ in range(a, b, 2)",
    calls_what_is_elsewhere: "elsewhere(a)",
    passes_a_number: "a: the call takes a Two",
    replaces_its_record: "t",
    has_a_default: "t: Two, a: int, b: int=3",
    takes_a_text: "a: str",
    knows_no_such_member: "Field.WEIGHT",
}


@pytest.mark.parametrize("function", REFUSED)
def test_what_has_no_machine_code_is_refused(function: Callable[..., int]) -> None:
    quoted = re.escape(f"no machine code for {REFUSED[function]}")
    with pytest.raises(OutsideSubset, match=rf"{function.__name__}, line \d+: {quoted}"):
        compile_function(function, Two)


def writes_what_it_only_reads(rows: Sequence[int]) -> int:
    rows[0] = 1  # pyright: ignore[reportIndexIssue]
    return 0


def test_a_table_to_read_is_not_written() -> None:
    with pytest.raises(OutsideSubset, match="rows is only read"):
        internal_functions(writes_what_it_only_reads)
