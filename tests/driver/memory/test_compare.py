"""`dlc memory --compare` tells how two plans differ, and of which values."""

from __future__ import annotations

from dataclasses import replace

from dlc.driver.memory.compare import compared, comparison_data, comparison_text
from tests.driver.memory.models import CHAIN, chain, found

LONGER = CHAIN.replace(
    "return cumsum(twice, axis=1)",
    "return cumsum(cumsum(twice, axis=1) + cumsum(sums, axis=0), axis=0) * sums",
)
"""The same, but `sums` is needed to the end."""


def test_a_plan_does_not_differ_from_itself() -> None:
    assert all(not each.differences for each in compared(chain(), chain()))
    text = comparison_text(chain(), chain())
    assert text.count("no value differs") == 2
    assert "only in" not in text


def test_a_value_that_lives_longer_is_told_with_both_lives() -> None:
    each = compared(chain(), found(LONGER))[0]
    (sums,) = [d for d in each.differences if d.title.startswith("sums")]
    assert sums.before is not None
    assert sums.after is not None
    assert (sums.before.last, sums.before.bytes) == (1, 4096)
    assert sums.after.last > 1
    assert each.amounts["arena"][1] > each.amounts["arena"][0]


def test_the_table_tells_how_much_more_is_needed() -> None:
    text = comparison_text(found(CHAIN, "f"), replace(found(LONGER, "f"), model="longer.dlm"))
    assert text.startswith("f at B = 64\n")
    assert "longer.dlm" in text
    assert "+100.0 %" in text
    assert "values that differ" in text


def test_entry_points_of_one_model_alone_are_named() -> None:
    data = comparison_data(chain(), found(CHAIN, "f"))
    assert (data["only_before"], data["only_after"]) == (["small"], [])
    assert "only in m.dlm: small" in comparison_text(chain(), found(CHAIN, "f"))


def test_single_entry_points_are_compared_whatever_they_are_called() -> None:
    other = found(CHAIN.replace("export fn f(", "export fn g("), "g")
    (each,) = compared(found(CHAIN, "f"), other)
    assert (each.before.name, each.after.name) == ("f", "g")
    assert "f at B = 64, and g at B = 64" in comparison_text(found(CHAIN, "f"), other)
