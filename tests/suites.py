"""The quick suite: which cases of a parametrised test run every time; the others are marked `long`.

A case that is a tuple, also of tuples, is several arguments of a test; `pytest.param(x)` is one that is a
tuple itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import cast

import pytest
from _pytest.mark import Mark, MarkDecorator, ParameterSet


def every(step: int, cases: Iterable[object]) -> list[ParameterSet]:
    """All cases, of which every `step`-th, from the first on, is in the quick suite.

    >>> [bool(case.marks) for case in every(3, range(5))]
    [False, True, True, False, True]
    """
    return [_case((case,), index % step == 0) for index, case in enumerate(cases)]


def pairs(*axes: Iterable[object]) -> list[ParameterSet]:
    """The product of the axes; the quick suite has each pair of values of two axes (pairwise covering).

    The choice is greedy: again and again the case that covers most of the pairs that are left.

    >>> sum(not case.marks for case in pairs("abc", (1, 2, 3), (False, True), "xy"))
    9
    """
    values = [list(axis) for axis in axes]
    places = list(itertools.product(*(range(len(axis)) for axis in values)))
    left = {pair for place in places for pair in _pairs_of(place)}
    quick: set[tuple[int, ...]] = set()
    while left:
        chosen = max(places, key=lambda place: len(left & _pairs_of(place)))
        quick.add(chosen)
        left -= _pairs_of(chosen)
    return [
        _case([axis[index] for axis, index in zip(values, place, strict=True)], place in quick)
        for place in places
    ]


def _pairs_of(place: Sequence[int]) -> set[tuple[tuple[int, int], ...]]:
    """The pairs of values in a case, each value as its axis and its index there."""
    return set(itertools.combinations(enumerate(place), 2))


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
    names: list[str] = []
    for part in parts:
        if isinstance(part, ParameterSet):
            marks += part.marks
            names += [str(part.id)] if part.id else []
        arguments += _flat(part)
    named = len(names) == len(parts)
    return pytest.param(*arguments, marks=marks, id="-".join(names) if named else None)
