"""What a table receives is scattered into what it is added to, not into a table of zeros."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.driver.compile.settings import Settings
from dlc.driver.run.request import CompileRequest
from dlc.driver.run.train import make_trainer
from dlc.driver.source.open import open_training
from dlc.ir.passes import Manager, parse_passes
from dlc.text.ir.printer import print_module
from tests.suites import every

TEXT = """\
dlc 1
dim B = 1..64
module Words {
  param table: f32[50, 3] = normal()
  param w: f32[3] = ones()
  fn call(ids: i32[B]) -> f32[B] = table[ids] @ w
}
train Words {
  data = npz("d.npz", ids="ids", y="y")
  loss(ids: i32[B], y: f32[B]) = mean((call(ids) - y) ** 2)
  optimizer = OPTIMIZER
}
"""
SGD, MOMENTUM = (TEXT.replace("OPTIMIZER", name) for name in ("sgd(lr=0.3)", "momentum(lr=0.3)"))
IDS = np.array([3, 49, 3, 3, 0], np.int32)
Y = np.linspace(-1, 1, 5, dtype=np.float32)


def test_a_step_of_sgd_has_no_table_of_zeros() -> None:
    opened = open_training("words.dlm", text=SGD)
    function = opened.module.symbol("train_step")
    assert function is not None
    Manager(opened.context).run(opened.module, parse_passes("autodiff,canonicalize,algebra,dce"))
    text = print_module(opened.module)
    step = text[: text.index('sym_name = "evaluate"')]
    assert '"array.scatter"(%table,' in step
    assert "type = tensor<50x3xf32>" not in step.partition("func.func")[2]


@pytest.mark.parametrize("text", every(2, [SGD, MOMENTUM]))
def test_the_steps_are_those_of_tables_of_zeros(text: str) -> None:
    sparse, dense = after_three_steps(text), after_three_steps(text, "algebra")
    np.testing.assert_allclose(sparse, dense, rtol=1e-5, atol=1e-6)


def after_three_steps(text: str, *disabled: str) -> NDArray[np.float64]:
    """The trained table."""
    settings = Settings(disabled=frozenset(disabled))
    trainer, _ = make_trainer(CompileRequest("words.dlm", text=text, settings=settings))
    for _ in range(3):
        trainer.step(ids=IDS, y=Y)
    return trainer.trained()["table"].astype(np.float64)
