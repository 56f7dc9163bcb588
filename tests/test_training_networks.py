"""The networks of the field's well-known training table: their size is as published, and they train."""

from __future__ import annotations

from math import prod
from typing import TypeAlias, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.dialects import weight
from dlc.driver.run.request import CompileRequest
from dlc.driver.run.train import make_trainer
from dlc.frontend.elaborate import elaborate
from dlc.runtime.training.trainer import Trainer
from tests.documents import ROOT
from tests.suites import every

Batch: TypeAlias = dict[str, NDArray[np.generic]]

NETWORKS = ROOT / "examples/networks"
PUBLISHED = {
    "alexnet": 61_100_840,
    "vgg19": 143_667_240,
    "resnet50": 25_557_032,
    "mobilenet_v1": 4_231_976,
    "mobilenet_v2": 3_504_872,
    "resnet18": 11_173_962,
}


def trained(name: str) -> int:
    """How many numbers training changes."""
    body = elaborate(NETWORKS / f"{name}.dlm").module.body
    shapes = [op.type.shape for op in body if isinstance(op, weight.Source) and op.trained]
    return sum(prod(cast("tuple[int, ...]", shape)) for shape in shapes)


@pytest.mark.parametrize("name", every(2, PUBLISHED))
def test_a_network_has_as_many_weights_as_was_published(name: str) -> None:
    assert trained(name) == PUBLISHED[name]


def trainer(name: str, **sizes: int) -> Trainer:
    made, _ = make_trainer(CompileRequest(str(NETWORKS / f"{name}.dlm"), parameters=sizes))
    made.total_steps = 1000
    return made


def pictures(count: int) -> Batch:
    random = np.random.default_rng(0)
    return {
        "image": random.integers(0, 256, (count, 224, 224, 3), np.uint8),
        "label": random.integers(0, 10, count, np.int32),
    }


def learns(made: Trainer, batch: Batch, steps: int) -> bool:
    """Whether the loss of one batch falls over so many steps with it, and its weights stay numbers."""
    before = made.measure(**batch)["loss"]
    for _ in range(steps):
        assert np.isfinite(made.step(**batch))
    return made.measure(**batch)["loss"] < before


@pytest.mark.long
def test_a_translation_is_learned_by_heart() -> None:
    """With words behind the ends of both sentences that count for nothing."""
    random = np.random.default_rng(0)
    source, target = (
        random.integers(1, 50, (4, 7), np.int32),
        random.integers(1, 50, (4, 6), np.int32),
    )
    source[:, 5:] = target[:, 4:] = 0
    made = trainer("gnmt", V=50, D=16, L=3)
    assert learns(made, {"source": source, "target": target}, 12)
    longer = np.concatenate([target, np.zeros((4, 3), np.int32)], axis=1)
    loss = made.measure(source=source, target=target)["loss"]
    assert made.measure(source=source, target=longer)["loss"] == pytest.approx(loss, rel=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("name", ["alexnet", "vgg19", "resnet50", "mobilenet_v1", "mobilenet_v2"])
def test_a_network_for_pictures_takes_a_step(name: str) -> None:
    made = trainer(name, classes=10)
    before = {key: value.copy() for key, value in made.trained().items()}
    assert made.step(**pictures(2)) == pytest.approx(np.log(10), abs=1.5)
    after = made.trained()
    assert all(np.isfinite(value).all() for value in after.values())
    # The sum of a weight may stay: what normalises does not care how large its channels are together.
    assert not any(np.array_equal(after[key], before[key]) for key in before)
