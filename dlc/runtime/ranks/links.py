"""Imports of machine code for the ranks of a mesh: functions of MPI, its handles, and coordinates.

With mpi4py the code calls MPI's C functions, at the addresses that the library has in this process: a
collective does not enter Python. Simulated ranks have functions of the same signatures that do.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from dlc.errors import UsageError
from dlc.runtime.abi import COLLECTIVES, COMMUNICATOR, COORDINATE, MPI_DATATYPES, MPI_OPERATIONS
from dlc.runtime.artifact.manifest import STAGE, MeshAxis
from dlc.runtime.ranks.entering import Entering
from dlc.runtime.ranks.mesh import Mesh
from dlc.runtime.ranks.simulated import SimulatedRanks

if TYPE_CHECKING:
    from mpi4py import MPI


class Channel(Protocol):
    """Sends arrays from stage to stage of a pipeline, each with a tag that the receiver asks for."""

    @property
    def stage(self) -> int:
        """The stage of this rank."""
        ...

    def send(self, target: int, tag: int, array: NDArray[Any]) -> None:
        """Begin to send a contiguous array, which stays as it is until `settle`."""
        ...

    def receive(self, source: int, tag: int, array: NDArray[Any]) -> None:
        """Wait for an array of this size, and write it to this one, which is contiguous."""
        ...

    def settle(self, ahead: int = 0) -> None:
        """Wait until everything is sent, but for the last `ahead` arrays to later stages.

        With `ahead` nothing is waited for that goes to earlier stages: these may wait for this one, too.
        """
        ...


class Links(Protocol):
    """What the table of imports of a rank's code is filled with."""

    @property
    def rank(self) -> int:
        """Which of the ranks this is."""
        ...

    @property
    def entering(self) -> Entering:
        """How they agree to begin a call."""
        ...

    def word(self, symbol: str) -> int:
        """The address of a function, a handle, or a coordinate."""
        ...

    def coordinate(self, axis: str) -> int:
        """This rank's place along an axis."""
        ...

    def told(self, own: str) -> list[str]:
        """What each rank tells all of them, by rank."""
        ...

    @property
    def place_on_host(self) -> int:
        """Which of the ranks of its host this is."""
        ...

    def channel(self) -> Channel:
        """What brings arrays from one stage of the pipeline of this rank to another."""
        ...


def link(comm: object, axes: Sequence[MeshAxis]) -> Links:
    """What code for a mesh imports, for a communicator of mpi4py or simulated ranks.

    Raises UsageError (D0936) for a communicator of another number of ranks than the mesh has.
    """
    mesh = Mesh({axis.name: axis.ranks for axis in axes})
    if isinstance(comm, SimulatedRanks):
        _check_size(mesh, comm.mesh.size)
        return SimulatedLinks(comm)
    communicator = _communicator(comm)
    _check_size(mesh, communicator.Get_size())
    return MpiLinks(communicator, mesh)


def ranks_of(comm: object) -> int:
    """The number of ranks of a communicator; 1 for none."""
    if comm is None:
        return 1
    if isinstance(comm, SimulatedRanks):
        return comm.mesh.size
    return _communicator(comm).Get_size()


def _communicator(comm: object) -> MPI.Intracomm:
    if not hasattr(comm, "Split") or not hasattr(comm, "Get_size"):
        raise UsageError(
            f"comm is a communicator of mpi4py, found {type(comm).__name__}",
            code="D0936",
            help="write dlc.load(path, comm=MPI.COMM_WORLD)",
        )
    if not comm:
        raise UsageError(
            "comm is COMM_NULL: this process is none of the ranks of it",
            code="D0936",
            help="let only those call it that MPI's Split gave a communicator",
        )
    return cast("MPI.Intracomm", comm)


def _check_size(mesh: Mesh, ranks: int) -> None:
    if not mesh.axes:
        raise UsageError(
            f"the model was compiled for one process, and {ranks} ranks run",
            code="D0936",
            help="compile or train the text of the model with --ranks, or leave out comm",
        )
    if mesh.size != ranks:
        shape = ", ".join(f"{name}={size}" for name, size in mesh.axes.items())
        raise UsageError(
            f"the model is for {mesh.size} ranks ({shape}), and {ranks} run",
            code="D0936",
            help=f"start {mesh.size} ranks, or compile it for {ranks}",
        )


