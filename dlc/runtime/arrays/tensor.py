"""`dlc.Tensor`: an array of any dtype of the language, including bf16, which NumPy lacks, on any device.

A tensor supports indexing and arithmetic like a NumPy array, and converts from and to NumPy and DLPack
without a copy where possible. Arithmetic on bf16 is done in f32 and rounded once. There is no type
promotion: both operands must have the same dtype, and Python numbers adapt to it. Arithmetic on a tensor
on a GPU is done on the host, with a copy.

>>> x = Tensor([[1.5, 2], [3, 4]], "bf16")
>>> x
dlc.Tensor([[1.5, 2.0], [3.0, 4.0]], bf16[2, 2])
>>> (x[0] * 2 + 1).tolist(), (x @ x).dtype, np.sqrt(x[:, 1]).tolist()
([4.0, 5.0], 'bf16', [1.4140625, 2.0])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Self, SupportsIndex, TypeAlias, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import ArrayLike, DTypeLike, NDArray

from dlc.errors import UsageError
from dlc.errors.boundary import methods_without_frames
from dlc.runtime.arrays import device_dlpack, dlpack
from dlc.runtime.arrays.dtypes import (
    BF16,
    DTYPES,
    DType,
    bf16_bits,
    bf16_values,
    dtype_of,
    numpy_bfloat16,
)
from dlc.runtime.arrays.masked import UNMASK, has_masked
from dlc.runtime.cuda import devices
from dlc.runtime.cuda.array import DeviceArray
from dlc.runtime.system.device_names import CPU, device_named

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

Array = NDArray[np.generic]
_Axis: TypeAlias = (
    "SupportsIndex | slice | EllipsisType | NDArray[np.integer] | NDArray[np.bool_] | None"
)
Index: TypeAlias = "_Axis | tuple[_Axis, ...]"


@methods_without_frames
class Tensor(NDArrayOperatorsMixin):
    """An array of a dtype of the language, on a device. It shares memory with the array it is made from.

    `Tensor(values, dtype)` takes an array, nested lists or another tensor; values of another dtype are
    converted, to bf16 with rounding to nearest. Raises UsageError for values or dtypes that the language
    does not have. NumPy's element-wise functions and operators accept tensors.
    """

    __slots__ = ("_dtype", "_memory")

    _memory: Array | DeviceArray
    """The elements; bf16 as uint16 bits."""
    _dtype: DType

    def __init__(self, values: ArrayLike | Tensor, dtype: str | None = None) -> None:
        self._memory, self._dtype = _stored(values, None if dtype is None else _named(dtype))

    @classmethod
    def from_bits(cls, bits: Array, dtype: str) -> Self:
        """A tensor that shares the memory of an array with the bits of its elements.

        >>> Tensor.from_bits(np.array([0x3F80], np.uint16), "bf16").tolist()
        [1.0]
        """
        kind = _named(dtype)
        if bits.dtype != kind.numpy:
            raise UsageError(f"the bits of {dtype} are stored as {kind.numpy}, not {bits.dtype}")
        tensor = cls.__new__(cls)
        # NumPy returns scalars instead of arrays without axes; a scalar has no memory to share.
        tensor._memory, tensor._dtype = np.asarray(bits), kind
        return tensor

    @classmethod
    def on_device(cls, memory: DeviceArray, dtype: str | DType) -> Self:
        """A tensor that shares an array on a device with the bits of its elements."""
        tensor = cls.__new__(cls)
        tensor._memory = memory
        tensor._dtype = dtype if isinstance(dtype, DType) else _named(dtype)
        return tensor

    @property
    def _stored(self) -> Array:
        """The elements in host memory: a copy if they are on another device."""
        return self._memory.download() if isinstance(self._memory, DeviceArray) else self._memory

    def __reduce__(self) -> tuple[Callable[[Array, str], Tensor], tuple[Array, str]]:
        # A tensor on a device is unpickled on the CPU: another machine may lack the device.
        return Tensor.from_bits, (self._stored, self.dtype)

    @classmethod
    def from_dlpack(cls, source: dlpack.Exporter) -> Self:
        """A tensor that shares the memory of any DLPack array, on the host or on an NVIDIA GPU.

        Raises Unsupported: D0702 for arrays on other devices, D0507 for element types that dlc lacks.
        """
        if dlpack.is_on_gpu(source):
            array, dtype = device_dlpack.imported(source)
            return cls.on_device(array, dtype.name)
        bits, dtype = dlpack.imported(source)
        return cls.from_bits(bits, dtype.name)

    @property
    def dtype(self) -> str:
        """The name of the element type, such as `f32` or `bf16`."""
        return self._dtype.name

    @property
    def kind(self) -> DType:
        """The element type."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._memory.shape

    @property
    def ndim(self) -> int:
        return self._memory.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._memory.size

    @property
    def nbytes(self) -> int:
        return self._memory.nbytes

    @property
    def device(self) -> str:
        """The device of the elements: `cpu`, or `cuda:0` and so on."""
        return self._memory.device if isinstance(self._memory, DeviceArray) else CPU

    @property
    def memory(self) -> Array | DeviceArray:
        """The array with the elements, on the host or on a device."""
        return self._memory

    @property
    def bits(self) -> Array:
        """The elements as a NumPy array, bf16 as uint16 bits; a copy only if they are on a device."""
        return self._stored

    def to(self, device: str) -> Tensor:
        """The tensor on a device, such as `cpu` or `cuda:0`: itself if it is there already, else a copy.

        Raises Unsupported (D0702) if this machine lacks the device.
        """
        name = device_named(device)
        if name == self.device:
            return self
        if name == CPU:
            return Tensor.from_bits(self._stored, self.dtype)
        copy = DeviceArray.copied(devices.driver_of(name), self._stored)
        return Tensor.on_device(copy, self.dtype)

    def astype(self, dtype: str) -> Tensor:
        """A copy converted to a dtype by NumPy's rules, to bf16 with rounding to nearest."""
        return Tensor(self.values().copy(), dtype)

    def numpy(self) -> Array:
        """The elements as a NumPy array that shares their memory; a copy if they are on another device.

        bf16 becomes `ml_dtypes.bfloat16` if that package is installed, else a view of the bits as uint16;
        `values()` returns numbers in either case.
        """
        native = numpy_bfloat16() if self._dtype is BF16 else None
        return self._stored if native is None else self._stored.view(native)

    def values(self) -> Array:
        """The elements as numbers for NumPy: bf16 converted to f32 (a copy), other dtypes as `bits`."""
        return bf16_values(self._stored.view(np.uint16)) if self._dtype is BF16 else self._stored

    def tolist(self) -> object:
        """Nested lists of Python numbers, or one number."""
        return self.values().tolist()

    def item(self) -> int | float | bool:
        """The only element as a Python number; raises ValueError if there is not exactly one."""
        return self.values().item()

    def reshape(self, *shape: int) -> Tensor:
        """The same elements in row-major order in another shape; one size may be -1."""
        if isinstance(self._memory, DeviceArray):
            return Tensor.on_device(self._memory.reshape(shape), self.dtype)
        return Tensor.from_bits(self._memory.reshape(shape), self.dtype)

    @property
    def T(self) -> Tensor:
        """The axes in reverse order, on the same memory."""
        return Tensor.from_bits(self._stored.T, self.dtype)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without axes has no length")
        return self.shape[0]

    def __getitem__(self, index: Index) -> Tensor:
        return Tensor.from_bits(np.asarray(self._stored[index]), self.dtype)

    def __setitem__(self, index: Index, value: ArrayLike | Tensor) -> None:
        elements = self._stored
        elements[index] = _stored(value, self._dtype)[0]
        if isinstance(self._memory, DeviceArray):
            self._memory.upload(elements)

    def __repr__(self) -> str:
        shape = f"[{', '.join(map(str, self.shape))}]" if self.shape else ""
        if self.size <= 64:
            return f"dlc.Tensor({self.tolist()}, {self.dtype}{shape})"
        values = np.array2string(self.values(), separator=", ", threshold=64, prefix="dlc.Tensor(")
        return f"dlc.Tensor({values}, {self.dtype}{shape})"

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        # NumPy would take bits for numbers: without ml_dtypes it gets the values.
        if copy is False and isinstance(self._memory, DeviceArray):
            raise ValueError(f"a tensor on {self.device} becomes an array of NumPy by a copy only")
        hidden = self._dtype is BF16 and numpy_bfloat16() is None
        return np.array(self.values() if hidden else self.numpy(), dtype, copy=copy)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: object, **options: object
    ) -> object:
        """NumPy's functions on tensors: computed on the values; results of bf16 are rounded to bf16."""
        if "out" in options:
            raise UsageError(f"np.{ufunc.__name__} cannot write into a tensor: assign to x[...]")
        values = [_operand(ufunc.__name__, value, self._dtype) for value in inputs]
        with np.errstate(all="ignore"):
            try:
                result: object = getattr(ufunc, method)(*values, **options)
            except (TypeError, ValueError) as error:
                raise _impossible(ufunc.__name__, inputs, error) from None
        if isinstance(result, tuple):
            parts = cast("tuple[Array, ...]", result)
            return tuple(_rounded(np.asarray(part), self._dtype) for part in parts)
        return _rounded(np.asarray(result), self._dtype)

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType:
        # The stream need not wait: every call that computes a tensor waits for it.
        memory, wanted = self._memory, dl_device or self.__dlpack_device__()
        if not isinstance(memory, DeviceArray):
            return dlpack.exported(memory, self._dtype, max_version, dl_device, copy)
        if wanted == self.__dlpack_device__():
            shared = memory.copy() if copy else memory
            return device_dlpack.exported(shared, self._dtype, max_version)
        if wanted != dlpack.CPU or copy is False:
            raise BufferError(f"a tensor on {self.device} cannot be shared with device {wanted}")
        return dlpack.exported(self._stored, self._dtype, max_version, None, None)

    def __dlpack_device__(self) -> tuple[int, int]:
        if isinstance(self._memory, DeviceArray):
            return dlpack.CUDA, self._memory.driver.number
        return dlpack.CPU


