"""DLPack for arrays on a device: those of other libraries are taken as they are, ours are given likewise.

NumPy packs: it is shown an array at the device's address, which it never reads, and the structure is told
afterwards which device that is. So the packed array keeps ours alive as any of NumPy's would.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from dlc.errors import Unsupported
from dlc.runtime.cuda.array import DeviceArray
from dlc.runtime.cuda.devices import driver_of
from dlc.runtime.cuda.memory import DeviceBytes
from dlc.runtime.dlpack import CUDA, Exporter
from dlc.runtime.dtypes import BF16, DTYPES, DType

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_BF16_CODE = 4
_KINDS = {
    (_BF16_CODE if dtype is BF16 else _CODES[dtype.numpy.kind], dtype.numpy.itemsize * 8): dtype
    for dtype in DTYPES.values()
}
"""The dtypes by what DLPack calls them."""
_STRUCTURE_AT = {b"dltensor": 0, b"dltensor_versioned": 32}

_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.restype, _name_of.argtypes = ctypes.c_char_p, (ctypes.py_object,)
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


class _OnDevice(Protocol):
    def __dlpack__(self, *, stream: int) -> object: ...


class _Structure(ctypes.Structure):
    """`DLTensor`."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("device_kind", ctypes.c_int32),
        ("device_number", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )


class Imported(NamedTuple):
    """An array of another library, and its dtype: NumPy knows no bf16."""

    array: DeviceArray
    dtype: DType


def imported(source: Exporter, stream: int | None = None) -> Imported:
    """An array on a GPU, on its own memory, with all that was done to it done for `stream`.

    Without a stream the library that it is from has finished. Raises Unsupported: D0702 for one that is
    not dense, D0507 for elements that dlc does not have.
    """
    _, number = source.__dlpack_device__()
    driver = driver_of(f"cuda:{int(number)}")
    # The first of CUDA's own numbers, the default stream, is what a library without others would use.
    try:
        capsule = cast(_OnDevice, source).__dlpack__(stream=1 if stream is None else stream)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise Unsupported(f"the array cannot be read: {error}", code="D0702") from None
    if stream is None:
        driver.wait_all()
    found = _structure(capsule)
    dtype = _KINDS.get((found.code, found.bits))
    if dtype is None or found.lanes != 1:
        raise Unsupported(
            f"an array of elements of {found.bits} bits (DLPack code {found.code}), which dlc does not "
            "have",
            code="D0507",
        )
    shape = tuple(found.shape[: found.rank])
    _check_dense(found, shape)
    place = int(found.data or 0) + int(found.offset)
    # The capsule gives the memory back when nobody has it any more.
    return Imported(DeviceArray(driver, place, shape, dtype.numpy, capsule), dtype)


def _structure(capsule: object) -> _Structure:
    name: bytes = _name_of(capsule)
    return _Structure.from_address(_pointer_of(capsule, name) + _STRUCTURE_AT[name])


def _check_dense(found: _Structure, shape: tuple[int, ...]) -> None:
    if not found.strides:
        return
    step = 1
    for size, stride in zip(reversed(shape), reversed(found.strides[: found.rank]), strict=True):
        if size > 1 and stride != step and 0 not in shape:
            raise Unsupported(
                "an array on a device whose elements do not follow each other in row-major order",
                code="D0702",
                help="make it dense there: x.contiguous() in PyTorch",
            )
        step *= size


class _AtAddress:
    """What NumPy takes for an array of the host; it keeps the real one alive."""

    def __init__(self, array: DeviceArray) -> None:
        self.array = array
        self.__array_interface__ = {
            "data": (array.address, False),
            "shape": array.shape,
            "typestr": array.dtype.str,
            "version": 3,
        }


def exported(array: DeviceArray, dtype: DType, max_version: tuple[int, int] | None) -> CapsuleType:
    """The capsule for `__dlpack__`. All work on the array is done: calls wait for their results."""
    if isinstance(array.owner, DeviceBytes):
        array.owner.is_lent = True
    shown: NDArray[np.generic] = np.asarray(_AtAddress(array))
    capsule = cast("NDArray[np.number]", shown).__dlpack__(max_version=max_version)
    found = _structure(capsule)
    found.device_kind, found.device_number = CUDA, array.driver.number
    if dtype is BF16:
        found.code = _BF16_CODE
    return capsule
