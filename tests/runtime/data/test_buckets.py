"""`dlc.buckets`: batches of padded examples, and losses that see the mask but not the padding."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.errors import ModelError, UsageError

RANDOM = np.random.default_rng(4)
SIZES = (4, 8, 16)
PAD = {"x": 0.0}


def examples(count: int) -> list[dict[str, NDArray[np.generic]]]:
    lengths = RANDOM.integers(1, 17, count)
    return [
        {"x": RANDOM.normal(size=(n, 3)).astype(np.float32), "y": np.array(k % 5, np.int32)}
        for k, n in enumerate(lengths)
    ]


def test_each_example_is_in_an_epoch_once_at_the_least_size_that_holds_it() -> None:
    given = examples(50)
    made = dlc.buckets(given, sizes=SIZES, batch=[8, 4, 2], pad=PAD, mask="m", lengths="n")
    batches = list(made)
    assert len(batches) == len(made)
    found = Counter[bytes]()
    for batch in batches:
        count, size, _ = batch["x"].shape
        assert count <= dict(zip(SIZES, (8, 4, 2), strict=True))[size]
        assert batch["m"].shape == (count, size) and batch["y"].shape == (count,)
        for row, mask, n in zip(batch["x"], batch["m"], batch["n"], strict=True):
            assert mask.sum() == n and mask[:n].all()
            assert n <= size and all(other >= size or other < n for other in SIZES)
            assert not row[n:].any()
            found[row[:n].tobytes()] += 1
    assert found == Counter(np.asarray(example["x"]).tobytes() for example in given)


def test_the_order_depends_on_the_epoch_and_the_seed_alone() -> None:
    made = dlc.buckets(examples(30), sizes=SIZES, batch=4, pad=PAD)

    def order(epoch: int, seed: int) -> list[bytes]:
        return [batch["x"].tobytes() for batch in made.batches(epoch, seed)]

    assert order(1, 2) == order(1, 2)
    assert order(1, 2) != order(2, 2)
    assert order(1, 2) != order(1, 3)
    plain = dlc.buckets(examples(30), sizes=SIZES, batch=4, pad=PAD, shuffle=False)
    first = [[batch["y"].tolist() for batch in plain.batches(epoch, 0)] for epoch in (0, 1)]
    assert first[0] == first[1]


TEXT = """\
dlc 1
import nn (Linear)
dim B = 1..64, T = 1..16

module Net() {
  use net = chain(Linear(3, 4), tanh, Linear(4, 1))
  fn each(x: f32[B, T, 3]) -> f32[B, T] = sum(net(x), axis=-1)
  export fn predict(x: f32[B, T, 3]) -> f32[B, T] = each(x)
}

