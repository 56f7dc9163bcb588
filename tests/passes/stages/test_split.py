"""What the parts of stages take and give, and where weights are."""

from __future__ import annotations

from dlc.dialects.func import Func
from dlc.driver.compile.stage_programs import divide_stages
from dlc.driver.source.open import open_training
from dlc.driver.source.source_model import SourceModel
from dlc.runtime.artifact.manifest import Staged

TEXT = """\
dlc 1
dim B = 1..8
mesh stage = 2
module Net() {
  param a: f32[3, 4] = normal(0.1)
  param b: f32[4, 1] = normal(0.1)
  export fn run(x: f32[B, 3]) -> f32[B, 1] {
    let h = on stage 0 { relu(x @ a) }
    return on stage 1 { h @ b }
  }
}
train Net {
  data = npz("data.npz", x="x", y="y")
  loss(x: f32[B, 3], y: f32[B, 1]) = mean((run(x) - y) ** 2)
  optimizer = sgd(lr=0.1)
  batch = 8
  accumulate = 4
}
"""


def divided(text: str = TEXT) -> tuple[SourceModel, Staged]:
    """A model whose step is divided, and what is known of that."""
    model = open_training("net.dlm", text=text)
    divide_stages(model, {"stage": 2})
    return model, model.staged[0]


def test_a_step_has_a_forward_and_a_backward_part_but_for_the_last_stage() -> None:
    _, step = divided()
    assert step.microbatches == 4
    assert [part.stage for part in step.parts if part.when == "each"] == [0, 1, 0]
    assert not step.in_order


def test_a_weight_is_where_it_is_updated() -> None:
    _, step = divided()
    assert step.homes == {"a": 0, "b": 1}


def test_a_stage_sends_its_result_and_receives_its_gradient() -> None:
    model, step = divided()
    parts = [part.entry for part in step.parts if part.when == "each"]
    forward, both, backward = [model.module.symbol(name) for name in parts]
    assert isinstance(forward, Func)
    assert isinstance(both, Func)
    assert isinstance(backward, Func)
    (sent,) = set(forward.result_names) & set(both.input_names)
    (returned,) = set(both.result_names) & set(backward.input_names)
    assert sent != returned
    assert "a" in forward.input_names
    assert "a" not in both.input_names


def test_a_part_takes_what_another_stage_gives_by_its_name() -> None:
    model, step = divided()
    given = set(step.rows) | {item.name for item in step.interface.inputs} | {"%microbatch"}
    for part in step.parts:
        function = model.module.symbol(part.entry)
        assert isinstance(function, Func)
        assert set(function.input_names) <= given
        given |= set(function.result_names)


def test_a_weight_of_two_stages_is_on_the_first_of_them() -> None:
    both = TEXT.replace("on stage 1 { h @ b }", "on stage 1 { h @ b + sum(a) }")
    _, step = divided(both)
    assert step.homes == {"a": 0, "b": 1}
