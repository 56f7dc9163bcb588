"""Puts compiled code where it can run: copy, check the copy, fill in outside functions, then protect.

Memory that holds code is never writable and executable at once. An image is position-independent, so
nothing in it changes but the import table at its start (`dlc.runtime.abi`).
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dlc.errors import ArtifactError
from dlc.runtime.abi import ABI_VERSION, IMPORTS
from dlc.runtime.cpu import blas
from dlc.runtime.system.pages import Pages

_SLOT_BYTES = 8
_process = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True)
class LoadedImage:
    """Code that is ready to run from address `base` on, for as long as this object lives."""

    base: int
    pages: Pages


@dataclass(frozen=True, slots=True)
class Engine:
    """Runs programs: `enter` takes the address of a `dlc_call` and returns its `Status`.

    The call runs without the interpreter lock; it must not outlive the memory its words point to.
    `address` is where the same function is for native code.
    """

    enter: Callable[[int], int]
    address: int


_engines: dict[int, Engine] = {}


def load_image(code: bytes | memoryview, sha256: bytes, imports: Sequence[str]) -> LoadedImage:
    """The image, copied to memory of its own. `sha256` is the digest that the copy must have.

    Raises `ArtifactError`: contents changed (D0606), an import that is not allowed (D0609), no BLAS
    (D0614), a system that refuses to execute (D0615).
    """
    addresses = [_outside_function(name) for name in imports]
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
    """The engine of this process: the first one loaded for this ABI version serves all artifacts.

    `entry` is the offset of `dlc_enter`. An image that would not load is refused even where another
    serves in its place. Raises `ArtifactError` as `load_image` does.
    """
    image = load_image(code, sha256, imports)
    if not 0 <= entry < len(code):
        raise ArtifactError(f"the engine has no entry at byte {entry}", code="D0606")
    prototype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
    address = image.base + entry
    ours = Engine(prototype(address), address)
    serving = _engines.setdefault(ABI_VERSION, ours)
    if serving is ours:
        image.pages.keep()  # the pool's threads live in it to the end
    return serving


def _outside_function(name: str) -> int:
    """The address of a function of the C library or of BLAS, if code may call it."""
    if name not in IMPORTS:
        raise ArtifactError(
            f"the code calls {name}, which code in an artifact may not call", code="D0609"
        )
    if name in blas.NAMES:
        return blas.address(name)
    address = ctypes.cast(getattr(_process, name), ctypes.c_void_p).value
    assert address, name
    return address
