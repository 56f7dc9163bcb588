"""Updates of a weight are one kernel, the end of the product that makes its gradient where there is one."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from dlc.dialects import func, kernel
from dlc.dialects.kernel.products import Gemm
from dlc.driver.compile.checks.verify_each import EachPass
from dlc.driver.compile.compile import lower
from dlc.driver.compile.entries import find_function
from dlc.driver.compile.settings import Settings
from dlc.driver.run.request import CompileRequest
from dlc.driver.run.train import make_trainer
from dlc.driver.source.open import open_training
from dlc.ir.passes import PASSES, Context
from dlc.ir.verify import verify
from dlc.planning.liveness import Timeline, updates_of
from tests.planning.memory_passes.test_release import text
from tests.suites import every

ADAM = "adam(lr=1e-2)"
WEIGHT = 48 * 48 * 4
LAYERS = 4


@cache
def step(optimizer: str, *disabled: str) -> tuple[func.Func, Context]:
    """The step of training as kernels."""
    opened = open_training("model.dlm", text=text(optimizer), purpose="train")
    lower(opened, Settings(disabled=frozenset(disabled)), "kernel")
    verify(opened.module)
    return find_function(opened.module, "train_step"), opened.context


def updating(function: func.Func) -> list[kernel.Kernel]:
    """The kernels that update arguments."""
    made = dict.fromkeys(value.op for value in updates_of(function))
    return [op for op in made if isinstance(op, kernel.Kernel)]


@pytest.mark.parametrize("optimizer", [ADAM, "momentum(lr=0.1)", "sgd(lr=0.1)", "rmsprop(lr=0.1)"])
def test_a_weight_and_what_is_kept_for_it_are_updated_by_the_product_that_makes_the_gradient(
    optimizer: str,
) -> None:
    function, _ = step(optimizer)
    products = [op for op in updating(function) if isinstance(op, Gemm)]
    assert len(products) == LAYERS
    updated = [value for value in updates_of(function) if kernel.array_type(value).rank == 2]
    assert all(value.op in products for value in updated)
    assert max(Timeline(function).alive) < WEIGHT


def test_a_gradient_that_others_need_before_is_an_array() -> None:
    function, _ = step("adam(lr=1e-2, clip_norm=1)")
    assert not any(isinstance(op, Gemm) for op in updating(function))
    assert len(updating(function)) == 2 * LAYERS


def test_the_meaning_is_the_same_behind_the_pass() -> None:
    opened = open_training("model.dlm", text=text(ADAM), purpose="train")
    lower(opened, Settings(disabled=frozenset({"fuse_updates", "recompute", "release"})), "kernel")
    check = EachPass()
    check.before("fuse_updates", opened.module)
    PASSES["fuse_updates"].run(opened.module, opened.context)
    check.after("fuse_updates", opened.module)


@pytest.mark.parametrize(
    "optimizer", every(3, ["adam(lr=1e-2, clip_norm=1)", ADAM, "nesterov(lr=0.1)"])
)
def test_no_bit_of_a_training_changes(optimizer: str) -> None:
    x = np.random.default_rng(0).standard_normal((4, 48), np.float32)
    found: list[dict[str, bytes]] = []
    for disabled, threads in (((), 1), ((), 2), (("fuse_updates",), 1)):
        settings = Settings(disabled=frozenset(disabled))
        trainer, _ = make_trainer(
            CompileRequest("model.dlm", text=text(optimizer), settings=settings), threads
        )
        for _ in range(3):
            trainer.step(x=x)
        found.append({name: np.array(w).tobytes() for name, w in trainer.weights.items()})
    assert found[0] == found[1] == found[2]


def test_what_is_updated_together_is_updated_in_place() -> None:
    opened = open_training("model.dlm", text=text(ADAM), purpose="train")
    lower(opened, Settings(), "plan")
    _, context = step(ADAM)
    joined = [d for d in context.log if d.what == "update in one kernel"]
    assert [d.figures["kernels"] for d in joined] == [4, 3] * LAYERS
    placed = [d for d in opened.context.log if d.what == "update in place"]
    assert len(placed) == 3 * 2 * LAYERS
