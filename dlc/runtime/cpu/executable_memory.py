"""Loading code images: copy the image, check the copy, write its import table, make it executable.

Memory with code is never writable and executable at once (W^X). An image is position-independent, so only
the import table at its start is written (`dlc.runtime.abi`).
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlc.errors import ArtifactError
from dlc.runtime.abi import ABI_VERSION, IMPORTS, is_collective
from dlc.runtime.cpu import blas
from dlc.runtime.system.pages import Pages

_SLOT_BYTES = 8
_process = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True)
class LoadedImage:
    """Executable code at address `base`, for the lifetime of this object."""

    base: int
    pages: Pages


@dataclass(frozen=True, slots=True)
class Engine:
    """The engine, which runs programs: `enter` takes the address of a `dlc_call` and returns its `Status`.

    The call runs without the interpreter lock; the memory that its words point to must outlive it.
    `address` is the address of the same function, for native code.
    """

    enter: Callable[[int], int]
    address: int


_engines: dict[int, Engine] = {}


def load_image(
    code: bytes | memoryview,
    sha256: bytes,
    imports: Sequence[str],
    collective: Callable[[str], int] | None = None,
) -> LoadedImage:
    """Copy an image to private memory and make it executable; the copy must have the digest `sha256`.

    `collective` gives the words that code imports of the ranks of a mesh.

    Raises `ArtifactError`: contents changed (D0606), an import that is not allowed (D0609), no BLAS
    (D0614), a system that forbids executable memory (D0615).
    """
    addresses = [
        collective(name) if collective is not None and is_collective(name) else _function(name)
        for name in imports
    ]
    if len(code) < max(1, _SLOT_BYTES * len(imports)):
        raise ArtifactError(f"a code image of {len(code)} bytes is too short", code="D0606")
    pages = Pages(len(code))
    view = pages.view()
    view[:] = memoryview(code).cast("B")
    if hashlib.sha256(view).digest() != sha256:
        raise ArtifactError("the code has another SHA-256 than promised", code="D0606")
    for slot, function in enumerate(addresses):
        start = _SLOT_BYTES * slot
        view[start : start + _SLOT_BYTES] = function.to_bytes(_SLOT_BYTES, "little")
    try:
        pages.make_executable()
    except PermissionError as error:
        raise ArtifactError(str(error), code="D0615") from error
    return LoadedImage(pages.address, pages)


def load_engine(
    code: bytes | memoryview, sha256: bytes, imports: Sequence[str], entry: int
) -> Engine:
    """The engine of this process: the first one loaded for an ABI version runs all its programs.

    `entry` is the offset of `dlc_enter`. An image that cannot be loaded is refused even if an engine is
    loaded already. Raises `ArtifactError` as `load_image` does.
    """
    image = load_image(code, sha256, imports)
    if not 0 <= entry < len(code):
        raise ArtifactError(f"the engine has no entry at byte {entry}", code="D0606")
    prototype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
    address = image.base + entry
    loaded = Engine(prototype(address), address)
    engine = _engines.setdefault(ABI_VERSION, loaded)
    if engine is loaded:
        image.pages.keep()  # threads of the pool execute it until the process ends
    return engine


def _function(name: str) -> int:
    """The address of a function of the C library or of BLAS. Raises ArtifactError (D0609) for others."""
    if name not in IMPORTS:
        raise ArtifactError(
            f"the code calls {name}, which code in an artifact may not call", code="D0609"
        )
    if name in blas.NAMES:
        return blas.address(name)
    address = ctypes.cast(getattr(_process, name), ctypes.c_void_p).value
    assert address, name
    return address
