"""Whether MPI started this process, asked before anything of MPI is loaded."""

from __future__ import annotations

import os

RANK = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
"""Variables of the environment by which a process knows that MPI started it, and as which rank."""


def started_by_mpi() -> bool:
    """Whether MPI started this process as one of several."""
    return any(name in os.environ for name in RANK)
