"""DLPack import and export for the dtypes of the language, including bf16, which NumPy's DLPack lacks.

NumPy makes and reads the capsules; for bf16 it sees uint16, and the type code in the capsule is changed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from dlc.errors import Unsupported
from dlc.runtime.arrays.dtypes import BF16, DType, dtype_of
from dlc.runtime.system.buffers import ALIGNMENT, address, aligned_array

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

Array = NDArray[np.generic]

CPU = (1, 0)
CUDA = 2
"""DLPack's device type of NVIDIA GPUs."""
_CUDA_DEVICES = (CUDA, 13)
"""NVIDIA GPUs, and their managed memory, which the host can read as well."""
_HOST_DEVICES = (1, 3, 11)
"""Device types whose memory the CPU can read: host memory, and memory pinned by CUDA and ROCm."""

_FOREIGN = (AttributeError, BufferError, LookupError, RuntimeError, TypeError, ValueError)
"""Exceptions of arrays that implement DLPack wrongly, or can be exported only once."""

BF16_TYPE = (4, 16, 1)
UINT16_TYPE = (1, 16, 1)
"""Data types: code, bits and lanes."""

_TENSOR_AT = {b"dltensor": 0, b"dltensor_versioned": 32}
"""Offset of the `DLTensor` in a DLManagedTensor and in a DLManagedTensorVersioned, in bytes."""

_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.restype, _name_of.argtypes = ctypes.c_char_p, (ctypes.py_object,)
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


class Exporter(Protocol):
    """Any array that implements DLPack."""

    def __dlpack__(self) -> object: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...


class DLTensor(ctypes.Structure):
    """`DLTensor` of `dlpack.h`: address, device, element type, shape and strides of an array."""

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


def tensor_in(capsule: object) -> DLTensor:
    """The structure in a capsule, without a copy. Raises LookupError for a capsule of another kind."""
    name: bytes = _name_of(capsule)
    return DLTensor.from_address(_pointer_of(capsule, name) + _TENSOR_AT[name])


def relabel(capsule: object, old: tuple[int, int, int], new: tuple[int, int, int]) -> bool:
    """Change the data type in a capsule from `old` to `new`; False if it was another one."""
    tensor = tensor_in(capsule)
    if (tensor.code, tensor.bits, tensor.lanes) != old:
        return False
    tensor.code, tensor.bits, tensor.lanes = new
    return True


class _Packed:
    """A capsule as an array that `np.from_dlpack` accepts."""

    def __init__(self, capsule: CapsuleType) -> None:
        self._capsule = capsule

    def __dlpack__(self, *, stream: None = None) -> CapsuleType:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU


def is_on_gpu(value: object) -> bool:
    """Whether a value is an array on an NVIDIA GPU."""
    if not hasattr(value, "__dlpack_device__"):
        return False
    return _device_of(cast(Exporter, value)) in _CUDA_DEVICES


def _device_of(source: Exporter) -> int:
    """The device type of an array. Raises Unsupported (D0702) if the array fails to state it."""
    try:
        return int(source.__dlpack_device__()[0])
    except _FOREIGN as error:
        raise _unreadable(error) from None


def _capsule_of(source: Exporter) -> CapsuleType:
    """The capsule of an array, of version 1 where its library has that."""
    export = cast("Callable[..., CapsuleType]", source.__dlpack__)
    try:
        return export(max_version=(1, 0))
    except TypeError:  # an older protocol, without the argument
        return export()


def _unreadable(error: Exception) -> Unsupported:
    return Unsupported(
        f"the array cannot be read: {error}", code="D0702", help="make a NumPy array of it"
    )


def exported(
    stored: Array,
    dtype: DType,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> CapsuleType:
    """The capsule for `__dlpack__`. Memory not aligned to 64 bytes is copied unless `copy` is False.

    Raises BufferError, as the protocol requires, if the export is not possible.
    """
    if address(stored) % ALIGNMENT and copy is not False:
        aligned = aligned_array(stored.shape, stored.dtype, stored.nbytes)
        aligned[...] = stored
        stored, copy = aligned, None
    numbers = cast("NDArray[np.number]", stored)
    capsule = numbers.__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)
    if dtype is BF16:
        relabel(capsule, UINT16_TYPE, BF16_TYPE)
    return capsule


def imported(source: Exporter) -> tuple[Array, DType]:
    """The elements of an array of another library, without a copy, and their dtype; bf16 as uint16 bits.

    They can be written where the library says so, which DLPack knows from version 1 on.

    Raises Unsupported: D0702 for memory that the CPU cannot read, D0507 for unknown element types.
    """
    device = _device_of(source)
    if device not in _HOST_DEVICES:
        raise Unsupported(
            f"an array on another device (DLPack type {device}): move it to the CPU first",
            code="D0702",
        )
    try:
        capsule = _capsule_of(source)
        is_bf16 = relabel(capsule, BF16_TYPE, UINT16_TYPE)
        array: Array = np.from_dlpack(_Packed(capsule))
    except _FOREIGN as error:
        raise _unreadable(error) from None
    dtype = BF16 if is_bf16 else dtype_of(array)
    if dtype is None:
        raise Unsupported(f"an array of {array.dtype}, which dlc does not have", code="D0507")
    return array, dtype
