"""What `stablehlo_suite` counts as agreement, and that its processes survive."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

from benchmarks.stablehlo_suite.comparing import (
    as_near_to_f64,
    difference,
    equal_but_for_order,
    picks_equal_elements,
    within_roundings,
    within_roundings_of_largest,
)
from benchmarks.stablehlo_suite.workers import Lost, work_through


def f32(*numbers: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.array(numbers, np.float32)


def test_integers_agree_exactly_and_floats_need_shape_dtype_and_places_of_nan() -> None:
    assert difference([np.arange(3)], [np.arange(3)]) is None
    assert difference([np.arange(3)], [np.array([0, 1, 3])]) == "result 0: 1 of 3 elements differ"
    assert difference([f32(1)], [np.ones(1)]) == "result 0 is float32[1], not float64[1]"
    assert difference([f32(1, np.nan)], [f32(np.nan, 1)]) == "result 0: NaN in other places"
    assert difference([], [f32(1)]) == "0 results, 1 wanted"


def test_floats_agree_within_roundings_of_each_element() -> None:
    large = f32(1e10, 1e-10)
    assert within_roundings([large * np.float32(1 + 1e-6)], [large])
    assert not within_roundings([large + f32(0, 1e-12)], [large])
    assert not within_roundings([f32(np.inf)], [f32(-np.inf)])
    assert within_roundings([f32(np.nan, 1e-42)], [f32(np.nan, 0)])


def test_sums_that_cancel_may_be_as_far_from_f64_as_jax() -> None:
    exact = np.array([1.0, 1e-9])
    assert as_near_to_f64([f32(1, 3e-9)], [f32(1, 0)], lambda: [exact])
    assert not as_near_to_f64([f32(1, 1e-4)], [f32(1, 0)], lambda: [exact])


def test_rows_with_equal_keys_may_come_in_any_order() -> None:
    keys, one, other = np.array([1, 1, 2]), np.array([5, 6, 7]), np.array([6, 5, 7])
    assert equal_but_for_order([keys, one], [keys, other], 1)
    assert not equal_but_for_order([keys, one], [keys, other], 2)
    assert not equal_but_for_order([keys, one], [keys, np.array([5, 5, 7])], 1)


def test_equal_elements_may_be_found_in_other_places() -> None:
    source, wanted = f32(3, 5, 5, 1), [f32(5, 5), np.array([2, 1])]
    assert picks_equal_elements(source, [f32(5, 5), np.array([1, 2])], wanted)
    assert not picks_equal_elements(source, [f32(5, 5), np.array([1, 1])], wanted)
    assert not picks_equal_elements(source, [f32(5, 3), np.array([1, 0])], wanted)


def test_sums_without_f64_are_measured_by_the_largest() -> None:
    assert within_roundings_of_largest([f32(1, 1e-7)], [f32(1, 0)])
    assert not within_roundings_of_largest([f32(1, 1e-4)], [f32(1, 0)])


def tried(task: int) -> int:
    """Ends its process, hangs, or answers."""
    if task == 1:
        os._exit(7)
    if task == 2:
        time.sleep(60)
    return 10 * task


@pytest.mark.long
def test_a_process_that_ends_or_hangs_takes_no_other_task_along() -> None:
    found = dict(work_through(tried, range(5), 2, 3.0))
    assert (found[0], found[3], found[4]) == (0, 30, 40)
    assert found[1] == Lost("the process ended with 7")
    assert found[2] == Lost("no answer within 3 s")
