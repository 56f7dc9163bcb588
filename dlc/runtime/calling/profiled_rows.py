"""The rows of a profile besides their times: names, places, amounts and floors, from the artifact."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.runtime.artifact import size_expressions
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.kernel_records import (
    GpuRoof,
    KernelRecord,
    KernelRecords,
    gpu_roof_section,
    kernels_section,
    read_gpu_roof,
    read_kernel_records,
)
from dlc.runtime.artifact.manifest import Op
from dlc.runtime.profiling.rows import Row, floor_of, gpu_floor_of

Times: TypeAlias = NDArray[np.float64]

_SIZE = re.compile(r"\([^()]*\)|\w+(?:\*\w+)*")
"""What may be a size in the description of a kernel: a sum in brackets, or a product."""


class Subject(NamedTuple):
    """What the profile is of."""

    artifact: Artifact
    target: str
    entry: str
    program: str
    """The name of what is run for it: of ranks, each runs a program of its own."""
    threads: int
    dims: Mapping[str, int]
    ops: Sequence[Op]
    predicted_ns: Mapping[int, int]
    """By op id, for one run on one thread."""
    texts: Mapping[str, str]

    @property
    def heading(self) -> tuple[str, str, str, Mapping[str, int], int]:
        """The first fields of its `Profile`: model, entry point, device, named sizes, threads."""
        model = self.artifact.manifest.model
        return model, self.entry, self.target, dict(self.dims), self.threads


def rows_of(subject: Subject, runs: Mapping[int, int], wall: Times, busy: Times) -> dict[int, Row]:
    """The rows of the ops that run, by op id: from milliseconds of the call, and of all threads."""
    found = records_of(subject.artifact, subject.target, subject.program)
    records = found.kernels or (KernelRecord(),) * len(subject.ops)
    gpu = _gpu_roof(subject.artifact, subject.target)
    on_gpu = _kernels_on_gpu(subject.artifact, subject.target)
    rows: dict[int, Row] = {}
    for op, count in sorted(runs.items()):
        record, own = records[op], subject.ops[op]
        place = record.places[0] if record.places else own.place
        what = sized(record.what, subject.dims) or own.kernel or own.name
        operations, moved = (
            _amount(text, subject.dims) for text in (record.operations, record.bytes)
        )
        rows[op] = Row(
            record._replace(what=what).title,
            record.path,
            what,
            own.kernel,
            place,
            _line(place, subject.texts),
            count,
            float(wall[op]),
            float(busy[op]),
            count * operations,
            count * moved,
            count * subject.predicted_ns.get(op, 0) / 1e6,
            (
                floor_of(found.roof, operations, moved, count, subject.threads)
                if gpu is None or own.kernel not in on_gpu
                else gpu_floor_of(gpu, own.kernel, operations, moved, count)
            ),
        )
    return rows


def records_of(artifact: Artifact, target: str, entry: str) -> KernelRecords:
    """What the artifact says of the ops of an entry point; nothing in one of an older compiler."""
    name = kernels_section(target, entry)
    if name not in artifact.sections:
        return KernelRecords()
    try:
        return read_kernel_records(bytes(artifact.section(name)))
    except ValueError as error:
        raise artifact.error_context.error("D0610", str(error), section=name) from None


def _gpu_roof(artifact: Artifact, target: str) -> GpuRoof | None:
    """The roof of the GPU of a target; None without one, and in an artifact of an older compiler."""
    name = gpu_roof_section(target.rpartition("+")[2])
    if name not in artifact.sections:
        return None
    try:
        return read_gpu_roof(bytes(artifact.section(name)))
    except ValueError as error:
        raise artifact.error_context.error("D0610", str(error), section=name) from None


def _kernels_on_gpu(artifact: Artifact, target: str) -> frozenset[str]:
    """The names of the kernels that run on a GPU."""
    return frozenset(
        kernel.name
        for each in artifact.manifest.targets
        if each.name == target and each.gpu is not None
        for kernel in each.gpu.kernels
    )


def sized(what: str, dims: Mapping[str, int]) -> str:
    """What a kernel computes, with numbers for the named sizes.

    >>> sized("matmul B*T×512×(K + 1) + silu", {"B": 2, "T": 3, "K": 7})
    'matmul 6×512×8 + silu'
    """

    def value(found: re.Match[str]) -> str:
        try:
            return str(size_expressions.evaluate(found[0], dims, ()))
        except size_expressions.BadExpression:
            return found[0]

    return _SIZE.sub(value, what)


def _amount(text: str, dims: Mapping[str, int]) -> int:
    """A size at these dims; 0 where it depends on one that only the call measures."""
    try:
        return max(0, size_expressions.evaluate(text, dims, ()))
    except size_expressions.BadExpression:
        return 0


def _line(place: str, texts: Mapping[str, str]) -> str:
    """The line of the text that a place is in."""
    if place.count(":") < 2:
        return ""
    file, number, _ = place.rsplit(":", 2)
    lines = texts.get(file, "").splitlines()
    return lines[int(number) - 1].strip() if number.isdigit() and int(number) <= len(lines) else ""
