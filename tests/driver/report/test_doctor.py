"""`dlc doctor`: what is there, what is missing, and what would make it slow."""

from __future__ import annotations

import importlib.metadata

import llvmlite
import pytest

from dlc.driver.report import doctor
from dlc.driver.report.doctor import Finding, examine
from dlc.errors import UsageError
from dlc.runtime.cpu import blas
from dlc.runtime.cuda import devices
from dlc.runtime.cuda.driver import Driver, NoGpu
from dlc.target.cpu import HOST, CpuTarget
from dlc.target.table import rows
from tests.runtime.gpu.fake_gpu import fake_gpu


def found(what: str) -> Finding:
    (finding,) = [finding for finding in examine() if finding.what == what]
    return finding


@pytest.mark.parametrize("name", [*doctor.NEEDED, *doctor.OPTIONAL])
def test_every_package_is_named_with_its_version(name: str) -> None:
    assert found(name).level == "ok"
    assert found(name).text[0].isdigit()


@pytest.mark.parametrize(
    ("name", "level", "said"),
    [
        ("numpy", "error", "not installed"),
        ("onnx", "ok", "not installed; it reads .onnx files: pip install 'dlc[onnx]'"),
        (
            "cuda-bindings",
            "ok",
            "not installed; it runs models on NVIDIA GPUs: pip install 'dlc[cuda]'",
        ),
    ],
)
def test_what_is_missing_is_said_with_what_it_is_for(
    monkeypatch: pytest.MonkeyPatch, name: str, level: str, said: str
) -> None:
    real = importlib.metadata.version

    def version(package: str) -> str:
        if package == name:
            raise importlib.metadata.PackageNotFoundError(package)
        return real(package)

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert found(name) == Finding(name, said, "error" if level == "error" else "ok")


def test_another_llvm_than_dlc_is_made_for_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found("llvmlite").level == "ok"
    monkeypatch.setattr(llvmlite, "__version__", "0.47.0")
    finding = found("llvmlite")
    assert finding.level == "error"
    assert finding.text.endswith("dlc is made for 0.50: pip install 'llvmlite==0.50.*'")


def test_the_assembler_for_gpus_is_named_or_what_its_absence_means(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lacking() -> str:
        raise UsageError("there is no ptxas here", code="D0926")

    monkeypatch.setattr(doctor, "find_ptxas", lambda: "/usr/local/cuda/bin/ptxas")
    assert found("ptxas").text == "/usr/local/cuda/bin/ptxas"
    monkeypatch.setattr(doctor, "find_ptxas", lacking)
    assert found("ptxas").text.startswith("none: the GPU's driver assembles code")


@pytest.mark.parametrize(
    ("core", "forced", "level", "warned"),
    [
        ("Haswell", None, "x86-64-v3", None),
        ("SkylakeX", None, "x86-64-v3", None),
        ("", None, "x86-64-v4", None),
        ("Haswell", None, "x86-64-v4", "for x86-64-v3, the processor is x86-64-v4"),
        ("Prescott", None, "x86-64-v3", "--matmul generated is faster"),
        ("Prescott", "Prescott", "x86-64-v3", "unset OPENBLAS_CORETYPE"),
    ],
)
def test_kernels_below_the_processor_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, core: str, forced: str | None, level: str, warned: str | None
) -> None:
    monkeypatch.setattr(blas, "library", lambda: blas.Library({}, "OpenBLAS", core, None, None))
    monkeypatch.setattr(doctor, "_host_level", lambda: level)
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    if forced is not None:
        monkeypatch.setenv("OPENBLAS_CORETYPE", forced)
    finding = found("blas")
    assert finding.level == ("ok" if warned is None else "warning")
    assert warned is None or warned in finding.text


def test_a_gpu_is_named_with_its_kind() -> None:
    with fake_gpu():
        assert found("gpu").text == "evaluator, sm_80"


def test_what_a_gpu_needs_is_said_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(device: int) -> Driver:
        raise NoGpu("an NVIDIA GPU with its driver, and there is none here")

    monkeypatch.setattr(devices, "open_driver", none)
    assert found("gpu") == Finding(
        "gpu", "none: cuda needs an NVIDIA GPU with its driver, and there is none here"
    )


def test_the_description_and_the_costs_of_this_machine_are_said() -> None:
    [target] = [finding for finding in examine() if finding.what == "target"]
    assert target.text == f"cpu: {CpuTarget.named(HOST)}"
    costs = [finding.text for finding in examine() if finding.what == "cpu cost"]
    assert costs == [str(row) for row in rows(CpuTarget.named(HOST).costs)]


def test_the_costs_of_a_gpu_that_is_here_are_said_too() -> None:
    with fake_gpu():
        texts = {finding.what: finding.text for finding in examine()}
    assert texts["target"].startswith("cuda:sm_80: 108 multiprocessors")
    assert "gpu cost" in texts
