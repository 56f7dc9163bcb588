"""A strict reader of NumPy's npy and npz files: no pickle, and every size is checked before it is used.

An npz file is a zip archive of npy files. Uncompressed members, as `np.savez` writes them, are read in
place from the mapped file; compressed ones are unpacked on access. Either way the CRC-32 of an array is
checked at each access, before its bytes are interpreted.
"""

from __future__ import annotations

import errno
import io
import re
import struct
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dlc.errors import ArtifactError, Unsupported
from dlc.runtime.arrays.dtypes import DTYPES, DType, byte_count
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.system.buffers import Bytes, aligned_bytes

if TYPE_CHECKING:
    import zipfile

MAX_MEMBERS = 100_000
_FREE_SIZE = 64 << 20
_MAX_RATIO = 100
"""The highest compression ratio of members larger than `_FREE_SIZE`, against zip bombs."""

_MAGIC = b"\x93NUMPY"
_MAX_HEADER = 1 << 16
_HEADER = re.compile(
    rb"\{\s*'descr':\s*('[<>|=][^'{}]{1,20}'|\[[^{}]{0,1000}\]),\s*'fortran_order':\s*(True|False),"
    rb"\s*'shape':\s*\(((?:[0-9]{1,19}\s*,\s*)*(?:[0-9]{1,19})?)\),?\s*\}\s*"
)
_PIECE = 1 << 20
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_STORED, _DEFLATED = 0, 8
_ENCRYPTED = 1


def entries(file: memoryview, path: str) -> dict[str, Callable[[], Tensor]]:
    """A reader for each array of an npz file, by name. Raises ArtifactError (D0503) if it is damaged."""
    import zipfile  # 10 ms that only an npz file has to pay

    with _damage_named(path):
        archive = zipfile.ZipFile(_MemoryFile(file))
        members = archive.infolist()
    if len(members) > MAX_MEMBERS:
        raise _damaged(path, f"{len(members)} members; at most {MAX_MEMBERS} are read")
    found: dict[str, Callable[[], Tensor]] = {}
    for member in members:
        name = member.filename.removesuffix(".npy")
        if name == member.filename:
            continue
        if name in found:
            raise _damaged(path, f"the array {name[:80]!r} comes twice")
        found[name] = partial(_member, archive, file, member, f"{path}: {name}")
    return found


def single_entry(file: memoryview, path: str) -> dict[str, Callable[[], Tensor]]:
    """The same for an npy file, whose only array has the name of the file without its ending."""
    return {Path(path).stem: partial(read_npy, file, path)}


def read_npy(file: memoryview, path: str) -> Tensor:
    """The array of an npy file, without a copy.

    Raises ArtifactError (D0503) if it is damaged, Unsupported (D0507) for an element type that the
    language lacks: text, objects, complex and big-endian numbers.
    """
    header, data = _split(file, path)
    parsed = _HEADER.fullmatch(header)
    if parsed is None:
        raise _damaged(path, f"the header {header[:60]!r} is not that of an npy file")
    shape = tuple(int(size) for size in parsed[3].split(b",") if size.strip())
    dtype = _dtype(parsed[1].decode("latin-1").strip("'"), path)
    if len(data) != byte_count(shape, dtype):
        raise _damaged(path, f"{len(data)} bytes are not {list(shape)} of {dtype}")
    bits = np.frombuffer(data, dtype.numpy)
    if parsed[2] == b"True":
        return Tensor.from_bits(bits.reshape(shape[::-1]).T, dtype.name)
    return Tensor.from_bits(bits.reshape(shape), dtype.name)


def _split(file: memoryview, path: str) -> tuple[bytes, memoryview]:
    if bytes(file[:6]) != _MAGIC or len(file) < 12:
        raise _damaged(path, "it does not begin like an npy file")
    version = file[6]
    if version not in (1, 2, 3):
        raise _damaged(path, f"version {version} of the npy format is unknown")
    start = 10 if version == 1 else 12
    length = int.from_bytes(file[8:start], "little")
    if length > min(_MAX_HEADER, len(file) - start):
        raise _damaged(path, f"a header of {length} bytes does not fit")
    return bytes(file[start : start + length]), file[start + length :]


