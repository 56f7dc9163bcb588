"""What is in a model file: entry points, layers, weights; of an artifact also sections and imports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from dlc.dialects import weight
from dlc.driver.build import interface_of
from dlc.driver.entries import entry_functions
from dlc.driver.open import open_model
from dlc.ir.types import TensorType
from dlc.runtime.artifact import Artifact
from dlc.runtime.manifest import Entry, Layer
from dlc.runtime.model_report import bytes_text
from dlc.runtime.signature import signature_text
from dlc.runtime.spelling import counted, dims_text


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a title; the last columns are numbers where `numbers` says so."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str | int, ...], ...]

    @property
    def text(self) -> str:
        """The table in columns."""
        cells = [self.head, *[tuple(_shown(cell) for cell in row) for row in self.rows]]
        widths = [max(len(row[k]) for row in cells) for k in range(len(self.head))]
        numeric = [bool(self.rows) and isinstance(cell, int) for cell in (self.rows or [()])[0]]
        lines = [
            "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(row, widths, numeric or widths, strict=True)
            ).rstrip()
            for row in cells
        ]
        return "\n".join([self.title, *[f"  {line}" for line in lines]])

    def data(self) -> list[dict[str, str | int]]:
        """The rows with the names of their columns."""
        return [dict(zip(self.head, row, strict=True)) for row in self.rows]


def _shown(cell: str | int) -> str:
    return f"{cell:,}" if isinstance(cell, int) else cell


@dataclass(frozen=True, slots=True)
class Inspection:
    """Facts by name, then tables."""

    facts: dict[str, str]
    tables: tuple[Table, ...]

    @property
    def text(self) -> str:
        """All of it, for people."""
        facts = [f"{name}: {value}" for name, value in self.facts.items()]
        tables = [table.text for table in self.tables if table.rows]
        return "\n\n".join(["\n".join(facts), *tables])

    def data(self) -> dict[str, object]:
        """All of it, for programs."""
        return {**self.facts, **{table.title: table.data() for table in self.tables}}


def inspect_file(path: str) -> Inspection:
    """What is in a model, whatever its kind. Nothing in it runs.

    Raises ModelError or ArtifactError where the file is wrong.
    """
    return _artifact(path) if Path(path).suffix == ".dlc" else _model(path)


def _artifact(path: str) -> Inspection:
    artifact = Artifact.read(path)
    facts = artifact.manifest
    size = sum(row.bytes for row in facts.weights)
    weights = [(row.name, f"{row.dtype}{list(row.shape)}", row.bytes) for row in facts.weights]
    sections = [(name, len(data)) for name, data in artifact.sections.items()]
    imports = [(target.name, name) for target in facts.targets for name in target.code.imports]
    targets = [
        (target.name, target.cpu, " ".join(target.features), len(target.code.symbols))
        for target in facts.targets
    ]
    return Inspection(
        {
            "model": facts.model,
            "made by": f"{facts.compiler.name} {facts.compiler.version} "
            + " ".join(facts.compiler.flags),
            "parameters": f"{facts.parameters:,} in {counted(len(facts.weights), 'weight')}, "
            + bytes_text(size),
        },
        (
            _entries(facts.entries),
            _layers(facts.layers),
            Table("weights", ("name", "type", "bytes"), tuple(weights)),
            Table("targets", ("target", "processor", "features", "kernels"), tuple(targets)),
            Table("sections", ("section", "bytes"), tuple(sections)),
            Table("imports", ("target", "symbol"), tuple(imports)),
        ),
    )


def _model(path: str) -> Inspection:
    opened = open_model(Path(path))
    sources = [op for op in opened.module.body if isinstance(op, weight.Source)]
    entries = [interface_of(op) for op in entry_functions(opened.module)]
    rows = [(op.sym_name, op.type.text, op.init or op.file or "") for op in sources]
    parameters = sum(_count(op.type) for op in sources if op.trained)
    return Inspection(
        {
            "model": opened.name,
            "stage": opened.stage,
            "parameters": f"{parameters:,} in {counted(len(sources), 'weight')}",
        },
        (
            _entries(entries),
            _layers(opened.layers),
            Table("weights", ("name", "type", "from"), tuple(rows)),
        ),
    )


def _count(type: TensorType) -> int:
    return prod(size for size in type.shape if isinstance(size, int))


def _entries(entries: Sequence[Entry]) -> Table:
    rows = [
        (signature_text(entry), dims_text(entry.dims), entry.doc.split("\n")[0])
        for entry in entries
    ]
    return Table("entry points", ("entry point", "dims", "what it is"), tuple(rows))


def _layers(layers: Sequence[Layer]) -> Table:
    rows = [(layer.path or ".", layer.type, layer.parameters) for layer in layers]
    return Table("layers", ("layer", "module", "parameters"), tuple(rows))
