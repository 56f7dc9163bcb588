"""Several `train` blocks in a text: which of them trains, and which cannot be told apart."""

from __future__ import annotations

import pytest

import dlc
from dlc.errors import DlcError, ModelError, UsageError
from dlc.frontend.elaborate import elaborate

HEAD = """\
dlc 1
dim B = 1..64
module Line {
  param w: f32[3] = ones()
  param b: f32[1] = ones()
  export fn predict(x: f32[B, 3]) -> f32[B] = x @ w + b
}
module Other {
  param v: f32[3] = ones()
  fn call(x: f32[B, 3]) -> f32[B] = x @ v
}
"""


def block(name: str, module: str = "Line", call: str = "predict", more: str = "") -> str:
    head = f"train {name} for {module}" if name else f"train {module}"
    return f"""\
{head} {{
  data = npy("data")
  loss(x: f32[B, 3], y: f32[B]) = mean(({call}(x) - y) ** 2)
  optimizer = sgd()
  {more}
}}
"""


def trained(text: str, block: str | None = None) -> list[str]:
    """The weights that the step updates."""
    made = elaborate("line.dlm", text=text, purpose="train", block=block).module
    step = made.symbol("train_step")
    assert step is not None
    updates = step.attributes["dlc.updates"]
    assert isinstance(updates, tuple)
    return [str(name) for name in updates if name]


TWO = HEAD + block("first", more="freeze = b") + block("second", more="freeze = w")


def test_a_block_is_chosen_by_its_name() -> None:
    assert trained(TWO, "first") == ["w"]
    assert trained(TWO, "second") == ["b"]


def test_a_single_block_needs_no_name_and_may_have_one() -> None:
    assert trained(HEAD + block("")) == trained(HEAD + block("only")) == ["w", "b"]


def test_a_block_of_another_module_than_the_one_with_entry_points_is_chosen_with_it() -> None:
    text = HEAD + block("first") + block("second", "Other", "call")
    assert trained(text, "second") == ["v"]
    assert trained(text) == ["w", "b"]


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        (block("a") + block("a"), "two train blocks are called a"),
        (block("a") + block("a", "Other", "call"), "two train blocks are called a"),
        (block("") + block(""), "two train blocks train Line, and not both have a name"),
        (block("a") + block(""), "two train blocks train Line, and not both have a name"),
    ],
)
def test_blocks_that_cannot_be_told_apart_are_refused(blocks: str, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        elaborate("line.dlm", text=HEAD + blocks)
    (told,) = caught.value.diagnostics
    assert (told.code, told.message) == ("D0538", message)
    assert told.place is not None and told.place.line == 18 and told.labels


def test_which_block_is_meant_must_be_said_where_there_are_several() -> None:
    with pytest.raises(UsageError, match=r"line\.dlm trains Line by first and second") as caught:
        trained(TWO)
    assert caught.value.diagnostics[0].help == "say which one is meant: --block first"


@pytest.mark.parametrize(
    ("text", "help"), [(TWO, "did you mean first?"), (HEAD + block(""), "no names")]
)
def test_a_block_that_is_not_there_is_refused(text: str, help: str) -> None:
    with pytest.raises(DlcError, match="has no train block frist") as caught:
        trained(text, "frist")
    assert help in (caught.value.diagnostics[0].help or "")


def test_from_python_a_trainer_is_made_for_a_block() -> None:
    assert dlc.trainer(text=TWO, block="second").facts.block == "second"
    with pytest.raises(UsageError, match="by first and second") as caught:
        dlc.trainer(text=TWO)
    assert caught.value.diagnostics[0].help == 'say which one is meant: block="first"'