def _dtype(text: str, path: str) -> DType:
    if re.fullmatch(r"[<|=]?[biuf?][1248]?", text):
        try:
            found = np.dtype(text)
        except TypeError:
            found = None
        for dtype in DTYPES.values():
            if dtype.name != "bf16" and dtype.numpy == found:
                return dtype
    raise Unsupported(
        f"{path}: NumPy's element type {text[:40]!r} is not one that dlc has",
        code="D0507",
        help="save numbers of a dtype that dlc has, such as f32",
    )


def _member(
    archive: zipfile.ZipFile, file: memoryview, member: zipfile.ZipInfo, path: str
) -> Tensor:
    if member.flag_bits & _ENCRYPTED or member.compress_type not in (_STORED, _DEFLATED):
        raise _damaged(path, "it is encrypted, or packed in a way that is not deflate")
    if member.compress_type == _STORED:
        with _damage_named(path), archive.open(member):
            pass  # compares the two headers of the member
        return read_npy(_stored(file, member, path), path)
    if member.file_size > max(_FREE_SIZE, _MAX_RATIO * member.compress_size):
        message = f"{member.compress_size} bytes claim to unpack to {member.file_size}"
        raise _damaged(path, message, help="save it uncompressed, with np.savez")
    return read_npy(_unpacked(archive, member, path).data, path)


def _stored(file: memoryview, member: zipfile.ZipInfo, path: str) -> memoryview:
    """The bytes of an uncompressed member, in the memory of the archive."""
    start = member.header_offset
    if not 0 <= start <= len(file) - _LOCAL_HEADER.size:
        raise _damaged(path, "it lies outside the archive")
    magic, name, extra = _LOCAL_HEADER.unpack_from(file, start)
    first = start + _LOCAL_HEADER.size + name + extra
    if magic != b"PK\x03\x04" or not 0 <= member.file_size <= len(file) - first:
        raise _damaged(path, "it lies outside the archive")
    data = file[first : first + member.file_size]
    if zlib.crc32(data) != member.CRC:
        raise _damaged(path, "its CRC-32 is not the one in the archive", help="copy the file again")
    return data


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: str) -> Bytes:
    block = aligned_bytes(member.file_size)
    filled = 0
    with _damage_named(path), archive.open(member) as source:
        while piece := source.read(min(_PIECE, len(block) - filled + 1)):
            if len(piece) > len(block) - filled:
                raise ValueError("it is longer than it says")
            block[filled : filled + len(piece)] = np.frombuffer(piece, np.uint8)
            filled += len(piece)
    if filled != len(block):
        raise _damaged(path, f"it unpacks to {filled} bytes, not {len(block)}")
    return block


class _MemoryFile(io.RawIOBase):
    """Memory as a readable file, for `zipfile`, without a copy."""

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = (0, self._at, len(self._memory))[whence]
        if base + offset < 0:
            # Files raise the same; zipfile expects it.
            raise OSError(errno.EINVAL, "a position before the beginning")
        self._at = base + offset
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        end = len(self._memory) if size < 0 else self._at + size
        piece = bytes(self._memory[self._at : end])
        self._at += len(piece)
        return piece


@contextmanager
def _damage_named(path: str) -> Generator[None]:
    """Convert the exceptions of `zipfile` and `zlib` for a damaged archive to ArtifactError (D0503)."""
    import zipfile

    try:
        yield
    except (
        *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError),
        *(ValueError, OverflowError, NotImplementedError, RuntimeError),
    ) as error:
        raise _damaged(path, str(error) or type(error).__name__) from None


def _damaged(path: str, message: str, help: str | None = None) -> ArtifactError:
    return ArtifactError(
        f"{path}: {message}", code="D0503", help=help or "the file may be cut short"
    )
