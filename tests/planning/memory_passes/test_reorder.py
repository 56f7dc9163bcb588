"""Work runs in an order that holds less, if that is as quick: large values one after the other."""

from __future__ import annotations

from functools import cache

import numpy as np

from dlc.driver.call_memory.facts import EntryMemory
from dlc.driver.compile.compile import compile_model, lower
from dlc.driver.compile.settings import Settings
from dlc.driver.memory.asked import MemoryRequest, memory_of
from dlc.driver.run.request import CompileRequest
from dlc.driver.source.open import open_model
from dlc.runtime.model import Model
from dlc.text.ir.printer import print_module

CHAINS = """dlc 1
export fn f(x: f32[N, N], y: f32[N, N]) -> f32[N] {
  let a = cumsum(x, axis=0)
  let b = cumsum(y, axis=0)
  let c = cumsum(sort(a, axis=1), axis=1)[:, 0]
  let d = cumsum(sort(b, axis=1), axis=1)[:, 0]
  return c + d
}
"""
"""Two chains that need nothing of each other, written side by side."""
LOOP = """dlc 1
export fn f(x: f32[8, 1024, 1024], y: f32[8, 1024, 1024]) -> f32[8, 1024] {
  let (.., found) = scan (a, b) in (x, y) with h = zeros([1024]) {
    let c = cumsum(a, axis=0)
    let d = cumsum(b, axis=0)
    let e = cumsum(sort(c, axis=1), axis=1)[:, 0]
    let g = cumsum(sort(d, axis=1), axis=1)[:, 0]
    next h = h + e + g
    yield h
  }
  return found
}
"""
LARGE, SMALL = CHAINS.replace("N", "1024"), CHAINS.replace("N", "16")


@cache
def memory(text: str, *disabled: str, level: int = 2) -> EntryMemory:
    settings = Settings(level, disabled=frozenset(disabled))
    (entry,) = memory_of(
        MemoryRequest(CompileRequest("m.dlm", text=text, settings=settings))
    ).entries
    return entry


def test_chains_that_need_nothing_of_each_other_hold_less_one_after_the_other() -> None:
    before, after = memory(LARGE, "reorder"), memory(LARGE)
    assert after.arena <= 0.75 * before.arena
    assert after.arena == after.order_bound
    assert before.any_order_bound == after.any_order_bound <= after.arena


def test_work_that_is_done_in_no_time_gets_no_further_barriers() -> None:
    assert memory(SMALL).waves == memory(SMALL, "reorder").waves


def test_without_optimisation_the_order_is_what_is_written() -> None:
    assert memory(LARGE, level=0).arena == memory(LARGE, "reorder", level=0).arena


def test_results_are_the_same_bits_in_every_order() -> None:
    random = np.random.default_rng(1)
    x, y = random.standard_normal((2, 1024, 1024), np.float32)
    one, other = [
        np.asarray(
            Model(
                compile_model(
                    open_model("m.dlm", text=LARGE), Settings(disabled=frozenset(disabled))
                )
            ).entry_points["f"](x, y)
        )
        for disabled in ((), ("reorder",))
    ]
    np.testing.assert_array_equal(one, other)


def test_the_log_says_what_another_order_saves() -> None:
    opened = open_model("m.dlm", text=LARGE)
    lower(opened, Settings(), "kernel")
    (said,) = [each for each in opened.context.log if each.pass_name == "reorder"]
    assert said.kind == "did"
    assert int(said.figures["peak_then"]) < int(said.figures["peak_before"])
    assert int(said.figures["least"]) == memory(LARGE).any_order_bound


def test_the_rounds_of_a_loop_have_an_order_of_their_own() -> None:
    before, after = memory(LOOP, "reorder"), memory(LOOP)
    assert after.arena < before.arena


def test_the_same_text_has_the_same_order() -> None:
    one, other = open_model("m.dlm", text=LARGE), open_model("m.dlm", text=LARGE)
    lower(one, Settings(), "plan")
    lower(other, Settings(), "plan")
    assert print_module(one.module) == print_module(other.module)
