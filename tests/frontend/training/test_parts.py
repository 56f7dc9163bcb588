"""Parts of a module in a `train` block: frozen ones, parts in eval mode, and optimizers of their own."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.errors import Diagnostic, ModelError
from dlc.frontend.elaborate import elaborate
from dlc.runtime.training.trainer import Trainer

MODEL = """\
dlc 1
import nn (Linear, BatchNorm)
dim B = 1..64
module Net(hidden = 8) {
  use body = chain(Linear(4, hidden), BatchNorm(hidden), tanh)
  use rows = 2 * Linear(hidden, hidden)
  use pair = [for k in [0, 1]: Linear(hidden, hidden)]
  use head = Linear(hidden, 1)
  param scale: f32[1] = ones()
  fn call(x: f32[B, 4]) -> f32[B, 1] {
    let h = scan row in rows with h = body(x) { next h = tanh(row(h)) }
    return head(pair[1](pair[0](h))) * scale
  }
  export fn predict(x: f32[B, 4]) -> f32[B, 1] = call(x)
}
train Net {
  data = npy("data")
  loss(x: f32[B, 4], y: f32[B, 1]) = mean((call(x) - y) ** 2)
  ENTRIES
}
"""
PATHS = (
    "body.0.w", "body.0.b", "body.1.scale", "body.1.shift", "rows.w", "rows.b", "pair.0.w", "pair.0.b",
    "pair.1.w", "pair.1.b", "head.w", "head.b", "scale",
)  # fmt: skip
RNG = np.random.default_rng(3)
X: NDArray[np.float32] = RNG.normal(size=(8, 4)).astype(np.float32)
Y: NDArray[np.float32] = X.sum(1, keepdims=True)


def trainer(entries: str) -> Trainer:
    return dlc.trainer(text=MODEL.replace("ENTRIES", entries))


def bits(trainer: Trainer) -> dict[str, bytes]:
    return {name: trainer.weights.tensor(name).bits.tobytes() for name in trainer.weights}


def numbers(trainer: Trainer, name: str) -> NDArray[np.float64]:
    return trainer.weights.tensor(name).bits.astype(np.float64)


def changed(entries: str, steps: int = 3) -> set[str]:
    """The weights and states of the model that steps with these entries change."""
    made = trainer(entries)
    before = bits(made)
    for _ in range(steps):
        made.step(x=X, y=Y)
    after = bits(made)
    return {name for name in before if before[name] != after[name] and "$" not in name}


def refused(entries: str) -> Diagnostic:
    with pytest.raises(ModelError) as caught:
        elaborate("net.dlm", text=MODEL.replace("ENTRIES", entries))
    return caught.value.diagnostics[0]


STATES = {"body.1.running_mean", "body.1.running_var"}


@pytest.mark.parametrize(
    ("freeze", "frozen"),
    [
        ("(body.1, pair[0], rows.w, scale)", (*PATHS[2:4], *PATHS[6:8], "rows.w", "scale")),
        *[
            pytest.param(freeze, frozen, marks=pytest.mark.long)
            for freeze, frozen in (
                ("(body, rows)", PATHS[:6]),
                ("pair", PATHS[6:10]),
                ("body", PATHS[:4]),
                ("body.1", PATHS[2:4]),
                ("pair[0]", PATHS[6:8]),
                ("pair.0", PATHS[6:8]),
                ("(body.0.w, scale)", ("body.0.w", "scale")),
                ("rows.w", ("rows.w",)),
            )
        ],
    ],
)
def test_frozen_parts_keep_their_bits_and_have_no_moments(
    freeze: str, frozen: tuple[str, ...]
) -> None:
    entries = f"optimizer = adamw(lr=0.1, weight_decay=0.5)\n  freeze = {freeze}"
    assert changed(entries) == {*PATHS, *STATES} - {*frozen}
    states = {name for name in trainer(entries).weights if name.startswith("$optimizer.")}
    assert states == {
        f"$optimizer.{path}.{m}" for path in PATHS for m in "mv" if path not in frozen
    }


STACKED = """\
dlc 1
import nn (Linear, LayerNorm)
dim B = 1..64
module Block(D) {
  use norm = LayerNorm(D)
  use layers = chain(Linear(D, D), tanh, Linear(D, D))
  use low = [Linear(D, 2), Linear(2, D)]
  fn call(x) = x + layers(norm(x)) + low.1(low[0](x))
}
module Net() {
  use blocks = 3 * Block(4)
  fn call(x: f32[B, 4]) {
    return scan block in blocks with h = x { next h = block(h) }
  }
  fn total(x: f32[B, 4]) = sum(call(x) ** 2)
  export fn one(x: f32[B, 4]) -> (f32[3, 4, 4], f32[3, 2, 4], f32[3, 4]) =
    grad(total, wrt=(blocks.layers.0.w, blocks.low.1.w, blocks.norm.scale))(x)
  export fn all(x: f32[B, 4]) -> (f32[3, 4, 4], f32[3, 2, 4], f32[3, 4]) {
    let g = grad(total, wrt=params)(x)
    return (g.blocks.layers.0.w, g.blocks.low.1.w, g.blocks.norm.scale)
  }
}
train Net {
  data = npy("data")
  loss(x: f32[B, 4], y: f32[B, 1]) = mean((call(x) - y) ** 2)
  optimizer = adam(lr=0.1)
  optimizer(blocks.low) = momentum(lr=0.1)
  freeze = (blocks.layers, blocks.norm.scale)
}
"""


def test_a_part_of_the_blocks_of_a_stack_is_frozen_in_all_of_them() -> None:
    made = dlc.trainer(text=STACKED)
    before = bits(made)
    for _ in range(3):
        made.step(x=X, y=Y)
    after = bits(made)
    low = {f"blocks.low.{k}.{name}" for k in "01" for name in "wb"}
    assert {name for name in before if before[name] != after[name] and "$" not in name} == {
        *low,
        "blocks.norm.shift",
    }
    assert {name for name in before if "$" in name} == {
        *[f"$optimizer.{name}.v" for name in low],
        *[f"$optimizer.blocks.norm.shift.{m}" for m in "mv"],
    }


@pytest.mark.long
def test_a_derivative_is_taken_by_a_weight_of_all_blocks() -> None:
    model = dlc.compile(text=STACKED, weights="init:1")
    by_one, by_all = (cast("tuple[NDArray[np.float32], ...]", f(X)) for f in (model.one, model.all))
    for one, whole in zip(by_one, by_all, strict=True):
        np.testing.assert_array_equal(one, whole)
        assert np.abs(one).min(axis=(1, 2) if one.ndim == 3 else 1).all()


def test_a_frozen_weight_keeps_its_bits_through_a_thousand_steps_of_decay_and_momentum() -> None:
    made = trainer("optimizer = momentum(lr=0.001, weight_decay=0.5)\n  freeze = (body.0, rows)")
    before = bits(made)
    for _ in range(1000):
        made.step(x=X, y=Y)
    after = bits(made)
    kept = {name for name in before if before[name] == after[name]}
    assert kept == {"body.0.w", "body.0.b", "rows.w", "rows.b"}


def test_a_frozen_normalisation_goes_on_counting_unless_it_is_in_eval_mode() -> None:
    optimizer = "optimizer = sgd(lr=0.1)\n  freeze = body"
    assert changed(optimizer) >= STATES
    assert not changed(f"{optimizer}\n  eval = body") & STATES


@pytest.mark.long
def test_parts_in_eval_mode_are_trained_with_the_statistics_that_they_have() -> None:
    made = trainer("optimizer = sgd(lr=0.1)\n  eval = body.1")
    loss = made.step(x=X, y=Y)
    again = trainer("optimizer = sgd(lr=0.1)\n  eval = body.1")
    assert loss == again.measure(x=X, y=Y)["loss"]
    assert {"body.1.scale", "body.1.shift"} <= changed("optimizer = sgd(lr=0.1)\n  eval = body.1")


def test_each_part_has_the_optimizer_that_names_it() -> None:
    made = trainer(
        "optimizer = sgd(lr=0.01)\n  optimizer(head, scale) = momentum(lr=0.01)\n"
        "  optimizer(body) = adam(lr=0.01)"
    )
    states = {name.removeprefix("$optimizer.") for name in made.weights if "$" in name}
    assert states == {
        *[f"{path}.v" for path in ("head.w", "head.b", "scale")],
        *[f"{path}.{m}" for path in PATHS[:4] for m in "mv"],
    }
    loss = made.step(x=X, y=Y)
    for _ in range(30):
        made.step(x=X, y=Y)
    assert made.step(x=X, y=Y) < loss


def test_gradients_are_clipped_together_with_those_of_the_same_optimizer() -> None:
    made = trainer("optimizer(head) = sgd(lr=1, clip_norm=0.001)\n  optimizer = sgd(lr=0)")
    before = {name: numbers(made, name) for name in ("head.w", "head.b")}
    made.step(x=X, y=Y)
    length = np.sqrt(sum(np.sum((numbers(made, name) - was) ** 2) for name, was in before.items()))
    assert length == pytest.approx(0.001, rel=1e-3)


@pytest.mark.parametrize(
    ("entries", "code", "message"),
    [
        ("optimizer = sgd()\n  freeze = bodi", "D0550", "bodi is no part of Net"),
        ("optimizer = sgd()\n  freeze = body.7", "D0206", "a chain of 3 layers has no 7"),
        (
            "optimizer = sgd()\n  freeze = rows[0]",
            "D0550",
            "blocks of a stack are trained together",
        ),
        ("optimizer = sgd()\n  freeze = rows[0].w", "D0550", "a part of one"),
        ("optimizer = sgd()\n  freeze = 2 * scale", "D0550", "this is no part of Net"),
        ("optimizer = sgd()\n  freeze = call", "D0550", "is no part of Net"),
        ("optimizer = sgd()\n  eval = hidden", "D0550", "is no part of Net"),
        (
            "optimizer = sgd()\n  freeze = (body, rows, pair, head, scale)",
            "D0550",
            "no weight of Net is left to train",
        ),
        ("optimizer(head) = sgd()", "D0531", "no optimizer updates scale"),
        (
            "optimizer = sgd()\n  optimizer(head) = sgd()\n  optimizer(head.w) = adam()",
            "D0550",
            "two optimizers would update head.w",
        ),
        (
            "optimizer = sgd()\n  freeze = head\n  optimizer(head) = sgd()",
            "D0550",
            "this part has no weights that are trained",
        ),
        ("optimizer = sgd()\n  optimizer = adam()", "D0530", "optimizer is given twice"),
        ("optimizer() = sgd()", "D0110", "the parts that it updates"),
    ],
)
def test_parts_that_make_no_sense_are_told_at_their_place(
    entries: str, code: str, message: str
) -> None:
    told = refused(entries)
    assert (told.code, message in told.message) == (code, True), told
    assert told.place is not None and told.place.line >= 16


def test_the_derivative_by_the_path_of_an_inner_weight() -> None:
    text = MODEL[: MODEL.index("train Net")].replace(
        "  export fn predict",
        "  fn loss(x: f32[B, 4]) -> f32 = mean(call(x) ** 2)\n"
        "  export fn one(x: f32[B, 4]) -> f32[4, hidden] = grad(loss, wrt=body.0.w)(x)\n"
        "  export fn two(x: f32[B, 4]) -> (a: f32[1], b: f32[hidden]) {\n"
        "    let (a, b) = grad(loss, wrt=(scale, body.0.b))(x)\n"
        "    return (a = a, b = b)\n  }\n"
        "  export fn all(x: f32[B, 4]) -> (w: f32[4, hidden], b: f32[hidden], s: f32[1]) {\n"
        "    let g = grad(loss, wrt=params)(x)\n"
        "    return (w = g.body.0.w, b = g.body.0.b, s = g.scale)\n  }\n"
        "  export fn predict",
    )
    model = dlc.compile(text=text, weights="init:0")
    w, b, s = cast("tuple[NDArray[np.float32], ...]", model.all(X))
    np.testing.assert_array_equal(np.asarray(model.one(X)), w)
    a, b2 = cast("tuple[NDArray[np.float32], ...]", model.two(X))
    np.testing.assert_array_equal(a, s)
    np.testing.assert_array_equal(b2, b)


def test_a_function_without_parameters_has_a_derivative_by_its_weights() -> None:
    text = """\
dlc 1
module Net {
  param w: f32[3] = ones()
  fn decay() -> f32 = sum(w ** 2)
  export fn slope() -> f32[3] = grad(decay, wrt=w)()
}
"""
    np.testing.assert_array_equal(np.asarray(dlc.compile(text=text).slope()), [2, 2, 2])
    with pytest.raises(ModelError, match="decay has no parameters"):
        dlc.compile(text=text.replace(", wrt=w", ""))
