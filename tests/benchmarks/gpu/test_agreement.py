"""`python -m benchmarks gpu_agreement` compares all contenders, and says who is too far away, or late."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Self

import numpy as np
import pytest

from benchmarks.contenders.turns import NotReady
from benchmarks.gpu import agreement as gpu_agreement
from benchmarks.gpu.agreement import compare, line, main
from benchmarks.gpu.case import Array, GpuCase, Kind
from benchmarks.gpu.cases import NETWORK_LIMITS, cases

FURTHER = 1.5
"""What the gradient of the last weight is of ours, for PyTorch."""


class Pretended:
    """A contender of which each result is known; `late` ones are never ready."""

    late = ""

    def __init__(
        self,
        name: str,
        case: GpuCase,
        folder: Path,
        patience: float | None,
        *,
        python: str,
        device: str,
    ) -> None:
        assert (folder / "given.npz").exists()
        assert (folder / "model.dlm").read_text("utf-8") == case.text
        assert device == "cpu"
        assert (python == "theirs") == (patience is not None) == (name != "dlc")
        if name == self.late:
            raise NotReady(name)
        self.name, self.case = name, case

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *of_error: object) -> None:
        pass

    def results(self) -> dict[str, Array]:
        one = np.ones(4)
        if self.case.kind == "inference":
            return {"result": one}
        last = FURTHER if self.name == "torch eager" else 1
        return {"loss": one, "second_loss": one, "moment:a": one, "moment:b": one * last}


@pytest.fixture(autouse=True)
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_agreement, "Contender", Pretended)


def theirs(name: str, *packages: object) -> str:
    return "theirs"


def case_of(kind: Kind) -> GpuCase:
    return next(each for each in cases(kind, "bf16", quick=True) if each.name == "mlp")


def test_the_worst_gradient_of_each_two_is_told() -> None:
    losses, gradients = compare(case_of("training"), "theirs", 1)
    assert (losses.part, gradients.part) == ("losses", "gradients")
    assert {*losses.apart.values()} == {0}
    by_torch, by_jax, peers = gradients.apart.values()
    assert by_torch == pytest.approx(1 - 1 / FURTHER)
    assert by_jax == 0
    assert peers == pytest.approx(FURTHER - 1)
    assert gradients.limit == 10 * NETWORK_LIMITS["bf16"]  # the peers differ, too
    assert losses.is_right
    assert gradients.is_right


def test_a_peer_that_is_late_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pretended, "late", "jax")
    _, gradients = compare(case_of("training"), "theirs", 1)
    assert list(gradients.apart.values())[1:] == [None, None]
    assert gradients.limit == NETWORK_LIMITS["bf16"]
    assert not gradients.is_right
    assert line(gradients).endswith("WRONG")


def test_rows_come_as_text_or_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_agreement, "python_with", theirs)
    assert main(["mlp", "minilm", "--quick"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["network", "part"]
    parts = [row.split()[:2] for row in rows]
    assert parts == [
        ["mlp", "result"],
        ["mlp", "losses"],
        ["mlp", "gradients"],
        ["minilm", "result"],
    ]
    monkeypatch.setattr(Pretended, "late", "jax")
    assert main(["mlp", "--quick", "--json"]) == 1
    found = [json.loads(row) for row in capsys.readouterr().out.splitlines()]
    assert [row["part"] for row in found] == ["result", "losses", "gradients"]
    assert found[0]["apart"] == {
        "dlc and torch eager": 0,
        "dlc and jax": None,
        "torch eager and jax": None,
    }


def test_a_network_that_there_is_none_of_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["alexnet"])
    assert "no network is called 'alexnet'" in capsys.readouterr().err
