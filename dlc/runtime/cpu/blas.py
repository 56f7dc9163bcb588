"""scipy's BLAS for compiled code: the addresses of its functions, its version, and its number of threads.

NumPy has a BLAS of its own, whose number of threads can be limited in the same way.

The functions are looked up in the libraries that scipy's extension module is linked to, without importing
scipy, which takes 0.3 s. If that fails, they are taken from the table of function pointers that
`scipy.linalg.cython_blas` exports.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.machinery
import importlib.util
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dlc.errors import ArtifactError

NAMES = ("sgemm_", "dgemm_", "sgemv_", "dgemv_")
"""The functions that compiled code may call: Fortran interface, 32-bit integers."""

_PREFIXES = ("scipy_", "")
_GET_THREADS = (
    "openblas_get_num_threads",
    "openblas_get_num_threads64_",
    "MKL_Get_Max_Threads",
)
_SET_THREADS = (
    "openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "MKL_Set_Num_Threads",
)


@dataclass(frozen=True, slots=True)
class Library:
    """A BLAS library. `config` and `core` are reported by OpenBLAS, and empty for other libraries.

    `core` names the processor that its kernels are for; `OPENBLAS_CORETYPE` overrides its choice.
    """

    addresses: Mapping[str, int]
    config: str
    core: str
    get_threads: Callable[[], int] | None
    set_threads: Callable[[int], object] | None


def address(name: str) -> int:
    """The address of a function of `NAMES`. Raises `ArtifactError` (D0614) if there is no BLAS."""
    return library().addresses[name]


@cache
def library() -> Library:
    """scipy's BLAS, loaded on first use. Raises `ArtifactError` (D0614) if scipy is not installed."""
    extension = _extension()
    linked = None if extension is None else _linked(extension)
    if linked is not None:
        return linked
    if extension is None:
        raise ArtifactError(
            "the code calls BLAS and scipy is not installed", code="D0614", help="install scipy"
        )
    return Library(_capsules(), "", "", None, None)


@cache
def numpy_library() -> Library:
    """The BLAS of NumPy's products, with the functions that get and set its number of threads only."""
    extension = importlib.util.find_spec("numpy._core._multiarray_umath")
    if extension is None or extension.origin is None:
        return Library({}, "", "", None, None)
    return _described({}, ctypes.CDLL(extension.origin))


class SingleThreaded:
    """A context in which BLAS uses one thread; when the last thread leaves it, the setting is restored.

    The number of threads of OpenBLAS is global in the process, so other users of the library are affected
    during the call; a number that they set meanwhile is kept. Entering returns False if this BLAS has no
    such setting: the caller then uses a single thread itself, so that threads never multiply.
    """

    def __init__(self, library: Callable[[], Library] = library) -> None:
        self._library = library
        self._lock = threading.Lock()
        self._inside = 0
        self._before = 1
        os.register_at_fork(after_in_child=self._forked)

    def __enter__(self) -> bool:
        blas = self._library()
        if blas.get_threads is None or blas.set_threads is None:
            return False
        with self._lock:
            if self._inside == 0:
                self._before = blas.get_threads()
                if self._before != 1:
                    blas.set_threads(1)
            self._inside += 1
        return True

    def __exit__(self, *_: object) -> None:
        blas = self._library()
        if blas.get_threads is None or blas.set_threads is None:
            return
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._restore(blas.get_threads, blas.set_threads)

    def _restore(self, get: Callable[[], int], set: Callable[[int], object]) -> None:
        if self._before != 1 and get() == 1:
            set(self._before)

    def _forked(self) -> None:
        """Reset the state in a forked child, where threads that were inside no longer exist."""
        self._lock = threading.Lock()
        inside, self._inside = self._inside, 0
        if inside:
            blas = self._library()
            if blas.get_threads is not None and blas.set_threads is not None:
                self._restore(blas.get_threads, blas.set_threads)


single_threaded = SingleThreaded()
"""Wrap every call of a program that uses BLAS: `with single_threaded as limited: ...`."""
numpy_single_threaded = SingleThreaded(numpy_library)
"""Wrap many small products of NumPy: on busy cores its threads wait for each other much longer than one
thread takes for the product."""


def _extension() -> Path | None:
    """The file of `scipy.linalg.cython_blas`."""
    scipy = importlib.util.find_spec("scipy")
    folders = [] if scipy is None else scipy.submodule_search_locations or []
    for folder in folders:
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            path = Path(folder, "linalg", f"cython_blas{suffix}")
            if path.exists():
                return path
    return None


def _linked(extension: Path) -> Library | None:
    """The BLAS that the extension is linked to; None if it does not export the functions."""
    try:
        opened = ctypes.CDLL(str(extension))
    except OSError:
        return None
    addresses = {name: found for name in NAMES if (found := _find(opened, (name,)))}
    if len(addresses) != len(NAMES):
        return None
    return _described(addresses, opened)


def _described(addresses: Mapping[str, int], opened: ctypes.CDLL) -> Library:
    """A library with its description, and the functions for its number of threads."""
    get, set_ = _find(opened, _GET_THREADS), _find(opened, _SET_THREADS)
    return Library(
        addresses,
        config=_text(_find(opened, ("openblas_get_config",))),
        core=_text(_find(opened, ("openblas_get_corename",))),
        get_threads=ctypes.CFUNCTYPE(ctypes.c_int)(get) if get and set_ else None,
        set_threads=ctypes.CFUNCTYPE(None, ctypes.c_int)(set_) if get and set_ else None,
    )


def _find(opened: ctypes.CDLL, names: tuple[str, ...]) -> int:
    """The address of the first of the names that the library exports, or 0."""
    for name in names:
        for prefix in _PREFIXES:
            function = getattr(opened, prefix + name, None)
            if function is not None:
                return ctypes.cast(function, ctypes.c_void_p).value or 0
    return 0


def _text(function: int) -> str:
    if not function:
        return ""
    text: bytes | None = ctypes.CFUNCTYPE(ctypes.c_char_p)(function)()
    return (text or b"").decode()


def _capsules() -> dict[str, int]:
    table: dict[str, object] = importlib.import_module("scipy.linalg.cython_blas").__pyx_capi__
    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return {
        name: pointer_of(capsule, name_of(capsule))
        for name in NAMES
        for capsule in [table[name.removesuffix("_")]]
    }
