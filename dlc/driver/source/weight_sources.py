"""Sources of a model's weights: files, initialisers, or arrays of the caller."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.dialects import weight
from dlc.dialects.builtin import Module
from dlc.driver.source.weight_initializers import initial
from dlc.errors import DlcError, ModelError, UsageError
from dlc.errors.options import option
from dlc.ir.core import Evaluation
from dlc.ir.ranks import Ranks
from dlc.ir.types import DType
from dlc.planning.arena import align
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact import manifest
from dlc.runtime.system.available_memory import check_fits
from dlc.runtime.system.buffers import zeros
from dlc.runtime.system.counts import whole_number
from dlc.runtime.weights.files import WeightFile, open_weights, open_weights_inside
from dlc.runtime.weights.keys import Narrowed, by_key, by_path, warn_of_unused

Array: TypeAlias = NDArray[np.generic]
WeightsArgument: TypeAlias = "str | os.PathLike[str] | Mapping[str, Array | Tensor] | None"
"""`init:SEED`, the path of a weight file, `narrow:` before one to round its floats, arrays by name, or None
for what the model says itself."""

INIT = "init:"
NARROW = "narrow:"
GIVEN = "the arrays given"
"""Where arrays are that are passed by name."""


Finder: TypeAlias = Callable[[weight.Source, manifest.Weight], Array]


@dataclass(frozen=True, slots=True)
class Weights:
    """All source weights: the artifact's table, and their bytes, each at a multiple of 64."""

    table: tuple[manifest.Weight, ...]
    data: memoryview
    notes: tuple[str, ...] = ()
    """A note about their origin, for the user."""


def gather(
    module: Module,
    argument: WeightsArgument,
    folder: Path,
    own: Mapping[str, Array] | None = None,
    seed: int = 0,
    names: Collection[str] | None = None,
    leave: dict[str, Array] | None = None,
) -> Weights:
    """The numbers of every source weight, or of those of these `names`.

    Paths in the model are relative to `folder`, `own` are the numbers that the model's file itself has,
    `seed` is for initialisers. What is copied from `leave` is dropped there, so that large weights do not
    lie in memory twice. Raises ModelError for weights that are missing or have another type.
    """
    sources = [
        op
        for op in module.body
        if isinstance(op, weight.Source) and (names is None or op.sym_name in names)
    ]
    notes: list[str] = []
    stored = _own(folder, sources, notes, seed) if own is None else _from_arrays(own)
    opened: list[WeightFile] = []
    find = stored if argument is None else _chosen(argument, opened)
    table: list[manifest.Weight] = []
    end = 0
    for source in sources:
        row = _row(source, end)
        table.append(row)
        end += align(row.bytes)
    check_fits("the block of weights", end)
    block = zeros(end, at_once=leave is None)
    uses = Counter([name for row in table for name in _keys(row)])
    for row, source in zip(table, sources, strict=True):
        array = np.ascontiguousarray((stored if source.constant else find)(source, row))
        block[row.offset : row.offset + row.bytes] = array.reshape(-1).view(np.uint8)
        uses.subtract(_keys(row))
        if leave is not None:
            for name in [name for name in _keys(row) if not uses[name]]:
                leave.pop(name, None)
    unread = {file.path: file.unread for file in opened}
    if isinstance(argument, Mapping):
        unread[GIVEN] = list(argument)
    for where, names in unread.items():
        warn_of_unused(where, names, _names_of(module))
    return Weights(tuple(table), block.data, tuple(notes))


def _names_of(module: Module) -> set[str]:
    """What files may call the weights of a model, those included that no compiled function reads."""
    sources = [op for op in module.body if isinstance(op, weight.Source)]
    return {name for op in sources for name in (op.sym_name, op.key, *op.parts)}


def derive(
    module: Module, stored: Mapping[str, Array], ranks: Ranks | None = None
) -> dict[str, Array]:
    """The stored weights by symbol, and with them those that are derived from them, perhaps by the ranks
    of a mesh together."""
    arrays = dict(stored)
    for op in module.body:
        if isinstance(op, weight.Derived):
            sources = [arrays[symbol.name] for symbol in op.sources]
            (arrays[op.sym_name],) = Evaluation({}, arrays, None, ranks).run(op.body, sources)
    return arrays


def _row(source: weight.Source, offset: int) -> manifest.Weight:
    """The row of the artifact's table for a weight."""
    type = source.whole or source.type
    shape = tuple([size for size in type.shape if isinstance(size, int)])
    return manifest.Weight(
        source.sym_name,
        type.dtype.name,
        shape,
        offset,
        prod(shape) * type.dtype.bytes,
        key="" if source.key == source.sym_name else source.key,
        parts=source.parts,
        stacked=source.stacked,
        transposed=source.transposed,
        portion=source.portion,
        constant=source.constant,
    )


