"""The weights of a loaded model: views on them, other ones in their place, saving."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.errors import ArtifactError, ModelError, Unsupported, UsageError
from dlc.runtime.arrays import safetensors
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import Weight
from dlc.runtime.model import Model, load
from dlc.runtime.weights.model_weights import fill, lay_out
from tests.runtime import building

F32 = NDArray[np.float32]
X = np.ones((4, 4), np.float32)
OTHER = np.arange(16, 32, dtype=np.float32).reshape(4, 4)


class Foreign:
    """An array of another library, which speaks DLPack only."""

    def __init__(self, array: F32) -> None:
        self._array = array

    def __dlpack__(self) -> object:
        return self._array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


@pytest.fixture
def model() -> Model:
    return Model(building.tiny().artifact())


def test_weights_are_read_only_views_by_path(model: Model) -> None:
    assert list(model.weights) == ["layer.w"]
    weight = cast(F32, model.weights["layer.w"])
    np.testing.assert_array_equal(weight, np.arange(16, dtype=np.float32).reshape(4, 4))
    assert np.shares_memory(weight, cast(F32, model.weights["layer.w"]))
    with pytest.raises(ValueError, match="read-only"):
        weight[0, 0] = 1
    with pytest.raises(KeyError):
        _ = model.weights["layer.v"]
    assert repr(model.weights) == "1 weights\n  layer.w: f32[4, 4]"
    assert model.parameters == 16


def test_weights_are_prepared_on_the_first_call_only(model: Model) -> None:
    assert model.times.prepare_ms == 0
    first = cast(F32, model.f(X, X))
    prepared = model.times.prepare_ms
    assert prepared > 0
    np.testing.assert_array_equal(cast(F32, model.f(X, X)), first)
    assert model.times.prepare_ms == prepared


@pytest.mark.parametrize("count", [1 << 40, 1 << 62])
def test_prepared_weights_that_do_not_fit_are_refused_before_they_are_made(count: int) -> None:
    draft = building.tiny()
    assert draft.prepare is not None
    draft.prepare = draft.prepare._replace(bytes=count)
    model = Model(draft.artifact())
    with pytest.raises(Unsupported, match="preparing the weights needs") as caught:
        model.f(X, X)
    assert caught.value.diagnostics[0].code == "D0705"


def test_prepared_weights_in_the_artifact_are_used_as_they_are() -> None:
    draft = building.tiny()
    assert draft.prepare is not None
    draft.prepare = draft.prepare._replace(cached="prepared/cpu")
    draft.sections["prepared/cpu"] = np.full(16, 5, np.float32).tobytes()
    model = Model.from_bytes(draft.artifact().to_bytes())
    assert (cast(F32, model.f(X, X)) == 10).all()
    assert model.times.prepare_ms == 0
    # Other weights have to be prepared again, and the cache does not survive them.
    other = model.with_weights({"layer.w": OTHER})
    np.testing.assert_array_equal(cast(F32, other.f(X, X)), 4 * OTHER)
    assert "prepared/cpu" not in other.artifact.sections


def test_without_a_prepare_program_the_kernels_read_the_weights_as_stored() -> None:
    draft = building.tiny()
    draft.prepare = None
    model = Model(draft.artifact())
    stored = cast(F32, model.weights["layer.w"])
    np.testing.assert_array_equal(cast(F32, model.f(X, X)), 2 * stored)


@pytest.mark.parametrize("name", ["layer.w", "fc.weight"])
def test_other_weights_from_a_mapping_or_a_file(model: Model, tmp_path: Path, name: str) -> None:
    expected = 4 * OTHER
    paths = {"safetensors": tmp_path / "w.safetensors", "npz": tmp_path / "w.npz"}
    extra = {name: OTHER, "num_batches": np.array(3)}
    safetensors.write(paths["safetensors"], {key: Tensor(value) for key, value in extra.items()})
    np.savez(paths["npz"], **extra)  # pyright: ignore[reportArgumentType]
    for weights in (
        {name: OTHER},
        {name: Tensor(OTHER)},
        {name: Foreign(OTHER)},
        *paths.values(),
        str(paths["npz"]),
    ):
        other = model.with_weights(weights)
        np.testing.assert_array_equal(cast(F32, other.f(X, X)), expected)
        np.testing.assert_array_equal(cast(F32, other.weights["layer.w"]), OTHER)
    assert cast(F32, model.f(X, X))[0, 1] == 4  # the first model is as it was


def test_weights_that_do_not_fit_are_refused(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    safetensors.write(path, {"fc.wieght": Tensor(OTHER)})
    for weights, code, why, help in (
        ({}, "D0504", "the given weights: there is no array layer.w", "it has no arrays at all"),
        ({"layer.ww": OTHER}, "D0504", "the model has no weight layer.ww", "did you mean layer.w?"),
        ({"layer.w": OTHER, "b": OTHER}, "D0504", "the model has no weight b", "leave it out"),
        (
            {"layer.w": OTHER[:2]},
            "D0505",
            "layer.w is f32[2, 4], where the model has f32[4, 4]",
            "use weights made for this model",
        ),
        (
            {"layer.w": OTHER.astype(np.float64)},
            "D0505",
            "layer.w is f64[4, 4]",
            "convert it to f32 where it is made",
        ),
        (
            {"layer.w": "text"},
            "D0505",
            "layer.w is not an array that dlc has: NumPy's dtype <U4",
            "pass",
        ),
        ({"layer.w": [[1], [2, 3]]}, "D0505", "layer.w is not an array that dlc has: ", "pass"),
        ({cast(str, 5): OTHER}, "D0504", "the model has no weight 5", "leave it out"),
        (path, "D0504", f"{path}: there is no array fc.weight", "did you mean fc.wieght?"),
    ):
        with pytest.raises(ModelError) as caught:
            model.with_weights(weights)
        said = caught.value.diagnostics[0]
        assert said.code == code
        assert why in said.message
        assert help in (said.help or "")
    with pytest.raises(UsageError, match="no such file"):
        model.with_weights(tmp_path / "none.safetensors")


def test_a_transposed_weight_is_recognised() -> None:
    draft = building.tiny()
    draft.weights = (draft.weights[0]._replace(shape=(2, 8)),)
    with pytest.raises(ModelError, match="may have to be transposed"):
        Model(draft.artifact()).with_weights({"layer.w": np.zeros((8, 2), np.float32)})


TRANSPOSED = {"layer.weight": OTHER.reshape(4, 4).T.copy()}
PARTS = {f"block.{k}.w": OTHER.reshape(2, 2, 4)[k].T.copy() for k in range(2)}


def renamed(**facts: object) -> Model:
    """The tiny model whose weight files call its weight otherwise."""
    draft = building.tiny()
    draft.weights = (draft.weights[0]._replace(**facts),)
    return Model(draft.artifact())


def test_a_transposed_weight_of_a_checkpoint_is_turned(tmp_path: Path) -> None:
    model = renamed(key="layer.weight", transposed=True)
    path = tmp_path / "w.safetensors"
    safetensors.write(path, {name: Tensor(array) for name, array in TRANSPOSED.items()})
    for weights in (TRANSPOSED, path, {"layer.w": OTHER}):
        np.testing.assert_array_equal(cast(F32, model.with_weights(weights).f(X, X)), 4 * OTHER)


def test_the_blocks_of_a_stack_are_put_together_from_a_checkpoint() -> None:
    shape = (2, 2, 4)
    model = renamed(shape=shape, parts=tuple(PARTS), stacked=1, transposed=True, key="")
    found = cast(F32, model.with_weights(PARTS).weights["layer.w"])
    np.testing.assert_array_equal(found, OTHER.reshape(shape))
    with pytest.raises(ModelError, match=r"there is no array block\.1\.w"):
        model.with_weights({"block.0.w": PARTS["block.0.w"]})
    with pytest.raises(
        ModelError, match=r"block\.1\.w is f32\[2, 4\], where the model has f32\[4, 2\]"
    ):
        model.with_weights({**PARTS, "block.1.w": PARTS["block.1.w"].T})


def test_a_constant_of_the_text_stays_when_weights_are_exchanged() -> None:
    model = renamed(constant=True)
    np.testing.assert_array_equal(
        cast(F32, model.with_weights({}).weights["layer.w"]), cast(F32, model.weights["layer.w"])
    )


@pytest.mark.parametrize(
    "facts",
    [
        {"parts": ("a", "b", "c"), "stacked": 1},
        {"stacked": 3},
        {"transposed": True, "stacked": 1},
    ],
    ids=str,
)
def test_a_manifest_whose_parts_do_not_make_the_weight_is_refused(facts: dict[str, object]) -> None:
    with pytest.raises(ArtifactError, match=r"layer\.w has \d parts for"):
        renamed(**facts)


def test_a_model_with_other_weights_is_saved_with_them(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "other.dlc"
    model.with_weights({"layer.w": OTHER}).save(path)
    loaded = load(path)
    np.testing.assert_array_equal(cast(F32, loaded.f(X, X)), 4 * OTHER)
    assert loaded.artifact.manifest.weights[0].sha256 != ""
    assert Artifact.read(path).to_bytes() == path.read_bytes()


def test_many_threads_prepare_the_weights_once(model: Model) -> None:
    barrier = threading.Barrier(8)
    results: list[F32] = []

    def work() -> None:
        barrier.wait()
        results.append(cast(F32, model.f(X, X)))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert all((result == results[0]).all() for result in results)


def test_weights_are_laid_out_at_multiples_of_64_with_zeros_between() -> None:
    arrays = {
        "a": Tensor(np.arange(5, dtype=np.int8)),
        "b": Tensor(np.arange(40, dtype=np.float32).reshape(5, 8).T),
        "c": Tensor([1.0, 2.0], "bf16"),
        "d": Tensor(np.zeros((0, 3), np.float64)),
        "e": Tensor(np.full(3, 7, np.int16)),
    }
    table = lay_out({name: (tensor.dtype, tensor.shape) for name, tensor in arrays.items()})
    assert [(weight.offset, weight.bytes) for weight in table] == [
        (0, 5),
        (64, 160),
        (256, 4),
        (320, 0),
        (320, 6),
    ]

    def named(weight: Weight) -> Tensor:
        return arrays[weight.name]

    block = fill(table, named)
    assert len(block) == 384
    assert not block.flags.writeable
    assert not block[5:64].any() and not block[224:256].any() and not block[326:].any()
    np.testing.assert_array_equal(block[64:224].view(np.float32).reshape(8, 5), arrays["b"].bits)
