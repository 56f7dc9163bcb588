"""What ranks do together with arrays in the memory of their GPUs, as calls in the stream of their kernels.

Where each rank has a GPU of its own and NCCL is installed, NCCL sends from GPU to GPU
(`dlc.runtime.ranks.nccl`). Else an array goes by the host, and MPI sends it.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from dlc.errors import CallError
from dlc.runtime.abi import COMMUNICATOR, MPI_DATATYPES, MPI_OPERATIONS
from dlc.runtime.arrays.dtypes import DTYPES
from dlc.runtime.artifact.manifest import GpuCollective, MeshAxis
from dlc.runtime.cuda.array import ALIGNED
from dlc.runtime.cuda.driver import Driver
from dlc.runtime.cuda.memory import DeviceBytes
from dlc.runtime.cuda.pinned import GrowablePinnedBytes
from dlc.runtime.ranks.links import Links, MpiLinks
from dlc.runtime.ranks.nccl import NcclAxis, find_nccl
from dlc.runtime.system.buffers import aligned_copy

if TYPE_CHECKING:
    from mpi4py import MPI

_MOST_SENT = (1 << 31) - 1
"""The most elements of one call of MPI."""


class Collectives(Protocol):
    """The collectives of this rank."""

    name: str
    """What sends: `nccl`, or `mpi`."""

    def call(self, what: GpuCollective, words: Sequence[int], stream: int) -> None:
        """Put one into a stream of this thread's GPU; `words` are its arguments, addresses first."""
        ...


class Sent(NamedTuple):
    """A collective as it is sent: the addresses on the GPU, and elements and bytes."""

    source: int
    target: int
    elements: int
    sent: int
    """Bytes from the source."""
    received: int
    """Bytes to the target."""


def sent(what: GpuCollective, words: Sequence[int], ranks: int) -> Sent:
    """What goes where; an array with an entry for each rank is `ranks` times as long as what is counted."""
    source, target, count = words[0], words[1], words[what.elements]
    bytes = count * DTYPES[what.dtype].bytes
    sends = ranks if what.function in ("reduce_scatter", "all_to_all") else 1
    receives = ranks if what.function in ("all_gather", "all_to_all") else 1
    return Sent(source, target, count, sends * bytes, receives * bytes)


class _Coordinates:
    """This rank's place along each axis, in the memory of its GPU."""

    def __init__(self, links: Links, axes: Sequence[MeshAxis], driver: Driver) -> None:
        self.of = {axis.name: links.coordinate(axis.name) for axis in axes}
        self._driver = driver
        with driver:
            self._there = DeviceBytes.of(
                driver, aligned_copy(np.array([*self.of.values()], np.int64).tobytes())
            )

    def copy(self, axis: str, target: int, stream: int) -> None:
        """Put a copy of the coordinate along an axis into a stream."""
        source = self._there.address + 8 * list(self.of).index(axis)
        self._driver.copy(target, source, 8, stream)


