"""Kernels that give memory back run early: updates behind their gradients, and never before a reader."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from dlc.dialects import func
from dlc.driver.compile.checks.verify_each import EachPass
from dlc.driver.compile.compile import lower
from dlc.driver.compile.entries import find_function
from dlc.driver.compile.settings import Settings
from dlc.driver.run.request import CompileRequest
from dlc.driver.run.train import make_trainer
from dlc.driver.source.open import open_training
from dlc.ir.passes import PASSES, Context
from dlc.ir.verify import verify
from dlc.planning.aliases import origin, readers
from dlc.planning.liveness import Timeline, updates_of
from dlc.planning.memory_passes.recompute import MARK
from dlc.target.estimates import is_product
from tests.suites import every

NETWORK = """\
dlc 1
import nn (Linear)

module Small(D = 48) {
  use layers = chain(Linear(D, D), tanh, Linear(D, D), tanh, Linear(D, D), tanh, Linear(D, D))
  fn call(x: f32[4, 48]) -> f32[4, 48] = layers(x)
}

train Small {
  data = npz("data.npz", x="x")
  loss(x: f32[4, 48]) = mean((call(x) - x) ** 2)
  optimizer = OPTIMIZER
}
"""


def text(optimizer: str) -> str:
    return NETWORK.replace("OPTIMIZER", optimizer)


@cache
def step(optimizer: str, *disabled: str) -> tuple[func.Func, Context]:
    """The step of training as kernels."""
    opened = open_training("model.dlm", text=text(optimizer), purpose="train")
    lower(opened, Settings(disabled=frozenset(("recompute", "reorder", *disabled))), "kernel")
    verify(opened.module)
    return find_function(opened.module, "train_step"), opened.context


def held(function: func.Func) -> int:
    """The most bytes that are held at any time."""
    return max(Timeline(function).alive)


def test_gradients_do_not_live_to_the_end_of_the_step() -> None:
    weight = 48 * 48 * 4
    apart = "fuse_updates"
    assert held(step("adam(lr=1e-3)", "release", apart)[0]) > 4 * weight
    assert held(step("adam(lr=1e-3)", apart)[0]) < 3 * weight


def test_gradients_that_are_shortened_together_wait_for_each_other() -> None:
    optimizer = "adam(lr=1e-3, clip_norm=1)"
    assert held(step(optimizer)[0]) > 4 * 48 * 48 * 4


@pytest.mark.parametrize("optimizer", ["adam(lr=1e-3)", "nesterov(lr=0.1)", "sgd(lr=0.1)"])
def test_nothing_reads_an_argument_that_was_updated(optimizer: str) -> None:
    function, _ = step(optimizer)
    number = {op: index for index, op in enumerate(function.body)}
    updates = updates_of(function)
    assert updates
    for value, argument in updates.items():
        assert value.op is not None
        assert all(number[op] <= number[value.op] for op in readers(argument)), argument.name


def test_products_keep_their_order() -> None:
    plain, moved = [
        [str(op.location.place) for op in step("sgd(lr=0.1)", *disabled)[0].body if is_product(op)]
        for disabled in (("release",), ())
    ]
    assert len(plain) > 8
    assert moved == plain


def test_what_moved_and_how_far_is_in_the_log() -> None:
    _, context = step("adam(lr=1e-3)", "fuse_updates")
    moved = [d for d in context.log if d.pass_name == "release"]
    assert len(moved) >= 12
    assert all(d.what == "run earlier" and int(d.figures["operations"]) > 0 for d in moved)


def test_the_meaning_is_the_same_behind_the_pass() -> None:
    opened = open_training("model.dlm", text=text("adam(lr=1e-3)"), purpose="train")
    lower(opened, Settings(disabled=frozenset({"recompute", "release"})), "kernel")
    check = EachPass()
    check.before("release", opened.module)
    PASSES["release"].run(opened.module, opened.context)
    check.after("release", opened.module)


@pytest.mark.parametrize("optimizer", every(2, ["adam(lr=1e-2)", "momentum(lr=0.1, clip_norm=1)"]))
def test_no_bit_of_a_training_changes(optimizer: str) -> None:
    x = np.random.default_rng(0).standard_normal((4, 48), np.float32)
    found: list[dict[str, bytes]] = []
    for disabled in ((), ("release",)):
        settings = Settings(disabled=frozenset(disabled))
        trainer, _ = make_trainer(
            CompileRequest("model.dlm", text=text(optimizer), settings=settings)
        )
        for _ in range(3):
            trainer.step(x=x)
        found.append({name: np.array(w).tobytes() for name, w in trainer.weights.items()})
    assert found[0] == found[1]


def test_nothing_is_computed_again_from_a_weight_that_was_updated() -> None:
    opened = open_training("model.dlm", text=text("sgd(lr=0.1)"), purpose="train")
    lower(opened, Settings(recompute=10.0), "kernel")
    function = find_function(opened.module, "train_step")
    number = {op: index for index, op in enumerate(function.body)}
    written = {arg: number[v.op] for v, arg in updates_of(function).items() if v.op is not None}
    again = [op for op in function.body if MARK in op.attributes]
    assert again
    for op in again:
        assert all(written.get(origin(v), number[op]) >= number[op] for v in op.operands)
