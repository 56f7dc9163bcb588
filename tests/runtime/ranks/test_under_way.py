"""All-reduces that are under way while other kernels run, among simulated ranks.

Simulated ranks write a sum when it is waited for, and refuse an array that was touched until then: so these
also test that the memory plan keeps it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.dialects.comm import StartAllReduce
from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.driver.source.open import read_ir
from dlc.evaluation.ranks import evaluate_ranks
from dlc.ir.passes import Context, Manager, parse_passes
from dlc.ir.verify import verify
from dlc.passes.sharding.partition import Splits
from dlc.runtime.model import Model
from dlc.runtime.ranks.mesh import Mesh
from dlc.runtime.ranks.simulated import SimulatedRanks, run_simulated
from tests.dialects.programs import assert_close

TWO = Mesh({"data": 2})
TEXT = """\
module {dlc.mesh=["data = 2"]} {
  func @f {dlc.inputs=["x", "y"]} (%x: f32[1100, 1100], %y: f32[1100, 1100]) {
    %a = array.matmul %x, %y
    %sa = comm.all_reduce %a {mesh_axis="data", ranks=2}
    %u = array.sin %sa
    %b = array.matmul %y, %x
    %sb = comm.all_reduce %b {mesh_axis="data", ranks=2}
    %v = array.cos %sb
    %c = array.matmul %y, %y
    return %u, %v, %c
  }
}
"""


def arrays(rank: int) -> tuple[NDArray[Any], NDArray[Any]]:
    random = np.random.default_rng(rank)
    x, y = (random.standard_normal((1100, 1100), np.float32) / 33 for _ in "xy")
    return x, y


def test_what_is_under_way_is_the_sum_in_machine_code(tmp_path: Path) -> None:
    path = tmp_path / "f.dlir"
    path.write_text(TEXT)
    made = make_artifact(CompileRequest(str(path), trust_ir=True)).artifact

    def work(ranks: SimulatedRanks) -> Any:  # noqa: ANN401 - named results
        return Model(made, threads=2, comm=ranks).f(*arrays(ranks.rank))

    (x, y), (z, w) = arrays(0), arrays(1)
    for u, v, c in run_simulated(TWO, work):
        np.testing.assert_allclose(u, np.sin(x @ y + z @ w), atol=2e-4)
        np.testing.assert_allclose(v, np.cos(y @ x + w @ z), atol=2e-4)
        assert c.shape == (1100, 1100)


def test_evaluation_knows_what_is_under_way() -> None:
    module = read_ir(TEXT, "f.dlir")
    Manager(Context()).run(module, parse_passes("lower_to_kernels,overlap"))
    verify(module)
    assert any(isinstance(op, StartAllReduce) for op in module.walk())
    body = module.body.first
    assert body is not None
    x, y = arrays(0)
    nothing: Splits = {}
    u, _, _ = evaluate_ranks(body.regions[0], TWO, [nothing] * 5, [x, y])
    assert_close(u, np.sin(2 * (x @ y)), 2e-4, 2e-4)
