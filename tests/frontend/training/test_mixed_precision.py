"""`precision`, `loss_scale` and `rate`: which operations take 16 bits, skipped steps, and the rest."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.dialects import array, flow
from dlc.errors import CallError, ModelError
from dlc.frontend.elaborate import elaborate
from dlc.ir.core import Evaluation, Op, Value
from dlc.ir.passes import Context, Manager
from dlc.ir.types import BF16, F32, I32, TensorType
from dlc.ir.verify import verify
from dlc.passes.graph.autodiff import autodiff
from dlc.passes.graph.mixed_precision import mixed_precision
from dlc.runtime.artifact.contents import Artifact
from tests.suites import every

ROOT = Path(__file__).parents[3]
RANDOM = np.random.default_rng(1)
X = RANDOM.normal(size=(32, 6)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int32)

TEXT = """\
dlc 1
import nn (BatchNorm, Linear)
dim B = 1..64

module Net() {{
  use body = chain(Linear(6, 8), BatchNorm(8), relu)
  use head = Linear(8, 2)
  export fn predict(x: f32[B, 6]) -> i32[B] = argmax(head(body(x)))
}}

train {name} Net {{
  data = npz("data.npz", x="x", y="y")
  loss(x: f32[B, 6], y: i32[B]) = mean(cross_entropy(head(body(x)), y))
  optimizer = adam(lr=1e-2, clip_norm=1)
  batch = 8
  {settings}
}}
"""


def text(settings: str, name: str = "") -> str:
    return TEXT.format(settings=settings, name=f"{name} for" if name else "")


Floats = NDArray[np.float32]


def trained(trainer: dlc.Trainer) -> dict[str, Floats]:
    return {name: value.astype(np.float32) for name, value in trainer.trained().items()}


def weights(trainer: dlc.Trainer) -> dict[str, NDArray[np.generic]]:
    return {name: trainer.weights.tensor(name).values().copy() for name in trainer.weights}


def step_of(source: str) -> Op:
    made = elaborate("net.dlm", text=source, purpose="train").module
    context = Context()
    Manager(context).run(made, (mixed_precision, autodiff))
    verify(made)
    found = made.symbol("train_step")
    assert found is not None
    return found


def dtypes(ops: list[Op], kind: type[Op]) -> set[object]:
    return {_dtype(op.results[0]) for op in ops if isinstance(op, kind)}


def _dtype(value: Value) -> object:
    assert isinstance(value.type, TensorType)
    return value.type.dtype


def test_only_products_take_sixteen_bits_and_weights_stay_in_f32() -> None:
    step = step_of(text("precision = bf16"))
    ops = list(step.walk())
    assert dtypes(ops, array.MatMul) == {BF16}
    assert (
        dtypes(ops, array.Sqrt) == dtypes(ops, array.Exp) == dtypes(ops, array.ReduceMax) == {F32}
    )
    floats = {_dtype(value) for value in step.regions[0].arguments if _dtype(value) is not I32}
    assert floats == {F32}


def test_without_the_setting_nothing_is_rounded() -> None:
    assert dtypes(list(step_of(text("precision = f32")).walk()), array.MatMul) == {F32}


def test_the_products_of_a_recurrent_network_are_narrow_and_its_gates_wide() -> None:
    source = """dlc 1
