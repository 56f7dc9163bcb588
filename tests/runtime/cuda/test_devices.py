"""Which GPU a model runs on, of a machine that has several; each is an evaluator."""

from __future__ import annotations

import json
import pickle
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.cli import main
from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.system.device_names import device_named
from tests.runtime.gpu.fake_gpu import FakeGpu, fake_gpus

TEXT = """dlc 1
import nn (Linear)
dim B = 1..8
module Net() {
  use out = Linear(3, 2)
  export fn f(x: f32[B, 3]) -> f32[B, 2] = tanh(out(x))
}
"""
PLACED = """dlc 1
export fn f(x: f32[4]) -> f32[4] = on cuda:0 { exp(x) } + x
"""
LINE = Path(__file__).parents[2] / "gpu/line.dlm"


def made(target: str, text: str = TEXT) -> Artifact:
    opened = open_model("net.dlm", text=text)
    return compile_model(opened, Settings(target=target), "init:0")


def numbers(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def close(found: object, wanted: object) -> None:
    """The same numbers, wherever they are."""
    one, other = (
        values.numpy() if isinstance(values, dlc.Tensor) else values for values in (found, wanted)
    )
    np.testing.assert_allclose(
        np.asarray(one, np.float64), np.asarray(other, np.float64), rtol=1e-5
    )


class Machine:
    """Two GPUs, and artifacts that were compiled on it."""

    def __init__(self, gpus: Sequence[FakeGpu], folder: Path) -> None:
        self.gpus = gpus
        self.folder = folder
        self.artifacts = {
            "cpu": made("cpu"),
            "cuda": made("cuda:sm_80"),
            "newer": made("cuda:sm_90a"),
            "both": made("cpu", PLACED),
        }
        for name, artifact in self.artifacts.items():
            artifact.write(self.path(name))
        (folder / "net.dlm").write_text(TEXT, encoding="utf-8")

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.dlc"

    def begin(self) -> None:
        for gpu in self.gpus:
            gpu.launched.clear()

    @property
    def worked(self) -> list[int]:
        """The GPUs that have launched kernels since."""
        return [gpu.number for gpu in self.gpus if gpu.launched]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with fake_gpus((8, 0), (9, 0)) as gpus:
        yield Machine(gpus, tmp_path_factory.mktemp("machine"))


@pytest.mark.parametrize(
    ("asked", "found", "number"),
    [(None, "cuda:0", 0), ("cuda", "cuda:0", 0), ("cuda:0", "cuda:0", 0), ("cuda:1", "cuda:1", 1)],
)
def test_a_model_is_on_the_gpu_that_is_named(
    machine: Machine, asked: str | None, found: str, number: int
) -> None:
    machine.begin()
    x = numbers(3, 3)
    with dlc.load(machine.path("cuda"), device=asked) as model:
        assert model.device == found
        given = model.f(x)
    close(given, dlc.load(machine.path("cpu")).f(x))
    assert machine.worked == [number]


def test_models_on_two_gpus_are_called_in_turns(machine: Machine) -> None:
    models = [dlc.load(machine.path("cuda"), device=f"cuda:{k}") for k in (0, 1)]
    cpu = dlc.load(machine.path("cpu"))
    for size in (2, 3, 2, 2):
        x = numbers(size, 3)
        for number, model in enumerate(models):
            there = dlc.Tensor(x).to(f"cuda:{number}")
            machine.begin()
            found = cast(dlc.Tensor, model.f(there))
            assert machine.worked == [number]
            assert found.device == model.device
            close(found, cpu.f(x))
            close(model.f(x), cpu.f(x))


def test_threads_call_models_on_two_gpus_at_once(machine: Machine) -> None:
    models = [dlc.load(machine.path("cuda"), device=f"cuda:{k}") for k in (0, 1)]
    x = numbers(4, 3)
    wanted = dlc.load(machine.path("cpu")).f(x)
    found: list[object] = []

    def work(model: dlc.Model) -> None:
        there = dlc.Tensor(x).to(model.device)
        for _ in range(5):
            found.append(model.f(x))
            found.append(model.f(there))

    threads = [threading.Thread(target=work, args=(model,)) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 20
    for each in found:
        close(each, wanted)


def test_other_weights_and_a_pickled_model_are_where_the_model_is(machine: Machine) -> None:
    model = dlc.load(machine.path("cuda"), device="cuda:1")
    zeros = {name: np.zeros_like(np.asarray(values)) for name, values in model.weights.items()}
    assert model.with_weights(zeros).device == "cuda:1"
    again = cast(dlc.Model, pickle.loads(pickle.dumps(model)))
    assert again.device == "cuda:1"


def test_a_tensor_goes_to_the_gpu_that_is_named(machine: Machine) -> None:
    x = dlc.Tensor(numbers(2, 3))
    there = x.to("cuda:1")
    assert (there.device, there.to("cuda:1") is there) == ("cuda:1", True)
    assert x.to("cuda").device == "cuda:0"
    moved = there.to("cuda")
    assert moved.device == "cuda:0"
    close(moved, x)
    assert there.__dlpack_device__() == (2, 1)
    model = dlc.load(machine.path("cuda"), device="cuda:1")
    with pytest.raises(dlc.CallError, match=r"D0805.*x lies on cuda:0, and the model is on cuda:1"):
        model.f(moved)


def test_a_part_on_a_gpu_is_on_the_one_that_is_named(machine: Machine) -> None:
    x = numbers(4)
    for model in (
        dlc.load(machine.path("both"), device="cuda:1"),
        dlc.compile(text=PLACED, device="cuda:1"),
    ):
        machine.begin()
        assert model.device == "cpu+cuda:1"
        np.testing.assert_allclose(
            cast("NDArray[np.float32]", model.f(x)), np.exp(x) + x, rtol=1e-5
        )
        assert machine.worked == [1]


def test_cuda_is_the_kind_of_the_gpu_that_is_named(machine: Machine) -> None:
    for device, kind in (("cuda:0", "cuda:sm_80"), ("cuda:1", "cuda:sm_90a"), (None, "cuda:sm_80")):
        model = dlc.compile(text=TEXT, weights="init:0", target="cuda", device=device)
        assert (model.artifact.manifest.targets[0].name, model.device) == (kind, device or "cuda:0")
    by_auto = dlc.compile(text=TEXT, weights="init:0", target="auto", device="cuda:1")
    assert by_auto.device in ("cpu", "cuda:1", "cpu+cuda:1")


def test_a_trainer_is_on_the_gpu_that_is_named(machine: Machine) -> None:
    machine.begin()
    trainer = dlc.trainer(LINE, target="cuda", device="cuda:1")
    trainer.step(x=numbers(4, 3), y=numbers(4))
    assert (trainer.model.device, machine.worked) == ("cuda:1", [1])
    path = machine.folder / "trains.dlc"
    trainer.save(path)
    again = dlc.trainer(path, device="cuda:1")
    assert again.model.device == "cuda:1"
    assert again.step(x=numbers(4, 3), y=numbers(4)) > 0


# What is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "device", "said"),
    [
        ("cpu", "cuda:0", r"D0608.*: cpu does not run on cuda:0$"),
        ("cuda", "cpu", r"D0608.*cuda:sm_80 does not run on cpu$"),
        ("both", "cpu", r"D0608.*: cpu\+cuda:sm_80 does not run on cpu alone$"),
        (
            "cuda",
            "cuda:2",
            r"D0608.*cuda:sm_80 needs GPU number 2, and the last one here is number 1$",
        ),
        ("newer", "cuda", r"D0608.*needs a GPU of the kind sm_90a, cuda:0 is sm_80$"),
        ("cuda", "gpu", r"D0702.*there is no device 'gpu'$"),
    ],
)
def test_a_device_that_an_artifact_is_not_for_is_refused(
    machine: Machine, name: str, device: str, said: str
) -> None:
    with pytest.raises(dlc.DlcError) as refused:
        dlc.load(machine.path(name), device=device)
    (found,) = refused.value.diagnostics
    assert re.search(said, f"{found.code} {found.message}")


def test_the_processor_is_a_device_too(machine: Machine) -> None:
    assert dlc.load(machine.path("cpu"), device="cpu").device == "cpu"
    assert dlc.compile(text=TEXT, weights="init:0", device="cpu").device == "cpu"


@pytest.mark.parametrize(
    ("target", "device", "said"),
    [
        ("cpu", "cuda:1", "D0714.*the target cpu runs on the processor, and not on cuda:1"),
        ("cuda", "cpu", "D0714.*the target cuda needs a GPU, and cpu is none"),
        ("cuda", "cuda:2", "D0714.*the target cuda needs GPU number 2"),
        ("auto", "cuda:2", "D0702.*cuda:2 needs GPU number 2"),
        ("cuda:sm_90a", "cuda", "D0714.*needs a GPU of the kind sm_90a, cuda:0 is sm_80"),
        ("cuda", "cuda:x", "D0702.*there is no device 'cuda:x'"),
        ("cuda", 1, 'D0902.*device is what to run on, such as "cuda:1", found 1'),
    ],
)
def test_a_device_that_a_target_is_not_for_is_refused(
    machine: Machine, target: str, device: str, said: str
) -> None:
    with pytest.raises(dlc.DlcError, match=said):
        dlc.compile(text=TEXT, weights="init:0", target=target, device=device)


def test_what_is_placed_on_a_gpu_does_not_run_on_the_processor(machine: Machine) -> None:
    with pytest.raises(dlc.DlcError, match="what is placed on cuda:0 needs a GPU, and cpu is none"):
        dlc.compile(text=PLACED, device="cpu")


def test_a_device_is_a_name(machine: Machine) -> None:
    with pytest.raises(dlc.UsageError, match="device is the name of one, found 1"):
        dlc.load(machine.path("cuda"), device=1)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "name", ["", "cuda:", "cuda:-1", "cuda:1:2", "cpu:1", "cuda:²", "gpu:0", 0, None]
)
def test_other_names_are_no_devices(name: object) -> None:
    with pytest.raises(dlc.Unsupported, match="D0702"):
        device_named(name)