train Net {
  data = npy("data")
  loss(x: f32[B, T, 3], seen: bool[B, T]) {
    let count = sum(f32(seen))
    return (loss = sum(where(seen, (each(x) - 1) ** 2, 0)) / count, weight = count)
  }
  optimizer = sgd(lr=0.1)
  batch = 4
  ACCUMULATE
}
"""


def trainer(accumulate: int = 1) -> dlc.Trainer:
    more = f"accumulate = {accumulate}" if accumulate > 1 else ""
    return dlc.trainer(text=TEXT.replace("ACCUMULATE", more))


def trained(trainer: dlc.Trainer) -> dict[str, NDArray[np.float32]]:
    return {name: value.astype(np.float32) for name, value in trainer.trained().items()}


def only_x(count: int) -> list[dict[str, NDArray[np.generic]]]:
    return [{"x": example["x"]} for example in examples(count)]


def test_a_loss_that_sees_the_mask_is_the_same_with_more_padding_and_without() -> None:
    given = only_x(12)
    whole = np.concatenate([example["x"] for example in given])[None, :16]
    tight, wide = (trainer() for _ in range(2))
    lengths = {len(example["x"]) for example in given}
    made = [
        dlc.buckets(given, sizes=sizes, batch=12, pad={"x": 9.0}, mask="seen")
        for sizes in (sorted({*lengths, 16}), [16])
    ]
    means = [trainer().evaluate(each)["loss"] for each in made]
    assert means[0] == pytest.approx(means[1], rel=1e-6)
    tight.step(x=whole, seen=np.ones((1, 16), bool))
    padded = np.concatenate([whole, np.full_like(whole, 7)], axis=0)
    wide.step(x=padded, seen=np.repeat([[True], [False]], 16, axis=1))
    for name, value in trained(tight).items():
        np.testing.assert_allclose(trained(wide)[name], value, rtol=1e-5, atol=1e-7)


def test_buckets_without_an_example_for_each_microbatch_are_told_so() -> None:
    made = dlc.buckets(only_x(3), sizes=[16], batch=4, pad={"x": 9.0}, mask="seen")
    with pytest.raises(UsageError, match="epoch 1 has no batch of 4 examples or more") as told:
        trainer(4).fit(made)
    assert "each size of buckets needs 4 examples" in str(told.value)


def test_means_of_epochs_and_microbatches_count_elements() -> None:
    given = only_x(20)
    frozen = trainer()
    value = np.concatenate([np.asarray(example["x"], np.float32) for example in given])
    model = dlc.compile(text=TEXT.replace("ACCUMULATE", ""), weights=frozen.trained())
    each = [np.asarray(model.predict(value[k : k + 1][None])) for k in range(len(value))]
    mean = float(np.mean((np.concatenate(each) - 1.0) ** 2))
    made = dlc.buckets(given, sizes=SIZES, batch=3, pad=PAD, mask="seen")
    assert frozen.evaluate(made)["loss"] == pytest.approx(mean, rel=1e-5)
    assert "weight" not in frozen.evaluate(made)
    # Four microbatches whose numbers of elements differ make the step of one batch.
    (whole,) = dlc.buckets(given[:16], sizes=[16], batch=16, pad=PAD, mask="seen")
    one, four = trainer(), trainer(4)
    assert one.step(**whole) == pytest.approx(four.step(**whole), rel=1e-5)
    assert one.parts["weight"] == four.parts["weight"] == whole["seen"].sum()
    for name, value in trained(one).items():
        np.testing.assert_allclose(trained(four)[name], value, rtol=1e-5, atol=1e-6)


def test_batches_without_elements_count_nothing() -> None:
    (whole,) = dlc.buckets(only_x(16), sizes=[16], batch=16, pad=PAD, mask="seen")
    empty = {**whole, "seen": np.where(np.arange(16)[:, None] < 4, False, whole["seen"])}
    rest = {name: array[4:] for name, array in whole.items()}
    four, three = trainer(4), trainer(3)
    assert four.step(**empty) == pytest.approx(three.step(**rest), rel=1e-5)
    for name, value in trained(three).items():
        np.testing.assert_allclose(trained(four)[name], value, rtol=1e-5, atol=1e-6)
    nothing = {name: array[:4] for name, array in empty.items()}
    frozen = trainer()
    assert frozen.evaluate([nothing, rest])["loss"] == frozen.evaluate([rest])["loss"]


def test_a_training_resumed_in_the_midst_of_an_epoch_equals_a_whole_one(tmp_path: Path) -> None:
    made = dlc.buckets(only_x(40), sizes=SIZES, batch=3, pad=PAD, mask="seen")
    whole = trainer()
    whole.fit(made, epochs=2)

    class Stopped(Exception):
        pass

    def stop(progress: object) -> None:
        if half.steps == len(made) + 4:
            raise Stopped

    half, again = trainer(), trainer()
    with pytest.raises(Stopped):
        half.fit(made, epochs=2, report=stop)
    half.save(tmp_path / "half.safetensors")
    again.resume(tmp_path / "half.safetensors")
    again.fit(made, epochs=2)
    assert again.history == whole.history
    assert all((again.trained()[n] == v).all() for n, v in whole.trained().items())


def test_rests_are_cut_to_equal_microbatches_in_training_and_whole_in_measuring(
    tmp_path: Path,
) -> None:
    # Of the sizes 4, 8 and 16 there are 8 + 6, 5 and 3 examples.
    lengths = [3] * 14 + [7] * 5 + [9] * 3
    given = [{"x": RANDOM.normal(size=(n, 3)).astype(np.float32)} for n in lengths]
    made = dlc.buckets(given, sizes=SIZES, batch=[8, 8, 4], pad=PAD, mask="seen")
    assert sorted(len(batch["x"]) for batch in made.batches(0, 0, 4)) == [4, 4, 8]
    whole = trainer(4)
    assert whole.evaluate(made) == pytest.approx(trainer().evaluate(made))
    whole.fit(made, epochs=2)
    assert whole.steps == whole.total_steps == 2 * made.steps(4) == 6
    assert len(made) == 4

    class Stopped(Exception):
        pass

    def stop(progress: object) -> None:
        if half.steps == 5:
            raise Stopped

    half, again = trainer(4), trainer(4)
    with pytest.raises(Stopped):
        half.fit(made, epochs=2, report=stop)
    half.save(tmp_path / "half.safetensors")
    again.resume(tmp_path / "half.safetensors")
    assert again.fit(made, epochs=2) == whole.history
    with pytest.raises(ModelError, match="its size 6 is 4"):
        trainer(4).fit(dlc.buckets(given, sizes=[16], batch=6, pad=PAD, mask="seen"), epochs=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sizes": [4, 8]}, "has the length 16, the largest size is 8"),
        ({"sizes": [8, 4]}, "sizes are [8, 4]"),
        ({"sizes": []}, "sizes are []"),
        ({"sizes": 32}, "sizes is 32"),
        ({"sizes": [8.5, 32]}, "sizes is [8.5, 32]"),
        ({"batch": 0}, "batch is 0"),
        ({"batch": 1.5}, "batch is [1.5"),
        ({"mask": "y"}, "mask is called y, as an array of the examples is"),
        ({"lengths": "x"}, "lengths is called x, as an array of the examples is"),
        ({"mask": "n", "lengths": "n"}, "mask and lengths are both called n"),
        ({"pad": {"i": 0.5}}, "i is int8, and padded with 0.5, which int8 does not hold"),
        ({"pad": {"i": np.nan}}, "padded with nan"),
        ({"pad": {"i": 128}}, "padded with 128"),
        ({"pad": {"x": 1e39}}, "x is float32, and padded with 1e+39"),
        ({"pad": {"x": "0"}}, "x is padded with '0'"),
        ({"batch": [1, 2]}, "there are 3 sizes, and batches for 2"),
        ({"pad": {}}, "it pads nothing"),
        ({"pad": {"z": 0}}, "example 0 has no z"),
        ({"pad": {"x": 0, "w": 0}}, "example 0 has 16 of x and 2 of w"),
        ({"pad": {"y": 0}}, "y of example 0 is one number"),
        ({"examples": []}, "there are no examples"),
        ({"examples": [3]}, "example 0 is a int"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, object], message: str) -> None:
    one = {
        "x": np.zeros((16, 3), np.float32),
        "i": np.zeros(16, np.int8),
        "y": np.array(1),
        "w": np.zeros(2),
    }
    settings = {"examples": [one], "sizes": SIZES, "batch": 4, "pad": PAD, **change}
    given = settings.pop("examples")
    make = cast("Callable[..., object]", dlc.buckets)
    with pytest.raises(ModelError, match=re.escape(message)):
        make(given, **settings)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"x": np.zeros(2, np.float64)}, "x of example 1 is float64, of example 0 float32"),
        ({"y": np.array(2.5)}, "y of example 1 is float64, of example 0 int64"),
        ({"z": np.array(1)}, "example 0 has no z"),
    ],
)
def test_examples_have_the_same_arrays_of_the_same_dtypes(
    second: dict[str, NDArray[np.generic]], message: str
) -> None:
    first: dict[str, NDArray[np.generic]] = {"x": np.zeros(3, np.float32), "y": np.array(1)}
    with pytest.raises(ModelError, match=message):
        dlc.buckets([first, {**first, **second}], sizes=SIZES, pad=PAD)


def test_padding_may_be_any_number_that_the_dtype_holds() -> None:
    for value in (np.nan, -np.inf, 0.1):
        (batch,) = dlc.buckets([{"x": np.ones(3, np.float32)}], sizes=[4], pad={"x": value})
        np.testing.assert_equal(batch["x"][0, 3], np.float32(value))
    (batch,) = dlc.buckets([{"x": np.ones(3, bool)}], sizes=[4], pad={"x": False}, batch=[2])
    assert batch["x"].tolist() == [[True, True, True, False]]
