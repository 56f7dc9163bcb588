"""No pass changes what programs and imported networks compute: each is evaluated after every pass.

The examples are among the tests of `--verify-each`, random views among those of the lowerings, which
verify each pass too.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from benchmarks.fuzz.texts import random_case
from dlc.driver.compile.compile import lower
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model
from tests.conformance.test_programs_agree import FOLDER, PROGRAMS
from tests.importers.onnx.agreement import Network, light_networks
from tests.suites import every


@pytest.mark.parametrize(("name", "level"), every(9, itertools.product(PROGRAMS, [1, 2])))
def test_no_pass_changes_what_a_program_computes(name: str, level: int) -> None:
    opened = open_model(FOLDER / f"{name}.dlm")
    lower(opened, Settings(level, verify_each=True), "loop")


@pytest.mark.long
@pytest.mark.parametrize("network", light_networks(), ids=lambda network: network.name)
def test_no_pass_changes_what_an_imported_network_computes(
    network: Network, tmp_path: Path
) -> None:
    path = tmp_path / "network.onnx"
    path.write_bytes(network.model().SerializeToString())
    lower(open_model(path), Settings(verify_each=True), "loop")


@pytest.mark.parametrize("start", every(50, range(0, 1000, 10)))
def test_no_pass_changes_what_random_models_compute(start: int) -> None:
    for seed in range(start, start + 10):
        case = random_case(500_000 + seed)
        opened = open_model("m.dlm", text=case.text(case.dtype))
        lower(opened, Settings(1 + seed % 3, verify_each=True), "loop")


def test_numbers_beyond_a_dtype_are_no_warning() -> None:
    text = "dlc 1\nexport fn f(x: f32[4, 4]) -> f32[4, 4] = tanh((x * 1e38) @ (x * 1e38))\n"
    lower(open_model("m.dlm", text=text), Settings(0, verify_each=True), "loop")
