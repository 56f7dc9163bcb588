"""NCCL by its C interface: collectives that run on GPUs, in a stream of the caller's.

Nothing is loaded before ranks run a model on GPUs. The library is the system's, or that of
`pip install nvidia-nccl-cu12`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from dlc.errors import CallError

NAME = "libnccl.so.2"
_PACKAGE = "nvidia.nccl"
"""The package of wheels that have the library, in `lib`."""
_DATATYPES = {
    "i8": 0, "u8": 1, "i32": 2, "u32": 3, "i64": 4, "u64": 5, "f32": 7, "f64": 8,
}  # fmt: skip
"""ncclDataType_t of what is added."""
_BYTE = 1
"""ncclUint8: in what is only sent, elements are bytes."""
_OPERATIONS = {"sum": 0, "max": 2, "min": 3}
"""ncclRedOp_t."""


class UniqueId(ctypes.Structure):
    """`ncclUniqueId`, by which the ranks of a communicator find each other."""

    _fields_ = [("bytes", ctypes.c_ubyte * 128)]


_Pointer, _Size, _Int = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_SIGNATURES = {
    "ncclGetUniqueId": (ctypes.POINTER(UniqueId),),
    "ncclCommInitRank": (ctypes.POINTER(_Pointer), _Int, UniqueId, _Int),
    "ncclCommAbort": (_Pointer,),
    "ncclAllReduce": (_Pointer, _Pointer, _Size, _Int, _Int, _Pointer, _Pointer),
    "ncclReduceScatter": (_Pointer, _Pointer, _Size, _Int, _Int, _Pointer, _Pointer),
    "ncclAllGather": (_Pointer, _Pointer, _Size, _Int, _Pointer, _Pointer),
    "ncclBroadcast": (_Pointer, _Pointer, _Size, _Int, _Int, _Pointer, _Pointer),
    "ncclSend": (_Pointer, _Size, _Int, _Int, _Pointer, _Pointer),
    "ncclRecv": (_Pointer, _Size, _Int, _Int, _Pointer, _Pointer),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
}
"""The functions that are called, and their parameters; each returns an ncclResult_t."""


class Nccl:
    """The library. Its functions raise CallError (D0818) with NCCL's words for what it refuses."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._functions: dict[str, Callable[..., int]] = {}
        for name, parameters in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = parameters, ctypes.c_int
            self._functions[name] = function
        self._text = library.ncclGetErrorString
        self._text.argtypes, self._text.restype = (ctypes.c_int,), ctypes.c_char_p

    def do(self, name: str, *arguments: object) -> None:
        """Call a function."""
        status = self._functions[name](*arguments)
        if status:
            why: bytes = self._text(status)
            message = f"NCCL refuses {name}: {why.decode(errors='replace')}"
            raise CallError(message, code="D0818")

    @contextmanager
    def together(self) -> Generator[None]:
        """What is sent and received meanwhile begins at once."""
        self.do("ncclGroupStart")
        try:
            yield
        finally:
            self.do("ncclGroupEnd")


def find_nccl() -> Nccl | None:
    """The library of this machine, or of a wheel; None if there is none."""
    for path in _candidates():
        try:
            return Nccl(ctypes.CDLL(path))
        except OSError:
            continue
    return None


def _candidates() -> Iterator[str]:
    yield NAME
    try:
        found = find_spec(_PACKAGE)
    except ModuleNotFoundError:
        return
    for folder in () if found is None else found.submodule_search_locations or ():
        yield str(Path(folder, "lib", NAME))


class NcclAxis:
    """The ranks along an axis of the mesh. Addresses and streams are those of this thread's GPU."""

    def __init__(
        self, nccl: Nccl, rank: int, ranks: int, from_first: Callable[[bytes], bytes]
    ) -> None:
        """`from_first` gives all ranks what the first one passes; all connect together."""
        self._nccl, self.rank, self.ranks = nccl, rank, ranks
        identity = UniqueId()
        if not rank:
            nccl.do("ncclGetUniqueId", ctypes.byref(identity))
        identity = UniqueId.from_buffer_copy(from_first(bytes(identity)))
        self._comm = ctypes.c_void_p()
        nccl.do("ncclCommInitRank", ctypes.byref(self._comm), ranks, identity, rank)

    def all_reduce(
        self, source: int, target: int, count: int, dtype: str, combine: str, stream: int
    ) -> None:
        """Combine arrays of `count` elements."""
        kinds = _DATATYPES[dtype], _OPERATIONS[combine]
        self._nccl.do("ncclAllReduce", source, target, count, *kinds, self._comm, stream)

    def reduce_scatter(self, source: int, target: int, count: int, dtype: str, stream: int) -> None:
        """Add arrays with `count` elements for each rank, of which this one gets its own."""
        kinds = _DATATYPES[dtype], _OPERATIONS["sum"]
        self._nccl.do("ncclReduceScatter", source, target, count, *kinds, self._comm, stream)

    def all_gather(self, source: int, target: int, bytes: int, stream: int) -> None:
        """Bring `bytes` of each rank to all."""
        self._nccl.do("ncclAllGather", source, target, bytes, _BYTE, self._comm, stream)

    def broadcast(self, source: int, target: int, bytes: int, root: int, stream: int) -> None:
        """Bring `bytes` of the rank `root` to all."""
        self._nccl.do("ncclBroadcast", source, target, bytes, _BYTE, root, self._comm, stream)

    def all_to_all(self, source: int, target: int, bytes: int, stream: int) -> None:
        """Send `bytes` to each rank, and receive as many from each."""
        with self._nccl.together():
            for other in range(self.ranks):
                self._send(source + other * bytes, bytes, other, stream)
                self._receive(target + other * bytes, bytes, other, stream)

    def permute(self, source: int, target: int, bytes: int, shift: int, stream: int) -> None:
        """Send `bytes` to the rank `shift` places behind this one, round the axis."""
        with self._nccl.together():
            self._send(source, bytes, (self.rank + shift) % self.ranks, stream)
            self._receive(target, bytes, (self.rank - shift) % self.ranks, stream)

    def _send(self, source: int, bytes: int, other: int, stream: int) -> None:
        self._nccl.do("ncclSend", source, bytes, _BYTE, other, self._comm, stream)

    def _receive(self, target: int, bytes: int, other: int, stream: int) -> None:
        self._nccl.do("ncclRecv", target, bytes, _BYTE, other, self._comm, stream)

    def __del__(self) -> None:
        if getattr(self, "_comm", None):
            # Other ranks may not close theirs: abort frees what is here, without them.
            self._nccl.do("ncclCommAbort", self._comm)
