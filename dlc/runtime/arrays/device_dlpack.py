"""DLPack for arrays on a GPU, imported and exported without a copy.

NumPy makes the capsule: it is given an array at the address on the device, which it never reads, and the
device is then written into the structure. So the capsule keeps our array alive like any NumPy array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from dlc.errors import Unsupported
from dlc.runtime.arrays.dlpack import (
    BF16_TYPE,
    CUDA,
    UINT16_TYPE,
    DLTensor,
    Exporter,
    relabel,
    tensor_in,
)
from dlc.runtime.arrays.dtypes import BF16, DTYPES, DType
from dlc.runtime.cuda.array import DeviceArray
from dlc.runtime.cuda.devices import driver_of
from dlc.runtime.cuda.memory import DeviceBytes

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_KINDS = {
    (BF16_TYPE[0] if dtype is BF16 else _CODES[dtype.numpy.kind], dtype.numpy.itemsize * 8): dtype
    for dtype in DTYPES.values()
}
"""The dtypes by DLPack's type code and number of bits."""


class _OnDevice(Protocol):
    def __dlpack__(self, *, stream: int) -> object: ...


class Imported(NamedTuple):
    """An array of another library, and its dtype, since NumPy has no bf16."""

    array: DeviceArray
    dtype: DType


def imported(source: Exporter, stream: int | None = None) -> Imported:
    """An array of another library on a GPU, without a copy.

    Work on the array that was queued before comes before later work on `stream`; without a stream, this
    waits until the device is idle. Raises Unsupported: D0702 for an array that is not dense, D0507 for
    element types that dlc lacks.
    """
    _, number = source.__dlpack_device__()
    driver = driver_of(f"cuda:{int(number)}")
    # In DLPack, stream 1 is CUDA's legacy default stream.
    try:
        capsule = cast(_OnDevice, source).__dlpack__(stream=1 if stream is None else stream)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise Unsupported(f"the array cannot be read: {error}", code="D0702") from None
    if stream is None:
        driver.synchronize_all()
    tensor = tensor_in(capsule)
    dtype = _KINDS.get((tensor.code, tensor.bits))
    if dtype is None or tensor.lanes != 1:
        raise Unsupported(
            f"an array of elements of {tensor.bits} bits (DLPack code {tensor.code}), which dlc does not "
            "have",
            code="D0507",
        )
    shape = tuple(tensor.shape[: tensor.rank])
    _check_dense(tensor, shape)
    address = int(tensor.data or 0) + int(tensor.offset)
    # The capsule is the owner: it releases the memory when the last reference to it goes.
    return Imported(DeviceArray(driver, address, shape, dtype.numpy, capsule), dtype)


def _check_dense(tensor: DLTensor, shape: tuple[int, ...]) -> None:
    if not tensor.strides:
        return
    step = 1
    for size, stride in zip(reversed(shape), reversed(tensor.strides[: tensor.rank]), strict=True):
        if size > 1 and stride != step and 0 not in shape:
            raise Unsupported(
                "an array on a device whose elements do not follow each other in row-major order",
                code="D0702",
                help="make it dense there: x.contiguous() in PyTorch",
            )
        step *= size


class _AtAddress:
    """An array that NumPy takes for one in host memory; it keeps the device array alive."""

    def __init__(self, array: DeviceArray) -> None:
        self.array = array
        self.__array_interface__ = {
            "data": (array.address, False),
            "shape": array.shape,
            "typestr": array.dtype.str,
            "version": 3,
        }


def exported(array: DeviceArray, dtype: DType, max_version: tuple[int, int] | None) -> CapsuleType:
    """The capsule for `__dlpack__`. No work on the array is pending, since calls wait for their results."""
    if isinstance(array.owner, DeviceBytes):
        array.owner.is_lent = True
    shown: NDArray[np.generic] = np.asarray(_AtAddress(array))
    capsule = cast("NDArray[np.number]", shown).__dlpack__(max_version=max_version)
    tensor = tensor_in(capsule)
    tensor.device_kind, tensor.device_number = CUDA, array.driver.number
    if dtype is BF16:
        relabel(capsule, UINT16_TYPE, BF16_TYPE)
    return capsule
