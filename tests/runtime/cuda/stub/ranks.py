"""Two ranks of MPI with a GPU each, which exchange arrays by the stub of NCCL; `test_nccl.py` starts it.

LD_LIBRARY_PATH=FOLDER_OF_THE_STUBS mpiexec -n 2 python -m tests.runtime.cuda.stub.ranks
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from dlc.runtime.ranks.mesh import Mesh
from dlc.runtime.ranks.simulated import run_simulated
from tests.runtime.cuda.stub.library import Stub
from tests.runtime.ranks.on_gpus import GPU, each, results, trained, training

TWO = Mesh({"data": 2})


def main() -> None:
    """Compute every collective and train, and compare with simulated ranks with processors."""
    comm = MPI.COMM_WORLD
    stub = Stub()
    stub["devices"] = 2
    stub.evaluate()
    on_cpu = each("cpu")
    wanted = run_simulated(TWO, lambda ranks: results(on_cpu, ranks))[comm.Get_rank()]
    for one, other in zip(results(each(GPU), comm), wanted, strict=True):
        np.testing.assert_array_equal(one, other)
    _, losses = trained(training("cpu", 1), None)
    device, found = trained(training(GPU, 2, "weights"), comm)
    assert device == f"cuda:{comm.Get_rank()}"
    np.testing.assert_allclose(found, losses, rtol=1e-5)
    print(f"rank {comm.Get_rank()} is done")


if __name__ == "__main__":
    main()