# The command line --------------------------------------------------------------------------------------


def said(capsys: pytest.CaptureFixture[str], *words: object) -> object:
    """What a command gives as JSON."""
    assert main([str(word) for word in words]) == 0, capsys.readouterr()
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("file", ["cuda.dlc", "net.dlm"])
def test_verbs_run_on_the_device_that_is_named(
    machine: Machine, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    chosen = ["--device", "cuda:1"]
    if file.endswith(".dlm"):
        chosen += ["--target", "cuda", "--weights", "init:0"]
    for words in (["run", "--random-inputs", "0"], ["bench", "--seconds", "0"]):
        machine.begin()
        found = said(capsys, words[0], machine.folder / file, *words[1:], "--json", *chosen)
        assert machine.worked == [1]
    assert cast("dict[str, object]", found)["device"] == "cuda:1"


def test_dlc_train_runs_on_the_device_that_is_named(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    x = numbers(6, 3)
    np.savez(machine.folder / "points.npz", x=x, y=np.tanh(x.sum(axis=1)))
    path = machine.folder / "line.dlm"
    path.write_text(LINE.read_text("utf-8"), encoding="utf-8")
    machine.begin()
    once = ["--set", "epochs=1", "--json"]
    said(capsys, "train", path, "--target", "cuda", "--device", "cuda:1", *once)
    assert machine.worked == [1]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "cpu.dlc", "--random-inputs", "0", "--device", "cuda:0"], "D0608"),
        (["run", "cuda.dlc", "--random-inputs", "0", "--device", "cpu"], "D0608"),
        (["run", "cuda.dlc", "--random-inputs", "0", "--device", "cuda:9"], "D0608"),
        (["run", "cuda.dlc", "--random-inputs", "0", "--device=first"], "D0702"),
        (["bench", "net.dlm", "--weights", "init:0", "--device", "cuda:1"], "D0714"),
        (["run", "net.dlm", "--interpret", "--random-inputs", "0", "--device", "cuda:1"], "D0901"),
    ],
)
def test_a_device_that_does_not_fit_is_told(
    machine: Machine, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    verb, file, *rest = words
    assert main([verb, str(machine.folder / file), *rest]) != 0
    assert f"error[{told}]" in capsys.readouterr().err