def _chosen(
    argument: str | os.PathLike[str] | Mapping[str, Array | Tensor], opened: list[WeightFile]
) -> Finder:
    """Weights from where the user says; a file is added to those that are `opened`."""
    match argument:
        case str() if argument.startswith(INIT):
            seed = _seed(argument)
            return lambda source, _: _initial(source, seed)
        case Mapping():
            return _from_arrays(argument)
        case str() if argument.startswith(NARROW):
            opened.append(open_weights(argument.removeprefix(NARROW)))
            return _from_file(opened[-1], narrow=True)
        case _:
            opened.append(open_weights(argument))
            return _from_file(opened[-1])


def _seed(text: str) -> int:
    seed = whole_number(text.removeprefix(INIT))
    if seed is None or seed >= 1 << 64:
        raise UsageError(
            f"{text!r} is not a seed for the weights",
            code="D0901",
            help="write init:0 or another number",
        )
    return seed


def _own(folder: Path, sources: Sequence[weight.Source], notes: list[str], seed: int) -> Finder:
    """Weights from the files that the model names; where it names none, from initialisers."""
    files: dict[str, Finder] = {}
    fresh = [source for source in sources if source.file is None and not source.constant]

    def find(source: weight.Source, row: manifest.Weight) -> Array:
        if source.file is None:
            if not notes and not source.constant:
                names = fresh[0].sym_name if len(fresh) == 1 else f"{len(fresh)} weights"
                notes.append(
                    f"{names} initialised with seed {seed}; {option('weights')} chooses others"
                )
            return _initial(source, seed)
        if source.file not in files:
            files[source.file] = _from_file(_opened(folder, source))
        return files[source.file](source, row)

    return find


def lacks_file(module: Module, folder: Path) -> bool:
    """Whether weights begin with a file that is not there, all of which could begin without.

    Raises ModelError for a weight that only the missing file can give.
    """
    without = [
        source
        for source in module.body
        if isinstance(source, weight.Source)
        and source.file is not None
        and not source.constant
        and not (folder / source.file).exists()
    ]
    for source in without:
        if source.init is None:
            _opened(folder, source)
    return bool(without)


def _opened(folder: Path, source: weight.Source) -> WeightFile:
    """The file that the model names for a weight. Raises ModelError with the place and a way out."""
    assert source.file is not None
    try:
        return open_weights_inside(folder, source.file)
    except DlcError as error:
        (first, *_) = error.diagnostics
        way_out = None if source.constant else f"{option('weights', 'FILE')} names another"
        if way_out is not None and source.init is not None:
            way_out += f", {option('weights', 'init:0')} needs none"
        raise ModelError(
            f"{source.sym_name} begins with a file: {first.message}",
            code=first.code,
            place=source.location.place,
            help=way_out or first.help,
        ) from None


def _initial(source: weight.Source, seed: int) -> Array:
    if source.init is None:
        raise ModelError(
            f"{source.sym_name} has no initialiser, so only a file can say how it begins",
            code="D0504",
            place=source.location.place,
            help=f"give the weights with {option('weights', 'FILE')}, "
            "or write = normal(0.02) behind its type",
        )
    type = source.whole or source.type
    return initial(source.sym_name, type, source.init, seed, source.stacked)


def _from_file(file: WeightFile, *, narrow: bool = False) -> Finder:
    def find(source: weight.Source, row: manifest.Weight) -> Array:
        with _placed(source):
            return by_key(row, Narrowed(file, row) if narrow else file, file.path).bits

    return find


def _keys(row: manifest.Weight) -> tuple[str, ...]:
    """What the numbers of a weight may be called."""
    return row.name, row.file_key, *row.parts


def _from_arrays(arrays: Mapping[str, Array] | Mapping[str, Array | Tensor]) -> Finder:
    def find(source: weight.Source, row: manifest.Weight) -> Array:
        names = [name for name in _keys(row) if name in arrays]
        tensors = {name: _tensor(arrays[name], source.type.dtype) for name in names}
        with _placed(source):
            return by_path(row, tensors, GIVEN).bits

    return find


def _tensor(array: Array | Tensor, dtype: DType) -> Tensor:
    """An array as a tensor; one of bf16 may be given as its bits."""
    if isinstance(array, Tensor):
        return array
    known = array.dtype == dtype.numpy
    return Tensor.from_bits(array, dtype.name) if known else Tensor(array)


@contextmanager
def _placed(source: weight.Source) -> Generator[None]:
    """Give an error the place where the weight is declared."""
    try:
        yield
    except ModelError as error:
        place = source.location.place
        raise ModelError([replace(d, place=d.place or place) for d in error.diagnostics]) from None
