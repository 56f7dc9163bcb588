"""Where the numbers of a model's weights come from: files, initialisers, or arrays given by the caller."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.dialects import weight
from dlc.dialects.builtin import Module
from dlc.driver.initial import initial
from dlc.errors import ModelError, UsageError
from dlc.ir.types import TensorType
from dlc.passes.place import align
from dlc.runtime import manifest
from dlc.runtime.tensor import Tensor
from dlc.runtime.weight_files import WeightFile, missing_weight, open_weights, open_weights_inside

Array: TypeAlias = NDArray[np.generic]
Given: TypeAlias = "str | os.PathLike[str] | Mapping[str, Array] | None"
"""`init:SEED`, the path of a weight file, arrays by name, or None for what the model says itself."""

INIT = "init:"


@dataclass(frozen=True, slots=True)
class Weights:
    """All source weights: the artifact's table, and their bytes, each at a multiple of 64."""

    table: tuple[manifest.Weight, ...]
    data: memoryview
    notes: tuple[str, ...] = ()
    """What the user should know about where they come from."""


def gather(module: Module, given: Given, folder: Path) -> Weights:
    """The numbers of every source weight. Paths in the model are relative to `folder`.

    Raises ModelError for weights that are missing or have another type.
    """
    sources = [op for op in module.body if isinstance(op, weight.Source)]
    notes: list[str] = []
    find = _finder(given, folder, sources, notes)
    table: list[manifest.Weight] = []
    end = 0
    for source in sources:
        count = int(source.type.size) * source.type.dtype.bytes  # pyright: ignore[reportArgumentType]
        key = "" if source.key == source.sym_name else source.key
        shape = tuple([size for size in source.type.shape if isinstance(size, int)])
        table.append(
            manifest.Weight(source.sym_name, source.type.dtype.name, shape, end, count, key=key)
        )
        end += align(count)
    block = np.zeros(end, np.uint8)
    for row, source in zip(table, sources, strict=True):
        array = np.ascontiguousarray(find(source))
        block[row.offset : row.offset + row.bytes] = array.reshape(-1).view(np.uint8)
    return Weights(tuple(table), block.data, tuple(notes))


def _finder(
    given: Given, folder: Path, sources: list[weight.Source], notes: list[str]
) -> Callable[[weight.Source], Array]:
    match given:
        case None:
            return _own(folder, sources, notes)
        case str() if given.startswith(INIT):
            seed = _seed(given)
            return lambda source: _initial(source, seed)
        case Mapping():
            return lambda source: _checked(source, given.get(source.sym_name), "the arrays given")
        case _:
            file = open_weights(given)
            return lambda source: _from_file(source, file)


def _seed(text: str) -> int:
    digits = text.removeprefix(INIT)
    if not digits.isdecimal() or int(digits) >= 1 << 64:
        raise UsageError(
            f"{text!r} is no seed for the weights",
            code="D0901",
            help="write init:0 or another number",
        )
    return int(digits)


def _own(
    folder: Path, sources: list[weight.Source], notes: list[str]
) -> Callable[[weight.Source], Array]:
    """Weights from the files that the model names; where it names none, from initialisers."""
    files: dict[str, WeightFile] = {}
    fresh = [source for source in sources if source.file is None]
    if fresh:
        names = fresh[0].sym_name if len(fresh) == 1 else f"{len(fresh)} weights"
        notes.append(f"{names} initialised with seed 0; --weights chooses others")

    def find(source: weight.Source) -> Array:
        if source.file is None:
            return _initial(source, 0)
        if source.file not in files:
            files[source.file] = open_weights_inside(folder, source.file)
        return _from_file(source, files[source.file])

    return find


def _initial(source: weight.Source, seed: int) -> Array:
    if source.init is None:
        raise missing_weight("the model", source.sym_name, ())
    return initial(source.sym_name, source.type, source.init, seed, source.stacked)


def _from_file(source: weight.Source, file: WeightFile) -> Array:
    return _checked(source, file[source.key], file.path)


def _checked(source: weight.Source, array: Array | Tensor | None, where: str) -> Array:
    """The array if it has the declared type."""
    type = source.type
    if array is None:
        raise missing_weight(where, source.sym_name, ())
    found = array.dtype if isinstance(array, Tensor) else _dtype_name(array, type)
    if (found, tuple(array.shape)) != (type.dtype.name, type.shape):
        shape = ", ".join(map(str, array.shape))
        raise ModelError(
            f"{source.sym_name} is declared {type.text}, but {where} has {found}[{shape}]",
            code="D0505",
            place=source.location.place,
            help="use weights made for this model, or declare what the file has",
        )
    return array.bits if isinstance(array, Tensor) else array


def _dtype_name(array: Array, type: TensorType) -> str:
    return type.dtype.name if array.dtype == type.dtype.numpy else array.dtype.name
