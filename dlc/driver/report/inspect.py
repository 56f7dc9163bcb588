"""The contents of a model file: entry points, layers, weights; of an artifact also sections and imports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import NamedTuple

from dlc.dialects import weight
from dlc.driver.compile.entries import interfaces, settle_interfaces
from dlc.driver.report.interface import entry_data, sizes_data
from dlc.driver.run.request import CompileRequest
from dlc.driver.source.dim_bounds import narrow_dims
from dlc.driver.source.source_model import SourceModel
from dlc.driver.tables import Table
from dlc.ir.types import TensorType
from dlc.runtime.artifact.certificate import device_bytes
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import Compiler, Entry, Layer, Manifest, Target
from dlc.runtime.artifact.size_expressions import BadExpression
from dlc.runtime.artifact.spelling import dims_text
from dlc.runtime.calling.signature import signature_text
from dlc.runtime.loaded_code import load_code
from dlc.runtime.model_repr import bytes_text
from dlc.runtime.system.counts import counted
from dlc.runtime.system.device_names import FIRST_GPU


@dataclass(frozen=True, slots=True)
class WeightRow:
    """One weight. `begins` is an initialiser or a file, empty where the numbers are in the file itself.

    An artifact does not say of each weight whether it is trained.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    bytes: int
    trained: bool | None
    begins: str = ""

    @property
    def type(self) -> str:
        """Its type, as the language writes it."""
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]" if self.shape else self.dtype


class Memory(NamedTuple):
    """The working memory of an entry point on a device, in bytes, at the upper bounds of its sizes."""

    entry: str
    device: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """Facts that only an artifact has: its producer, its targets and its sections."""

    compiler: Compiler
    targets: tuple[Target, ...]
    sections: tuple[tuple[str, int], ...]
    memory: tuple[Memory, ...]

    @property
    def imports(self) -> list[tuple[str, str]]:
        """Each symbol that its code asks for, by target."""
        return [
            (target.name, name)
            for target in self.targets
            if target.cpu is not None
            for name in target.cpu.code.imports
        ]


@dataclass(frozen=True, slots=True)
class Inspection:
    """The facts about a model; `stage` is a level of IR, or `artifact`."""

    model: str
    stage: str
    parameters: int
    entries: tuple[Entry, ...]
    layers: tuple[Layer, ...]
    weights: tuple[WeightRow, ...]
    compiled: Compiled | None = None

    @property
    def text(self) -> str:
        """All of it, for people."""
        size = bytes_text(sum(row.bytes for row in self.weights))
        count = counted(len(self.weights), "weight")
        facts = [f"model: {self.model}", f"parameters: {self.parameters:,} in {count}, {size}"]
        if self.compiled is None:
            facts.insert(1, f"stage: {self.stage}")
        else:
            made = self.compiled.compiler
            facts.insert(1, f"made by: {made.name} {made.version} {' '.join(made.flags)}")
        tables = [
            _entry_table(self.entries),
            _condition_table(self.entries),
            _layer_table(self.layers),
            _weight_table(self.weights),
        ]
        if self.compiled is not None:
            tables += _compiled_tables(self.compiled)
        return "\n\n".join(["\n".join(facts), *[table.text for table in tables if table.rows]])

    def data(self) -> dict[str, object]:
        """All of it, for programs: `docs/json.md` says what each name means."""
        found: dict[str, object] = {
            "model": self.model,
            "stage": self.stage,
            "parameters": self.parameters,
            "entries": [entry_data(entry) for entry in self.entries],
            "layers": [layer._asdict() for layer in self.layers],
            "weights": [{**asdict(row), "shape": sizes_data(row.shape)} for row in self.weights],
        }
        if self.compiled is not None:
            found |= _compiled_data(self.compiled)
        return found


def inspect_file(request: CompileRequest) -> Inspection:
    """The contents of a model of any kind. Nothing in it runs.

    Raises ModelError or ArtifactError where the file is wrong, UsageError for what is asked of its sizes
    and cannot be had.
    """
    if request.is_compiled:
        return _artifact(request.path)
    model = request.open()
    with model.quoting():
        narrow_dims(model, request.settings.dims)
    return _model(model)


