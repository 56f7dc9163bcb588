"""Examples in files of named arrays: npz, npy, safetensors, and a folder of npy files."""

from __future__ import annotations

from collections.abc import Iterable

from dlc.runtime.arrays.dtypes import DTYPES
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.manifest import DataSource, Input
from dlc.runtime.data.fields import ArrayField, Field, Table
from dlc.runtime.data.fitting import Fitting, check_dtype, label_of, missing, one_number, refusal
from dlc.runtime.data.place import DataLocation

_NPY = ".npy"


def array_table(place: DataLocation, source: DataSource, fitting: Fitting) -> Table:
    """The arrays of a file; uncompressed ones are mapped."""
    called = {item.name: source.fields.get(item.name, item.name) for item in fitting.wanted}
    name = str(place)
    fields: dict[str, Field] = {}
    labels: dict[str, str] = {}
    for item, tensor in _tensors(place, called, fitting):
        labels[item.name] = label = label_of(item, called[item.name])
        if tensor.ndim == 0:
            raise one_number(name, label, tensor.dtype)
        have, want = DTYPES[tensor.dtype], DTYPES[item.dtype]
        check_dtype(name, label, tensor.bits, have, want)
        fields[item.name] = ArrayField(tensor.bits, have, want)
    return Table(fields, fitting.check(name, fields, labels))


def _tensors(
    place: DataLocation, called: dict[str, str], fitting: Fitting
) -> Iterable[tuple[Input, Tensor]]:
    """The array of each input."""
    if place.is_folder:
        return [(item, _npy(place, called[item.name], item)) for item in fitting.wanted]
    if place.path.lower().endswith(_NPY):
        return _only_array(place, fitting)
    file = place.arrays()
    for item in fitting.wanted:
        if called[item.name] not in file:
            raise missing(str(place), item, called[item.name], file)
    return [(item, file[called[item.name]]) for item in fitting.wanted]


def _npy(folder: DataLocation, field: str, item: Input) -> Tensor:
    names = folder.names()
    if f"{field}{_NPY}" not in names:
        there = [name.removesuffix(_NPY) for name in names if name.endswith(_NPY)]
        raise missing(str(folder), item, field, there)
    return folder.inside(f"{field}{_NPY}").arrays()[field]


def _only_array(place: DataLocation, fitting: Fitting) -> Iterable[tuple[Input, Tensor]]:
    names = [item.name for item in fitting.wanted]
    if len(names) > 1:
        raise refusal(
            str(place),
            "D0541",
            f"it holds one array, where {len(names)} are expected: {', '.join(names)}",
            f"name a folder that has {', '.join(name + _NPY for name in names)}",
        )
    file = place.arrays()
    return [(item, file[name]) for item, name in zip(fitting.wanted, file, strict=True)]