class MpiLinks:
    """The functions and handles of MPI in this process, and a communicator for each axis of the mesh."""

    def __init__(self, comm: MPI.Intracomm, mesh: Mesh) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self._comm = comm
        # Its dependencies are searched too: the library that mpi4py itself calls.
        self._library = ctypes.CDLL(MPI.__file__)
        self.rank = comm.Get_rank()
        self._coordinates = mesh.coordinates(self.rank)
        self.communicators: dict[str, MPI.Intracomm] = {}
        """That of each axis, whose ranks are in order."""
        for name, place in self._coordinates.items():
            others = {**self._coordinates, name: 0}
            split = comm.Split(mesh.rank(others), place)
            # Code does not look at what MPI returns: whatever fails ends all ranks.
            split.Set_errhandler(MPI.ERRORS_ARE_FATAL)
            self.communicators[name] = split
        self.entering = Entering.by_mpi(comm.Dup())

    def coordinate(self, axis: str) -> int:
        """This rank's place along an axis."""
        return self._coordinates[axis]

    def told(self, own: str) -> list[str]:
        """What each rank tells all of them, by rank."""
        return [str(each) for each in self._comm.allgather(own)]

    @property
    def place_on_host(self) -> int:
        """Which of the ranks of its host this is; all ranks ask together."""
        beside = self._comm.Split_type(self._mpi.COMM_TYPE_SHARED)
        place = beside.Get_rank()
        beside.Free()
        return place

    def word(self, symbol: str) -> int:
        """The address of a function, a handle, or a coordinate."""
        if symbol in COLLECTIVES:
            address = ctypes.cast(getattr(self._library, symbol), ctypes.c_void_p).value
            assert address, symbol
            return address
        if symbol.startswith(COORDINATE):
            return self._coordinates[symbol.removeprefix(COORDINATE)]
        if symbol.startswith(COMMUNICATOR):
            handle = self._handle(self.communicators[symbol.removeprefix(COMMUNICATOR)])
        elif symbol == "MPI_STATUS_IGNORE":
            return self._ignored_status()
        elif symbol == "MPI_IN_PLACE":
            handle = int(self._mpi.IN_PLACE)
        else:
            handle = self._handle(getattr(self._mpi, symbol.removeprefix("MPI_")))
        return handle & (2**64 - 1)

    def channel(self) -> Channel:
        """What sends arrays over a communicator of its own, apart from what others send."""
        own = self.communicators[STAGE].Dup()
        own.Set_errhandler(self._mpi.ERRORS_ARE_FATAL)
        return MpiChannel(own)

    def _handle(self, what: object) -> int:
        """The handle of an object of mpi4py."""
        return self._mpi._handleof(what)  # pyright: ignore[reportPrivateUsage]

    def _ignored_status(self) -> int:
        """Where a status may be written that nobody reads."""
        self._status = ctypes.create_string_buffer(256)
        return ctypes.addressof(self._status)


class MpiChannel:
    """Arrays by MPI's Isend and Recv."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        """The ranks of `comm` are the stages, in order."""
        self._comm = comm
        self.stage = comm.Get_rank()
        self._forward: deque[MPI.Request] = deque()
        self._back: list[MPI.Request] = []

    def send(self, target: int, tag: int, array: NDArray[Any]) -> None:
        """Begin to send an array."""
        request = self._comm.Isend(_bytes(array), target, tag)
        (self._forward if target > self.stage else self._back).append(request)

    def receive(self, source: int, tag: int, array: NDArray[Any]) -> None:
        """Wait for an array."""
        self._comm.Recv(_bytes(array), source, tag)

    def settle(self, ahead: int = 0) -> None:
        """Wait until everything is sent, but for the last `ahead` arrays to later stages."""
        while len(self._forward) > ahead:
            self._forward.popleft().Wait()
        while self._back and not ahead:
            self._back.pop().Wait()


class SimulatedChannel:
    """The same between threads."""

    def __init__(self, ranks: SimulatedRanks) -> None:
        self._ranks = ranks
        self._by_stage = ranks.mesh.along(ranks.rank, STAGE)
        self.stage = ranks.coordinate(STAGE)

    def send(self, target: int, tag: int, array: NDArray[Any]) -> None:
        """Send an array."""
        self._ranks.send(self._by_stage[target], tag, _bytes(array))

    def receive(self, source: int, tag: int, array: NDArray[Any]) -> None:
        """Wait for an array."""
        _bytes(array)[...] = self._ranks.receive(self._by_stage[source], tag)

    def settle(self, ahead: int = 0) -> None:
        """Everything is sent at once."""


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of a contiguous array, also of a number."""
    return array.reshape(-1).view(np.uint8)