def _named(name: str) -> DType:
    found = DTYPES.get(name)
    if found is None:
        raise UsageError(f"there is no dtype {name!r}; there are {', '.join(DTYPES)}")
    return found


def _stored(values: ArrayLike | Tensor, wanted: DType | None) -> tuple[Array, DType]:
    """The elements, bf16 as bits, and their dtype: `wanted`, or by default the dtype of the values."""
    if isinstance(values, Tensor):
        if wanted is None or wanted.name == values.dtype:
            return values.bits, DTYPES[values.dtype]
        array, dtype = values.values(), None
    else:
        array = _as_array(values)
        dtype = dtype_of(array)
        if dtype is BF16:
            array = array.view(np.uint16)
            if wanted not in (None, BF16):
                array, dtype = bf16_values(array), None
    wanted = wanted or dtype
    if wanted is None:
        raise UsageError(f"NumPy's dtype {array.dtype} is not one of {', '.join(DTYPES)}")
    if wanted is dtype:
        return array, wanted
    if array.dtype.kind not in "fiub":
        raise UsageError(f"values of NumPy's dtype {array.dtype} cannot become {wanted}")
    return bf16_bits(array) if wanted is BF16 else array.astype(wanted.numpy), wanted


def _as_array(values: ArrayLike) -> Array:
    if has_masked(values):
        raise UsageError(
            "the values are a masked array, and what is masked has no number",
            help=f"put numbers there: x{UNMASK}",
        )
    try:
        return np.asarray(values)
    except ValueError as error:
        raise UsageError(f"the values are not an array: {str(error).partition('.')[0]}") from None


def _operand(function: str, value: object, dtype: DType) -> object:
    """The operand in the form that NumPy computes with. Raises UsageError for another dtype."""
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, Tensor | np.ndarray | np.generic):
        other = value if isinstance(value, Tensor) else Tensor(cast("Array", value))
        if other.dtype == dtype.name:
            return other.values()
        raise UsageError(
            f"np.{function} of {dtype} and {other.dtype}: nothing is promoted; "
            f"write .astype({dtype.name!r}) on the second"
        )
    raise UsageError(f"np.{function} of a tensor and {type(value).__name__}")


def _impossible(function: str, inputs: Sequence[object], error: Exception) -> UsageError:
    """The error for operands that NumPy refuses, with their types."""
    types = [f"{x.dtype}{list(x.shape)}" if isinstance(x, Tensor) else f"{x}" for x in inputs]
    return UsageError(f"np.{function} of {' and '.join(types)}: {str(error).rstrip('.')}")


def _rounded(result: Array, dtype: DType) -> Tensor:
    """A result as a tensor, rounded to bf16 if the operands are bf16."""
    to_bf16 = dtype is BF16 and result.dtype == np.float32
    return Tensor(result, "bf16" if to_bf16 else None)
