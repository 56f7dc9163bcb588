"""The code of the tests on a GPU, run on the evaluator: what it compares can differ."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dlc.runtime.model import Model
from tests.gpu.cases import Case, Conditions, Derivatives, Network, Operator, Program, Training
from tests.gpu.workshop import Workshop
from tests.runtime.gpu.fake_gpu import FakeGpu, fake_gpu
from tests.suites import every

SMALL: list[Case] = [
    Operator("array.add", 2),
    Operator("array.gather", 0, 2),
    Operator("nn.softmax", 2, 2),
    Operator("rng.uniform", 2, 2),
    Operator("array.slice", 2),
    Operator("array.nonzero", 2),
    Derivatives("array.slice", 1),
    Derivatives("array.multiply", 1),
    Derivatives("nn.softmax", 2, 1),
    Program("examples/poly.dlm"),
    Conditions(),
    Network("first"),
    Network("softmax"),
    Training("tests/gpu/line.dlm"),
]


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeGpu]:
    with fake_gpu() as found:
        yield found


@pytest.mark.parametrize("case", every(4, [pytest.param(case, id=case.title) for case in SMALL]))
def test_a_case_runs_there_and_agrees(case: Case, fake: FakeGpu) -> None:
    before = len(fake.launched)
    case.check(case.compile("cuda:sm_80"))
    assert len(fake.launched) > before


def test_a_workshop_compiles_in_other_processes() -> None:
    case = Operator("array.add", 2, 1)
    with Workshop("cuda:sm_80", processes=1) as workshop:
        workshop.begin([case])
        (made,) = [file.read_bytes() for file in workshop.artifacts(case)]
    (target,) = Model.from_bytes(made, untrusted=True).artifact.manifest.targets
    assert target.name == "cuda:sm_80"