_Pointer, _Word = ctypes.c_void_p, ctypes.c_int64
_HANDLES = {name: k for k, name in enumerate(dict.fromkeys(MPI_DATATYPES.values()))}
"""The handles of datatypes of simulated ranks, by their names."""


IN_PLACE = 0
"""Stands for MPI_IN_PLACE among simulated ranks, an address that no array has."""


UNTOUCHED = 0xA5
"""The bytes of an array whose sum is under way among simulated ranks."""


class SimulatedLinks:
    """Functions with the signatures of MPI's that exchange arrays between threads."""

    def __init__(self, ranks: SimulatedRanks) -> None:
        self._ranks, self.rank = ranks, ranks.rank
        self.entering = Entering.simulated(ranks)
        self._axes = list(ranks.mesh.axes)
        self._operations = list(MPI_OPERATIONS.values())
        self._under_way: dict[int, tuple[NDArray[Any], NDArray[Any]]] = {}
        """Where each sum that is under way will be, and the sum, by the number of the request."""
        self._dtypes = {handle: np.dtype(_numpy_name(name)) for name, handle in _HANDLES.items()}
        swap = (_Pointer, _Word, _Word, _Pointer, _Word, _Word, _Word)
        reduce = (_Pointer, _Pointer, _Word, _Word, _Word, _Word)
        send = (_Pointer, *[_Word] * 4, _Pointer, *[_Word] * 6)
        signatures: Mapping[str, tuple[Callable[..., None], tuple[Any, ...]]] = {
            "MPI_Allreduce": (self._all_reduce, reduce),
            "MPI_Reduce_scatter_block": (self._reduce_scatter, reduce),
            "MPI_Allgather": (self._all_gather, swap),
            "MPI_Alltoall": (self._all_to_all, swap),
            "MPI_Bcast": (self._broadcast, (_Pointer, _Word, _Word, _Word, _Word)),
            "MPI_Sendrecv": (self._send_receive, send),
            "MPI_Iallreduce": (self._start, (*reduce, _Pointer)),
            "MPI_Test": (self._test, (_Pointer, _Pointer, _Word)),
            "MPI_Wait": (self._wait, (_Pointer, _Word)),
        }
        self._functions = {
            name: ctypes.CFUNCTYPE(ctypes.c_int, *types)(self._guarded(function))
            for name, (function, types) in signatures.items()
        }

    def word(self, symbol: str) -> int:
        """The address of a function, a handle, or a coordinate."""
        if symbol in self._functions:
            return ctypes.cast(self._functions[symbol], ctypes.c_void_p).value or 0
        if symbol.startswith(COORDINATE):
            return self._ranks.coordinate(symbol.removeprefix(COORDINATE))
        if symbol.startswith(COMMUNICATOR):
            return self._axes.index(symbol.removeprefix(COMMUNICATOR))
        if symbol in self._operations:
            return self._operations.index(symbol)
        return _HANDLES.get(symbol, IN_PLACE)

    def coordinate(self, axis: str) -> int:
        """This rank's place along an axis."""
        return self._ranks.coordinate(axis)

    def told(self, own: str) -> list[str]:
        """What each rank tells all of them, by rank."""
        return self._ranks.allgather(own)

    @property
    def place_on_host(self) -> int:
        """All ranks are threads of one process."""
        return self.rank

    def channel(self) -> Channel:
        """What sends arrays between the threads."""
        return SimulatedChannel(self._ranks)

    def _guarded(self, function: Callable[..., None]) -> Callable[..., int]:
        """The function, whose error is kept: it cannot pass through machine code."""

        def call(*arguments: int) -> int:
            try:
                function(*arguments)
            except BaseException as error:  # noqa: BLE001 - raised when the call has ended
                self._ranks.fail(error)
            return 0

        return call

    def _array(self, pointer: int, count: int, datatype: int) -> NDArray[Any]:
        dtype = self._dtypes[datatype]
        if not count:
            return np.empty(0, dtype)
        bytes = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(pointer)
        return np.ctypeslib.as_array(bytes).view(dtype)

    def _exchange(self, array: NDArray[Any], comm: int) -> list[NDArray[Any]]:
        return self._ranks.exchange(self._axes[comm], array.copy())

    def _combined(self, arrays: list[NDArray[Any]], operation: int) -> NDArray[Any]:
        function = {"MPI_SUM": np.add, "MPI_MAX": np.maximum, "MPI_MIN": np.minimum}[
            self._operations[operation]
        ]
        total = arrays[0]
        for array in arrays[1:]:
            total = function(total, array)
        return total

    def _own(self, comm: int) -> int:
        return self._ranks.coordinate(self._axes[comm])

    def _all_reduce(
        self, source: int | None, target: int, count: int, dtype: int, op: int, comm: int
    ) -> None:
        found = self._exchange(self._array(source or target, count, dtype), comm)
        self._array(target, count, dtype)[:] = self._combined(found, op)

    def _start(
        self, _: int, target: int, count: int, dtype: int, op: int, comm: int, request: int
    ) -> None:
        """Take the sum, but write it when it is waited for; until then nobody may use the array."""
        array = self._array(target, count, dtype)
        total = self._combined(self._exchange(array, comm), op)
        array.view(np.uint8)[:] = UNTOUCHED
        number = max(self._under_way, default=0) + 1
        self._under_way[number] = array, total
        ctypes.c_int32.from_address(request).value = number

    def _test(self, _request: int, flag: int, _status: int) -> None:
        ctypes.c_int32.from_address(flag).value = 0

    def _wait(self, request: int, _status: int) -> None:
        array, total = self._under_way.pop(ctypes.c_int32.from_address(request).value)
        if not (array.view(np.uint8) == UNTOUCHED).all():
            raise AssertionError("the array of an all-reduce was written while it was under way")
        array[:] = total

    def _reduce_scatter(
        self, source: int, target: int, count: int, dtype: int, op: int, comm: int
    ) -> None:
        ranks = self._ranks.mesh.axes[self._axes[comm]]
        found = self._exchange(self._array(source, count * ranks, dtype), comm)
        own = slice(self._own(comm) * count, (self._own(comm) + 1) * count)
        self._array(target, count, dtype)[:] = self._combined([each[own] for each in found], op)

    def _all_gather(
        self, source: int, count: int, dtype: int, target: int, _count: int, _dtype: int, comm: int
    ) -> None:
        found = self._exchange(self._array(source, count, dtype), comm)
        self._array(target, count * len(found), dtype)[:] = np.concatenate(found)

    def _all_to_all(
        self, source: int, count: int, dtype: int, target: int, _count: int, _dtype: int, comm: int
    ) -> None:
        ranks = self._ranks.mesh.axes[self._axes[comm]]
        found = self._exchange(self._array(source, count * ranks, dtype), comm)
        own = slice(self._own(comm) * count, (self._own(comm) + 1) * count)
        self._array(target, count * ranks, dtype)[:] = np.concatenate([each[own] for each in found])

    def _broadcast(self, target: int, count: int, dtype: int, root: int, comm: int) -> None:
        array = self._array(target, count, dtype)
        array[:] = self._exchange(array, comm)[root]

    def _send_receive(self, *arguments: int) -> None:
        source, count, dtype, _to, _tag, target, _count, _dtype, origin, _tag2, comm, _ = arguments
        found = self._exchange(self._array(source, count, dtype), comm)
        self._array(target, count, dtype)[:] = found[origin]


def _numpy_name(datatype: str) -> str:
    """NumPy's name of an MPI datatype."""
    return {"MPI_FLOAT": "float32", "MPI_DOUBLE": "float64"}.get(
        datatype, datatype.removeprefix("MPI_").removesuffix("_T").lower()
    )