import nn (LSTM)
dim B = 1..4
module Net() {
  use net = LSTM(3, 4)
  export fn predict(x: f32[B, 5, 3]) -> f32[B, 5, 4] = net(x).0
}
train Net {
  data = npz("d.npz", x="x")
  loss(x: f32[B, 5, 3]) = mean(net(x).0 ** 2)
  optimizer = sgd(lr=0.1)
  precision = bf16
}
"""
    ops = list(step_of(source).walk())
    assert dtypes(ops, array.MatMul) == {BF16}
    assert dtypes(ops, array.Sigmoid) == dtypes(ops, array.Tanh) == {F32}


def test_the_derivative_means_what_the_pass_makes_of_it() -> None:
    made = elaborate("net.dlm", text=text("precision = bf16"), purpose="train").module
    vjp = next(op for op in made.walk() if isinstance(op, flow.Vjp))
    arrays = [_some(value, k) for k, value in enumerate(vjp.operands)]
    before = vjp.evaluate(Evaluation({"B": 4}), *arrays)
    mixed_precision.run(made, Context())
    assert vjp.precision is None
    after = vjp.evaluate(Evaluation({"B": 4}), *arrays)
    assert all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))


def _some(value: Value, seed: int) -> NDArray[np.generic]:
    type = value.type
    assert isinstance(type, TensorType)
    shape = tuple([4 if not isinstance(size, int) else size for size in type.shape])
    if not type.dtype.is_float:
        return np.zeros(shape, np.int32)
    return np.abs(np.random.default_rng(seed).normal(size=shape)).astype(np.float32)


def test_a_skipped_step_changes_nothing_but_the_scale() -> None:
    trainer = dlc.trainer(text=text("precision = f16\n  average = ema(decay=0.9)"))
    trainer.step(x=X[:8], y=Y[:8])
    before = weights(trainer)
    loss = trainer.step(x=X[:8] * np.float32(1e6), y=Y[:8])
    after = weights(trainer)
    assert trainer.skipped and not np.isfinite(loss)
    changed = {n for n in before if before[n].tobytes() != after[n].tobytes()}
    assert changed == {"$scale.value", "$scale.good", "$scale.skipped"}
    assert (before["$scale.value"], after["$scale.value"]) == (65536, 32768)
    trainer.step(x=X[:8], y=Y[:8])
    assert not trainer.skipped
    assert weights(trainer)["head.w"].tobytes() != after["head.w"].tobytes()


def test_optimizers_do_not_count_skipped_steps() -> None:
    huge = X[:8] * np.float32(1e6)
    with_a_skip, without = (dlc.trainer(text=text("precision = f16")) for _ in range(2))
    with_a_skip.step(x=huge, y=Y[:8])
    for k in range(3):
        rows = slice(8 * k, 8 * k + 8)
        for trainer in (with_a_skip, without):
            trainer.step(x=X[rows], y=Y[rows])
    for name, value in trained(without).items():
        np.testing.assert_allclose(trained(with_a_skip)[name], value, rtol=1e-3, atol=1e-5)


def test_a_scale_that_falls_below_one_ends_the_training() -> None:
    data = {"x": np.full((64, 6), 1e30, np.float32), "y": np.zeros(64, np.int32)}
    trainer = dlc.trainer(text=text("precision = f16\n  loss_scale = dynamic(start=4, every=9)"))
    with pytest.raises(CallError, match=r"the gradients are infinite or NaN.* after step 3"):
        trainer.fit(data, epochs=1)


@pytest.mark.long
def test_a_power_of_two_as_the_scale_changes_no_bit_in_f32() -> None:
    scaled, plain = (dlc.trainer(text=text(each)) for each in ("loss_scale = 1024", "seed = 0"))
    for trainer in (scaled, plain):
        trainer.step(x=X, y=Y)
    assert "$scale.value" not in scaled.weights
    assert all(weights(scaled)[n].tobytes() == v.tobytes() for n, v in weights(plain).items())


@pytest.mark.parametrize("precision", every(2, ["f16", "bf16"]))
def test_a_resumed_training_equals_a_whole_one_byte_for_byte(
    precision: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "data.npz", x=X, y=Y)
    settings = f"""precision = {precision}
  loss_scale = dynamic(start=1e8, every=3)
  accumulate = 2
  average = ema(decay=0.9)
  freeze = body.0
  optimizer(head) = sgd(lr=0.1)
  rate = plateau(loss, factor=0.5, patience=0, threshold=0.5)"""
    path = tmp_path / "net.dlm"
    path.write_text(text(settings, "only"))
    whole = dlc.trainer(path, epochs=6)
    whole.fit()
    whole.save(tmp_path / "whole.safetensors")
    half = dlc.trainer(path, epochs=3)
    half.fit()
    half.save(tmp_path / "half.safetensors")
    half.save(tmp_path / "half.dlc")
    again = dlc.trainer(path, epochs=6)
    again.resume(tmp_path / "half.safetensors")
    again.fit()
    again.save(tmp_path / "again.safetensors")
    first, second = ((tmp_path / f"{n}.safetensors").read_bytes() for n in ("whole", "again"))
    assert first == second
    assert bool(weights(whole)["$scale.only:skipped"].any()) == (precision == "f16")
    saved = dlc.Trainer(Artifact.read(tmp_path / "half.dlc"), folder=tmp_path)
    saved.fit(epochs=6)
    assert all((saved.trained()[n] == v).all() for n, v in whole.trained().items())
    assert whole.rate < 1
    frozen = dlc.trainer(path).trained()["body.0.w"]
    assert (whole.trained()["body.0.w"] == frozen).all()


@pytest.mark.long
def test_the_digits_are_learned_as_well_as_in_f32() -> None:
    source = (ROOT / "examples/digits_mlp.dlm").read_text(encoding="utf-8")
    found: dict[str, float] = {}
    for precision in ("f32", "bf16", "f16"):
        text = re.sub(r"  seed = 1\n", f"  seed = 1\n  precision = {precision}\n", source)
        trainer = dlc.trainer(text=text, epochs=8)
        images = dict(np.load(ROOT / "examples/data/digits.npz"))
        data = {"image": images["images"][:1500], "label": images["labels"][:1500]}
        trainer.fit(data)
        rest = {"image": images["images"][1500:], "label": images["labels"][1500:]}
        found[precision] = trainer.evaluate(rest)["accuracy"]
    assert found["f32"] > 0.85
    assert found["bf16"] == pytest.approx(found["f32"], abs=0.02)
    assert found["f16"] == pytest.approx(found["f32"], abs=0.02)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("precision = f8", "precision is the dtype in which products are computed"),
        ("precision = 16", "precision is the dtype in which products are computed"),
        ("loss_scale = 0", "loss_scale is a number from 1 on"),
        ("loss_scale = dynamic(start=0.5)", "loss_scale is a number from 1 on"),
        ("loss_scale = dynamic(every=0)", "loss_scale is a number from 1 on"),
        ("loss_scale = dynamics()", "loss_scale is none of dynamic"),
        ("rate = plateau(los)", "plateau takes the loss or a metric"),
        ("rate = plateau(loss, factor=2)", "factor of a plateau is a number above 0 and below 1"),
        ("rate = plateau(loss, patience=-1)", "patience of a plateau is a whole number"),
        ('rate = plateau(loss, threshold_mode="x")', "threshold_mode of a plateau is"),
        ("rate = plateau(loss, least=2)", "least of a plateau is a number from 0 to 1"),
    ],
)
def test_wrong_settings_are_refused(settings: str, message: str) -> None:
    with pytest.raises(ModelError, match=re.escape(message)) as raised:
        elaborate("net.dlm", text=text(settings))
    assert raised.value.diagnostics[0].code in ("D0530", "D0534")


@pytest.mark.long
def test_a_plateau_lowers_every_learning_rate() -> None:
    """What a step moves is a quarter of what it would have moved: of numbers and of schedules."""
    rate = "rate = plateau(loss, factor=0.25, patience=0, threshold=0.999)\n"
    more = "  optimizer(head) = sgd(lr=constant(peak=0.5))"
    texts = [text(f"{first}{more}").replace("adam(", "sgd(") for first in (rate, "")]
    lowered, plain = (dlc.trainer(text=each) for each in texts)
    lowered.fit({"x": X, "y": Y}, epochs=2)
    assert lowered.rate == 0.25
    plain = dlc.trainer(text=texts[1], weights=lowered.trained())
    before = trained(lowered)
    for trainer in (lowered, plain):
        trainer.step(x=X, y=Y)
    for name in ("body.0.w", "head.w", "head.b"):
        one, other = [trained(trainer)[name] - before[name] for trainer in (lowered, plain)]
        np.testing.assert_allclose(one, other / 4, atol=1e-6)
