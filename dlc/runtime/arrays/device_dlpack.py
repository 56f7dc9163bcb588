"""DLPack for arrays on a device: those of other libraries are taken as they are, ours are given likewise.

NumPy packs: it is shown an array at the device's address, which it never reads, and the structure is told
afterwards which device that is. So the packed array keeps ours alive as any of NumPy's would.
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
"""The dtypes by what DLPack calls them."""


class _OnDevice(Protocol):
    def __dlpack__(self, *, stream: int) -> object: ...


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
    place = int(tensor.data or 0) + int(tensor.offset)
    # The capsule gives the memory back when nobody has it any more.
    return Imported(DeviceArray(driver, place, shape, dtype.numpy, capsule), dtype)


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
    tensor = tensor_in(capsule)
    tensor.device_kind, tensor.device_number = CUDA, array.driver.number
    if dtype is BF16:
        relabel(capsule, UINT16_TYPE, BF16_TYPE)
    return capsule
