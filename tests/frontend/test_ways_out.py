"""Mistakes of newcomers: the message says what is wrong once, and the help what to write."""

from __future__ import annotations

import numpy as np
import pytest

import dlc
from dlc.errors import DlcError, ModelError, UsageError

MISTAKES = {
    "a misspelt scan": (
        "export fn f(x: f32[3]) -> f32[3] = scna y in x { yield y }\n",
        "D0110",
        "did you mean `scan`?",
    ),
    "a function without a name": ("fn(y) = y\n", "D0110", "write fn NAME(...) = ..."),
    "a dtype of NumPy": (
        "export fn f(x: float32[3]) -> f32[3] = x\n",
        "D0201",
        "did you mean f32?",
    ),
    "a named tuple in place of a part": (
        "fn g(x: f32[3]) -> (a: f32[3], b: f32[3]) = (a = x, b = x)\n"
        "export fn f(x: f32[3]) -> f32[3] = g(x)\n",
        "D0321",
        "take one of .a, .b",
    ),
    "the best 5 of 3": (
        "export fn f(x: f32[3]) -> f32[5] = top_k(x, 5).values\n",
        "D0306",
        "k is 0 to 3 there",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_once_with_a_way_out(name: str) -> None:
    text, code, help = MISTAKES[name]
    with pytest.raises(ModelError) as caught:
        dlc.compile(text="dlc 1\n" + text)
    (said,) = caught.value.diagnostics
    assert said.code == code
    assert help in (said.help or "")


TRAINED = """dlc 1
dim B = 2..64
module M() {
  param w: f32[3, 4] = normal(0.1)
  fn call(x: f32[B, 3]) -> f32[B, 4] = x @ w
}
train M {
  data = npz("words.npz", x="x", label="label")
  loss(x: f32[B, 3], label: i32[B]) = LOSS
  optimizer = adam(lr=0.1)
  batch = 4
  accumulate = 4
}
"""
LOSS = "mean(cross_entropy(call(x), label))"


@pytest.mark.parametrize("name", ["loss", "step", "epoch", "test_loss", "w", "x", "main"])
def test_a_part_of_the_loss_has_a_name_of_its_own(name: str) -> None:
    parts = f"(a = {LOSS}, main = 1.0, {name} = 1.0)"
    with pytest.raises(ModelError, match=f"D0537.* {name}"):
        dlc.trainer(text=TRAINED.replace("LOSS", parts))


def test_settings_of_the_text_are_no_parameters() -> None:
    with pytest.raises(UsageError) as caught:
        dlc.trainer(text=TRAINED.replace("LOSS", LOSS), accumulate=2)
    assert "belongs in the train block" in str(caught.value)


def test_a_batch_that_does_not_divide_is_told_with_its_size() -> None:
    trainer = dlc.trainer(text=TRAINED.replace("LOSS", LOSS))
    with pytest.raises(DlcError, match=r"D0804.*its size 3 is 4\*B for no B"):
        trainer.step(x=np.ones((3, 3), np.float32), label=np.zeros(3, np.int32))


def test_an_epoch_of_nothing_is_an_error() -> None:
    trainer = dlc.trainer(text=TRAINED.replace("LOSS", LOSS))
    with pytest.raises(UsageError, match=r"D0553.*epoch 1 has no batch"):
        trainer.fit([])
    assert (trainer.epoch, trainer.steps) == (0, 0)


def test_an_iterable_without_a_batch_is_told_so() -> None:
    trainer = dlc.trainer(text=TRAINED.replace("LOSS", LOSS).replace("  accumulate = 4\n", ""))
    gone = iter([{"x": np.ones((3, 3), np.float32), "label": np.zeros(3, np.int32)}])
    trainer.fit(gone, epochs=1)
    again = dlc.trainer(text=TRAINED.replace("LOSS", LOSS).replace("  accumulate = 4\n", ""))
    with pytest.raises(UsageError, match=r"D0553.*epoch 1 has no batch: the data gave nothing"):
        again.fit(gone)


def test_data_with_fewer_examples_than_a_batch_may_have_is_told_how_many_it_takes() -> None:
    text = TRAINED.replace("LOSS", LOSS).replace("  accumulate = 4\n", "")
    few = {"x": np.ones((1, 3), np.float32), "label": np.zeros(1, np.int32)}
    with pytest.raises(UsageError, match=r"D0553.*1 examples") as told:
        dlc.trainer(text=text).fit(few)
    assert "give 2 examples or more, or let B begin at 1" in str(told.value)