def _artifact(path: str) -> Inspection:
    artifact = Artifact.read(path)
    facts: Manifest = artifact.manifest
    sections = [(name, len(data)) for name, data in artifact.sections.items()]
    weights = [
        WeightRow(row.name, row.dtype, row.shape, row.bytes, trained=None) for row in facts.weights
    ]
    memory = tuple(_memory(artifact))
    compiled = Compiled(facts.compiler, facts.targets, tuple(sections), memory)
    return Inspection(
        facts.model,
        "artifact",
        facts.parameters,
        facts.entries,
        facts.layers,
        tuple(weights),
        compiled,
    )


def _memory(artifact: Artifact) -> Iterator[Memory]:
    """The parts of the arena; of sizes that make no sense together there is nothing to tell.

    Raises ArtifactError (D0610) for a plan that is invalid at the bounds of the dims, as loading does.

    A plan for a GPU alone is that of one device, which a certificate calls the host.
    """
    loaded = load_code(artifact, untrusted=True)
    programs, target = loaded.programs, loaded.target
    on_gpu = target.gpu is not None and target.cpu is None
    facts = artifact.manifest
    parts = {part.entry for staged in facts.staged for part in staged.parts}
    shown = parts | {entry.name for entry in facts.called}
    for entry in [entry for entry in facts.entries if entry.name in shown]:
        dims = [dim for dim in entry.dims if not dim.measured]
        program = programs[entry.name]
        try:
            program.evidence({dim.name: dim.lower for dim in dims})
            stated, plan = program.evidence(
                {dim.name: dim.lower if dim.upper is None else dim.upper for dim in dims}
            )
        except BadExpression:
            continue
        for device, size in device_bytes(plan, stated).items():
            yield Memory(entry.name, FIRST_GPU if on_gpu else device, size)


def _model(model: SourceModel) -> Inspection:
    with model.quoting():
        settle_interfaces(model.module)
    sources = [op for op in model.module.body if isinstance(op, weight.Source)]
    return Inspection(
        model.name,
        model.stage,
        sum(_count(op.type) for op in sources if op.trained),
        tuple(interfaces(model.module)),
        model.layers,
        tuple([_source_row(op) for op in sources]),
    )


def _source_row(op: weight.Source) -> WeightRow:
    type = op.type
    shape = tuple([size if isinstance(size, int) else str(size) for size in type.shape])
    size = _count(type) * type.dtype.bytes
    return WeightRow(
        op.sym_name, type.dtype.name, shape, size, op.trained, op.init or op.file or ""
    )


def _count(type: TensorType) -> int:
    return prod(size for size in type.shape if isinstance(size, int))


def _entry_table(entries: Sequence[Entry]) -> Table:
    rows = [
        (signature_text(entry), dims_text(entry.dims), entry.doc.split("\n")[0])
        for entry in entries
    ]
    return Table("entry points", ("entry point", "dims", "what it is"), tuple(rows))


def _condition_table(entries: Sequence[Entry]) -> Table:
    rows = [(entry.name, need.condition, need.place) for entry in entries for need in entry.needs]
    return Table("conditions of a call", ("entry point", "condition", "place"), tuple(rows))


def _layer_table(layers: Sequence[Layer]) -> Table:
    rows = [(layer.path or ".", layer.type, layer.parameters) for layer in layers]
    return Table("layers", ("layer", "module", "parameters"), tuple(rows))


def _weight_table(weights: Sequence[WeightRow]) -> Table:
    rows = [(row.name, row.type, row.bytes, row.begins) for row in weights]
    return Table("weights", ("name", "type", "bytes", "begins with"), tuple(rows))


def _compiled_tables(compiled: Compiled) -> list[Table]:
    targets = [
        (target.name, target.processor, " ".join(target.features), len(target.kernels))
        for target in compiled.targets
    ]
    return [
        Table("targets", ("target", "processor", "features", "kernels"), tuple(targets)),
        Table("memory", ("entry point", "device", "bytes"), compiled.memory),
        Table("sections", ("section", "bytes"), compiled.sections),
        Table("imports", ("target", "symbol"), tuple(compiled.imports)),
    ]


def _compiled_data(compiled: Compiled) -> dict[str, object]:
    return {
        "compiler": compiled.compiler._asdict(),
        "targets": [
            {
                "name": target.name,
                "processor": target.processor,
                "features": list(target.features),
                "kernels": list(target.kernels.values()),
            }
            for target in compiled.targets
        ],
        "memory": [row._asdict() for row in compiled.memory],
        "sections": [{"name": name, "bytes": size} for name, size in compiled.sections],
        "imports": [{"target": target, "symbol": symbol} for target, symbol in compiled.imports],
    }
