"""The examples take the steps of their twins in PyTorch: the loss and its gradient by every weight.

`record.py` recorded what the programs of `examples/pytorch` find in float64. `pytest -rP` shows the errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pytest

from dlc.driver.run.request import CompileRequest
from dlc.driver.run.train import make_trainer
from dlc.runtime.training.trainer import Trainer
from tests.suites import every
from tests.twins.cases import CASES, EXAMPLES, RECORDED, Arrays, Case, weight

LIMIT = 1e-5
"""Of the largest element of a gradient, for steps in f32. One that is 0 but for rounding is compared with a
thousandth of the largest of all."""
STATISTICS = ("running_mean", "running_var")
RECORDER = """
## Keeps the gradient, and leaves the weight as it is.
module recorder {
  state gradient: f32[..] = zeros()
  fn update(p: f32[..], g: f32[..], step: i32) -> f32[..] {
    set gradient = g
    return p
  }
}
"""

with np.load(RECORDED) as kept:
    GRADIENTS: Mapping[str, Arrays] = {
        case.name: {
            key.removeprefix(f"{case.name}/"): kept[key]
            for key in kept.files
            if key.startswith(f"{case.name}/")
        }
        for case in CASES
    }


def trainer(case: Case) -> Trainer:
    """One that keeps the gradients of its first step, which it takes with the weights of the case."""
    text = (EXAMPLES / f"{case.example}.dlm").read_text(encoding="utf-8")
    for old, new in case.replaced.items():
        assert old in text, old
        text = text.replace(old, new)
    text = re.sub(r"(?m)^  optimizer = .*$", "  optimizer = recorder()", text)
    text = re.sub(r"(?m)^  data = .*$", '  data = npy("given")', text)
    weights = {
        name: g if name.endswith(STATISTICS) else np.asarray(weight(name, g.shape))
        for name, g in GRADIENTS[case.name].items()
        if name != "loss"
    }
    block = None if case.loss == "loss" else case.loss
    request = CompileRequest(
        f"{case.example}.dlm",
        text=text + RECORDER,
        parameters=case.settings,
        weights=weights,
        block=block,
    )
    made, _ = make_trainer(request)
    return made


@pytest.mark.long
@pytest.mark.parametrize("case", every(12, CASES), ids=[case.name for case in CASES])
def test_a_step_has_the_gradients_of_pytorch(case: Case) -> None:
    recorded = GRADIENTS[case.name]
    made = trainer(case)
    assert made.step(**case.inputs()) == pytest.approx(float(recorded["loss"]), rel=1e-5)
    prefix = "$optimizer." if case.loss == "loss" else f"$optimizer.{case.loss}."
    found = {
        name.removesuffix(".gradient").replace(":", ".").removeprefix(prefix): np.asarray(value)
        for name, value in made.weights.items()
        if name.endswith(".gradient")
    }
    expected = {
        name: gradient
        for name, gradient in recorded.items()
        if name != "loss" and name.startswith(case.trained) and not name.endswith(STATISTICS)
    }
    assert found.keys() == expected.keys()
    largest = max([np.abs(gradient).max() for gradient in expected.values()])
    errors = {
        name: np.abs(found[name] - gradient).max() / max(np.abs(gradient).max(), largest / 1000)
        for name, gradient in expected.items()
    }
    worst = max(errors, key=lambda name: errors[name])
    print(f"{errors[worst]:.1e} by {worst}")
    assert errors[worst] <= LIMIT, worst
