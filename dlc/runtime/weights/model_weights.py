"""The weights of a loaded model: as stored, as the caller sees them, and prepared for the kernels."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dlc.errors import DlcError, ModelError, visible
from dlc.errors.suggest import did_you_mean
from dlc.runtime.arrays import dlpack
from dlc.runtime.arrays.dtypes import DTYPES, numpy_bfloat16
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.container import padded
from dlc.runtime.artifact.manifest import Weight
from dlc.runtime.system.available_memory import check_free
from dlc.runtime.system.buffers import Bytes, address, aligned_bytes
from dlc.runtime.weights.files import WeightFile
from dlc.runtime.weights.keys import Narrowed, by_key, by_path, typed

Array = NDArray[np.generic]


class WeightViews(Mapping[str, "Array | Tensor"]):
    """Read-only views of the weights by path; bf16 is a `dlc.Tensor` unless `ml_dtypes` is installed."""

    def __init__(self, table: Sequence[Weight], sources: Bytes) -> None:
        self._table = {weight.name: weight for weight in table}
        self._sources = sources

    def __getitem__(self, name: str) -> Array | Tensor:
        tensor = self.tensor(name)
        return tensor if tensor.dtype == "bf16" and numpy_bfloat16() is None else tensor.numpy()

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def tensor(self, name: str) -> Tensor:
        """The weight as a `dlc.Tensor`; raises KeyError."""
        weight = self._table[name]
        block = self._sources[weight.offset : weight.offset + weight.bytes]
        dtype = DTYPES[weight.dtype]
        return Tensor.from_bits(block.view(dtype.numpy).reshape(weight.shape), weight.dtype)

    def __repr__(self) -> str:
        rows = [
            f"  {weight.name}: {typed(weight.dtype, weight.shape)}"
            for weight in self._table.values()
        ]
        return visible("\n".join([f"{len(rows)} weights", *rows]))


@dataclass(frozen=True, slots=True)
class WeightRoots:
    """The addresses of the roots WEIGHTS and SOURCES. A reference to this object keeps their memory alive.

    Native code holds addresses only, so closing a model must not free weights that a call still reads.
    """

    weights: int
    sources: int
    memory: object


class Preparation(NamedTuple):
    """The preparation of weights: the bytes of the root WEIGHTS, and the function that writes them."""

    bytes: int
    run: Callable[[WeightRoots], None]


class WeightStore:
    """The two blocks that programs read: `sources`, and the prepared weights, computed on first use.

    Without a preparation the kernels read `prepared`, or else the sources.
    """

    def __init__(
        self, sources: Bytes, prepared: Bytes | None, preparation: Preparation | None
    ) -> None:
        self.sources = sources
        self.preparation = preparation
        self._prepared = sources if preparation is None and prepared is None else prepared
        self._lock = threading.Lock()
        self._roots: WeightRoots | None = None
        self.prepare_ms = 0.0
        """Duration of `prepare`; 0 if it has not run, or need not run."""
        self.upload_ms = 0.0
        """Duration of the copy to another device; 0 if there was none."""

    def roots(self) -> WeightRoots:
        """The roots of the weights; the first call prepares them, concurrent calls wait for it."""
        if self._roots is None:
            with self._lock:
                if self._roots is None:
                    self._roots = self._placed()
        return self._roots

    def _placed(self) -> WeightRoots:
        if self._prepared is None:
            assert self.preparation is not None
            check_free("preparing the weights", self.preparation.bytes)
            made = aligned_bytes(self.preparation.bytes)
            self.prepare(self.preparation, self._on_host(made))
            self._prepared = made
        return self._on_host(self._prepared)

    def _on_host(self, prepared: Bytes) -> WeightRoots:
        memory = prepared, self.sources
        return WeightRoots(address(prepared), address(self.sources), memory)

    def prepare(self, preparation: Preparation, roots: WeightRoots) -> None:
        """Run a preparation and record its duration."""
        began = time.perf_counter()
        preparation.run(roots)
        self.prepare_ms = (time.perf_counter() - began) * 1e3


def lay_out(tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> tuple[Weight, ...]:
    """The weights table for dtypes and shapes by name, in this order, each at a multiple of 64 bytes."""
    end = 0
    table: list[Weight] = []
    for name, (dtype, shape) in tensors.items():
        length = int(np.prod(shape, dtype=object)) * DTYPES[dtype].bytes
        table.append(Weight(name, dtype, shape, padded(end), length))
        end = table[-1].offset + length
    return tuple(table)


def fill(table: Sequence[Weight], tensor_of: Callable[[Weight], Tensor]) -> Bytes:
    """The section `weights`: each array at its offset, zeros between arrays; read-only."""
    block = aligned_bytes(padded(table[-1].offset + table[-1].bytes) if table else 0)
    for weight in table:
        end = weight.offset + weight.bytes
        target = block[weight.offset : end].view(DTYPES[weight.dtype].numpy)
        target.reshape(weight.shape)[...] = tensor_of(weight).bits
        block[end : padded(end)] = 0
    block.flags.writeable = False
    return block


def from_mapping(
    values: Mapping[str, object], table: Sequence[Weight]
) -> Callable[[Weight], Tensor]:
    """A function that looks weights up in a mapping of arrays by name, which must hold exactly the weights.

    Raises ModelError: D0504 for a missing or unknown name, D0505 for another dtype or shape.
    """
    names = names_in_files(table)
    for name in values:
        if name not in names:
            way_out = did_you_mean(str(name), names, most=3)
            if way_out is None:
                way_out = "leave it out; `dlc inspect MODEL` lists those that it has"
            raise ModelError(f"the model has no weight {name}", code="D0504", help=way_out)
    given = {name: _tensor(name, value) for name, value in values.items()}
    return lambda weight: by_path(weight, given, "the given weights")


def names_in_files(table: Sequence[Weight]) -> set[str]:
    """What files may call the weights of a table."""
    return {name for weight in table for name in (weight.name, weight.file_key, *weight.parts)}


def _tensor(name: str, value: object) -> Tensor:
    """A tensor from a tensor, an array of any library, or numbers.

    Raises ModelError (D0505) for any other value, and for dtypes that dlc lacks.
    """
    if isinstance(value, Tensor):
        return value
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray | np.generic):
        return Tensor.from_dlpack(cast("dlpack.Exporter", value))
    try:
        return Tensor(cast("ArrayLike", value))
    except (DlcError, TypeError, ValueError) as error:
        why = error.diagnostics[0].message if isinstance(error, DlcError) else str(error)
        raise ModelError(
            f"the given weights: {name} is not an array that dlc has: {why}",
            code="D0505",
            help="pass a NumPy array of the weight's type, which model.weights shows",
        ) from None


def from_file(file: WeightFile, *, narrow: bool = False) -> Callable[[Weight], Tensor]:
    """A function that looks weights up in a file, by name or path; the file may hold other arrays, too.

    With `narrow` floats are rounded to the dtypes of the weights. Raises ModelError: D0504 for a missing
    name, D0505 for another dtype or shape.
    """
    return lambda weight: by_key(weight, Narrowed(file, weight) if narrow else file, file.path)