class ByNccl:
    """Collectives by NCCL, which run in the stream."""

    name = "nccl"

    def __init__(
        self,
        driver: Driver,
        coordinates: _Coordinates,
        axes: Mapping[str, NcclAxis],
    ) -> None:
        self._driver, self._coordinates, self._axes = driver, coordinates, axes

    def call(self, what: GpuCollective, words: Sequence[int], stream: int) -> None:
        """Put one into a stream. Raises CallError (D0818) where NCCL refuses it."""
        if what.function == "rank":
            self._coordinates.copy(what.axis, words[0], stream)
            return
        axis = self._axes[what.axis]
        sizes = sent(what, words, axis.ranks)
        source, target, _, bytes, _ = sizes
        match what.function:
            case "all_reduce":
                axis.all_reduce(source, target, sizes.elements, what.dtype, what.combine, stream)
            case "reduce_scatter":
                axis.reduce_scatter(source, target, sizes.elements, what.dtype, stream)
            case "all_gather":
                axis.all_gather(source, target, bytes, stream)
            case "all_to_all":
                axis.all_to_all(source, target, bytes // axis.ranks, stream)
            case "broadcast":
                axis.broadcast(source, target, bytes, what.place, stream)
            case _:
                axis.permute(source, target, bytes, what.place, stream)


class ByHost:
    """Collectives by MPI's functions, through pinned memory of the host: each waits for the stream."""

    name = "mpi"

    def __init__(
        self, links: Links, axes: Sequence[MeshAxis], driver: Driver, coordinates: _Coordinates
    ) -> None:
        self._links, self._driver, self._coordinates = links, driver, coordinates
        self._ranks = {axis.name: axis.ranks for axis in axes}
        self._block = GrowablePinnedBytes(driver)

    def call(self, what: GpuCollective, words: Sequence[int], stream: int) -> None:
        """Do one, after all that is in the stream. Raises CallError (D0818) for too long an array."""
        if what.function == "rank":
            self._coordinates.copy(what.axis, words[0], stream)
            return
        sizes = sent(what, words, self._ranks[what.axis])
        if sizes.elements > _MOST_SENT:
            raise CallError(
                f"{what.name} sends {sizes.elements} elements, and MPI takes {_MOST_SENT}",
                code="D0818",
                help="install NCCL, or split the array among more ranks",
            )
        room = -(-sizes.sent // ALIGNED) * ALIGNED
        source = self._block.of(room + sizes.received)
        target = source + room
        self._driver.download(source, sizes.source, sizes.sent, stream)
        self._driver.synchronize(stream)
        self._send(what, source, target, sizes)
        self._driver.upload(sizes.target, target, sizes.received, stream)
        self._driver.synchronize(stream)  # the block is the next one's

    def _send(self, what: GpuCollective, source: int, target: int, sizes: Sent) -> None:
        word = self._links.word
        dtype, comm = word(MPI_DATATYPES[what.dtype]), word(COMMUNICATOR + what.axis)
        count = sizes.elements
        match what.function:
            case "all_reduce":
                operation = word(MPI_OPERATIONS[what.combine])
                self._mpi("MPI_Allreduce", source, target, count, dtype, operation, comm)
            case "reduce_scatter":
                arguments = source, target, count, dtype, word("MPI_SUM"), comm
                self._mpi("MPI_Reduce_scatter_block", *arguments)
            case "all_gather":
                self._mpi("MPI_Allgather", source, count, dtype, target, count, dtype, comm)
            case "all_to_all":
                self._mpi("MPI_Alltoall", source, count, dtype, target, count, dtype, comm)
            case "broadcast":
                ctypes.memmove(target, source, sizes.sent)
                self._mpi("MPI_Bcast", target, count, dtype, what.place, comm)
            case _:
                own, ranks = self._coordinates.of[what.axis], self._ranks[what.axis]
                after, before = (own + what.place) % ranks, (own - what.place) % ranks
                there, here = (source, count, dtype, after, 0), (target, count, dtype, before, 0)
                self._mpi("MPI_Sendrecv", *there, *here, comm, word("MPI_STATUS_IGNORE"))

    def _mpi(self, name: str, *arguments: int) -> None:
        """Call a function of MPI as machine code does, with words; what fails ends all ranks."""
        signature = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * len(arguments))
        signature(self._links.word(name))(*[ctypes.c_int64(each).value for each in arguments])


def collectives_on_gpus(links: Links, axes: Sequence[MeshAxis], driver: Driver) -> Collectives:
    """The collectives of this rank with arrays on its GPU; all ranks of the mesh call it together.

    Raises CallError (D0818) where NCCL cannot connect them.
    """
    coordinates = _Coordinates(links, axes, driver)
    library = find_nccl() if isinstance(links, MpiLinks) else None
    own = f"{platform.node()} {os.environ.get('CUDA_VISIBLE_DEVICES', '')} {driver.number}"
    told = links.told("" if library is None else own)
    if not (isinstance(links, MpiLinks) and library is not None) or not _all_differ(told):
        return ByHost(links, axes, driver, coordinates)
    with driver:
        connected = {
            name: NcclAxis(library, comm.Get_rank(), comm.Get_size(), partial(_from_first, comm))
            for name, comm in links.communicators.items()
        }
    return ByNccl(driver, coordinates, connected)


def _from_first(comm: MPI.Intracomm, own: bytes) -> bytes:
    """What the first of some ranks passes, on all of them."""
    found = comm.bcast(own)
    assert isinstance(found, bytes)
    return found


def _all_differ(told: Sequence[str]) -> bool:
    """Whether each rank has NCCL, and a GPU that no other one has."""
    return all(told) and len(set(told)) == len(told)
