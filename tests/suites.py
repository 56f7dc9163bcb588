"""The quick suite: which cases of a parametrised test run every time; the others are marked `long`.

A case that is a tuple, also of tuples, is several arguments of a test; `pytest.param(x)` is one that is a
tuple itself.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import reprlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ParamSpec, cast

import pytest
from _pytest.mark import Mark, MarkDecorator, ParameterSet


def every(step: int, cases: Iterable[object]) -> list[ParameterSet]:
    """All cases, of which every `step`-th, from the first on, is in the quick suite.

    >>> [bool(case.marks) for case in every(3, range(5))]
    [False, True, True, False, True]
    """
    return [_case(_parts(case), index % step == 0) for index, case in enumerate(cases)]


def each_value(*axes: Iterable[object]) -> list[ParameterSet]:
    """The product of the axes; the quick suite has each value of each axis.

    >>> sum(not case.marks for case in each_value("abc", (1, 2)))
    3
    """
    return _covering(axes, 1)


def pairs(*axes: Iterable[object]) -> list[ParameterSet]:
    """The product of the axes; the quick suite has each pair of values of two axes (pairwise covering).

    >>> sum(not case.marks for case in pairs("abc", (1, 2, 3), (False, True), "xy"))
    9
    """
    return _covering(axes, 2)


def _covering(axes: Iterable[Iterable[object]], strength: int) -> list[ParameterSet]:
    """The product of the axes; the quick suite has all values that so many axes can have together.

    The choice is greedy: again and again the case that covers most of what is left.
    """
    options = [list(axis) for axis in axes]
    places = list(itertools.product(*(range(len(axis)) for axis in options)))
    covered = {place: set(itertools.combinations(enumerate(place), strength)) for place in places}
    left = set[tuple[tuple[int, int], ...]]().union(*covered.values())
    quick: set[tuple[int, ...]] = set()
    while left:
        chosen = max(places, key=lambda place: len(left & covered[place]))
        quick.add(chosen)
        left -= covered[chosen]
    return [
        _case([axis[index] for axis, index in zip(options, place, strict=True)], place in quick)
        for place in places
    ]


P = ParamSpec("P")

SHOWN = 3
"""So many of the cases that fail are shown with their traceback; the others are named."""
LETTERS = 60
"""The length of a name that is made of the values of a case."""


def together(
    names: str | Sequence[str],
    cases: Iterable[ParameterSet | Sequence[object] | object],
    *,
    ids: Callable[[Any], str] | Sequence[str] | None = None,
    parts: int = 1,
) -> Callable[[Callable[P, None]], Callable[..., None]]:
    """As `pytest.mark.parametrize`, but all cases are one test, and those that are `long` another.

    For cases of a few milliseconds: pytest takes longer for a test than they do. Every case runs, and
    those that fail are named. They share the fixtures of the test, and none can be skipped. What takes
    seconds is divided into `parts` tests, which run on several processors.
    """
    arguments = [names] if isinstance(names, str) else list(names)
    made: list[ParameterSet] = []
    for number, case in enumerate(cases):
        if isinstance(case, ParameterSet):
            made.append(case)
            continue
        values = (case,) if isinstance(names, str) else tuple(cast("Sequence[object]", case))
        if ids is None:
            name = "-".join(str(value) for value in values)[:LETTERS]
        else:
            name = ids(case) if callable(ids) else ids[number]
        made.append(pytest.param(*values, id=name))
    quick = [case for case in made if not case.marks]
    long = [case for case in made if case.marks]
    suites = [
        pytest.param(chosen[part::parts], marks=marks, id=f"{suite}{part + 1 if parts > 1 else ''}")
        for suite, chosen, marks in (("quick", quick, ()), ("long", long, pytest.mark.long))
        for part in range(parts)
        if chosen[part::parts]
    ]

    def decorate(test: Callable[P, None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(cases: Sequence[ParameterSet], **fixtures: object) -> None:
            __tracebackhide__ = True
            check = cast("Callable[..., None]", test)
            given = [dict(zip(arguments, case.values, strict=True)) for case in cases]
            check_each(
                (
                    str(case.id or reprlib.repr(case.values)),
                    functools.partial(check, **one, **fixtures),
                )
                for case, one in zip(cases, given, strict=True)
            )

        parameters = inspect.signature(test).parameters.values()
        fixtures = [each for each in parameters if each.name not in arguments]
        cases = inspect.Parameter("cases", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        run.__dict__["__signature__"] = inspect.Signature([cases, *fixtures])
        return pytest.mark.parametrize("cases", suites)(run)

    return decorate


def check_each(checks: Iterable[tuple[str, Callable[[], None]]]) -> None:
    """Run checks by their names; an exception group says which of them failed and shows the first.

    >>> check_each([("one", lambda: None), ("two", lambda: int("x")), ("three", lambda: None)])
    Traceback (most recent call last):
    ExceptionGroup: 1 of 3 cases fail: two (1 sub-exception)
    """
    every_check = list(checks)
    failed: list[str] = []
    shown: list[Exception] = []
    for name, check in every_check:
        try:
            check()
        except Exception as error:  # noqa: BLE001 - whatever it is, the other cases run
            failed.append(name)
            if len(shown) < SHOWN:
                error.add_note(f"case {name}")
                shown.append(error)
    if failed:
        told = f"{len(failed)} of {len(every_check)} cases fail: {', '.join(failed)}"
        raise ExceptionGroup(told, shown)


def _parts(case: object) -> tuple[object, ...]:
    """What a case is put together from; a parameter set, which is a tuple as well, is one part."""
    if isinstance(case, tuple) and not isinstance(case, ParameterSet):
        return cast("tuple[object, ...]", case)
    return (case,)


def _flat(part: object) -> list[object]:
    """The arguments that a part of a case stands for."""
    if isinstance(part, ParameterSet):
        return list(part.values)
    if isinstance(part, tuple):
        inner = cast("tuple[object, ...]", part)
        return [argument for each in inner for argument in _flat(each)]
    return [part]


def _case(parts: Sequence[object], is_quick: bool) -> ParameterSet:
    arguments: list[object] = []
    marks: list[MarkDecorator | Mark] = [] if is_quick else [pytest.mark.long]
    for part in parts:
        if isinstance(part, ParameterSet):
            marks += part.marks
        arguments += _flat(part)
    names = [_name(part) for part in parts]
    is_named = all(names) and any(isinstance(part, ParameterSet) for part in parts)
    return pytest.param(*arguments, marks=marks, id="-".join(names) if is_named else None)


def _name(part: object) -> str:
    """What a part is called in the name of its case; empty where pytest chooses."""
    if isinstance(part, ParameterSet):
        return str(part.id or "")
    return str(part) if isinstance(part, (str, int, float)) and str(part).isascii() else ""
