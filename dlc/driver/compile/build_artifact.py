"""From a lowered module to an artifact: kernels to an image, programs to tables, facts to a manifest."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from dlc.codegen.program.step_table import CompiledEntry, RootOffset, compile_program
from dlc.dialects import func, mem, weight
from dlc.dialects.builtin import Module
from dlc.dialects.comm import is_gpu
from dlc.dialects.measured import measuring, upper_bounds
from dlc.driver.compile.code_maker import Code, CodeMaker
from dlc.driver.source.weight_sources import Weights
from dlc.ir.attributes import Dense
from dlc.ir.dims import Size
from dlc.ir.types import TensorType
from dlc.lowering.kernel_to_hetero import device_of
from dlc.passes.kernel.prepare import NAME as PREPARE
from dlc.passes.sharding.partition import read_mesh
from dlc.planning.arena import align
from dlc.planning.capacity import check_programs
from dlc.runtime import abi
from dlc.runtime.artifact import decisions, manifest
from dlc.runtime.artifact.arena_values import arena_values_bytes, values_section
from dlc.runtime.artifact.certificate import certificate_bytes
from dlc.runtime.artifact.container import Data
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.decisions import Decisions
from dlc.runtime.artifact.kernel_records import (
    KernelRecords,
    kernel_records_bytes,
    kernels_section,
)
from dlc.runtime.artifact.weight_splits import SECTION as SPLITS
from dlc.runtime.artifact.weight_splits import WeightSplits, rank_table, splits_bytes

EntryPoint: TypeAlias = func.Func | mem.Program
"""An entry point, before or after it has a plan."""

OPSET = 1
"""Version of the set of operations in the graph IR of an artifact."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The texts that an artifact carries, to be read and recompiled, by file name.

    `graph` is the IR that it is made from: the graph, or that of a later level where there was no other.
    """

    model: str
    texts: Mapping[str, str]
    graph: str
    plan: str = ""
    decisions: Decisions | None = None
    flags: tuple[str, ...] = ()
    layers: tuple[manifest.Layer, ...] = ()
    version: str = "0.1.0"
    training: manifest.Training | None = None
    staged: tuple[manifest.Staged, ...] = ()


@dataclass(slots=True)
class _Target:
    """One target in the making."""

    name: str
    programs: dict[str, manifest.Program] = field(default_factory=dict[str, manifest.Program])
    sections: dict[str, Data] = field(default_factory=dict[str, Data])
    prepare: manifest.Prepare | None = None


def build_artifact(
    module: Module,
    interface: tuple[manifest.Entry, ...],
    weights: Weights,
    sources: Sources,
    code: CodeMaker,
) -> Artifact:
    """The artifact of a module at loop level, whose entry points look as `interface` says.

    Raises Unsupported for programs that no machine holds or finishes.
    """
    check_programs(module, sources.texts)
    made = code.make(module)
    mesh, splits = read_mesh(module), _splits(module)
    places, derived = weight_places(module, rank_table(weights.table, mesh, splits))
    target = _compiled_programs(module, made, places, derived)
    sections: dict[str, Data] = {
        **{f"text/{name}": text.encode() for name, text in sources.texts.items()},
        "graph": sources.graph.encode(),
        "plan": sources.plan.encode(),
        decisions.SECTION: _decisions(sources),
        SPLITS: splits_bytes(splits),
        "constants": _constants(module),
        "weights": weights.data,
        **made.sections,
        **target.sections,
    }
    record = manifest.Target(
        made.name, abi.ABI_VERSION, target.programs, made.cpu, made.gpu, target.prepare
    )
    facts = manifest.Manifest(
        manifest.Compiler("dlc", sources.version, sources.flags),
        sources.model,
        OPSET,
        interface,
        (record,),
        weights.table,
        sources.layers,
        sources.training,
        mesh=tuple([manifest.MeshAxis(*axis) for axis in mesh.items()]),
        staged=sources.staged,
    )
    return Artifact.of(facts, {name: data for name, data in sections.items() if len(data)})


def _compiled_programs(
    module: Module, made: Code, places: Mapping[str, RootOffset], derived: DerivedWeights
) -> _Target:
    """The programs of a module as tables, with the records of their kernels."""
    target = _Target(made.name)
    for op in module.body:
        if not isinstance(op, mem.Program):
            continue
        results = list(derived.places.values()) if op.sym_name == PREPARE else ()
        compiled = compile_program(op, made.numbers, places, results)
        record, parts = program_parts(target.name, op.sym_name, compiled)
        target.sections.update(parts)
        records = KernelRecords(made.roof, compiled.kernels)
        target.sections[kernels_section(target.name, op.sym_name)] = kernel_records_bytes(records)
        if op.sym_name == PREPARE:
            target.prepare = manifest.Prepare(record, derived.bytes)
        else:
            target.programs[op.sym_name] = record
    return target


def _splits(module: Module) -> WeightSplits:
    """Of which weights each rank of a mesh reads a part."""
    divided = [op for op in module.body if isinstance(op, weight.Source) and op.whole is not None]
    pairs = {op.sym_name: [text.split() for text in op.splits or ()] for op in divided}
    return {name: {by: int(axis) for by, axis in own} for name, own in pairs.items()}


@dataclass(frozen=True, slots=True)
class DerivedWeights:
    """The offset of each derived weight in the block that `prepare` writes, and the size of that block."""

    places: dict[str, RootOffset]
    bytes: int


def weight_places(
    module: Module, table: Sequence[manifest.Weight]
) -> tuple[dict[str, RootOffset], DerivedWeights]:
    """Where programs read each weight.

    Sources are read where they are stored; derived weights have a block of their own.
    """
    places = {row.name: RootOffset(abi.Root.SOURCES, row.offset) for row in table}
    program = module.symbol(PREPARE)
    derived: dict[str, RootOffset] = {}
    end = 0
    if isinstance(program, mem.Program):
        names = program.attributes["dlc.results"]
        assert isinstance(names, tuple)
        sizes: dict[str, int] = {}
        for name, type in zip(names, program.function_type.results, strict=True):
            assert isinstance(name, str)
            assert isinstance(type, TensorType)
            sizes[name] = align(int(type.size) * type.dtype.bytes)  # pyright: ignore[reportArgumentType]
        starts: dict[str, int] = {}
        for name in sorted(sizes, key=_gpu_last(module)):
            starts[name] = end
            end += sizes[name]
        derived = {name: RootOffset(abi.Root.WEIGHTS, starts[name]) for name in sizes}
    return {**places, **derived}, DerivedWeights(derived, end)


def _gpu_last(module: Module) -> Callable[[str], int]:
    """An order of weights by who reads them: the host, both, a GPU. What a GPU reads is in one piece."""
    host, gpu = set[str](), set[str]()
    for call in [op for op in module.walk() if isinstance(op, mem.Call)]:
        views = [
            view.op.root.op if isinstance(view.op, mem.View) else view.op for view in call.views
        ]
        read = {op.symbol.name for op in views if isinstance(op, mem.Weight)}
        (gpu if is_gpu(device_of(call)) else host).update(read)
    return lambda name: (name in gpu) + (name not in host)


def program_parts(
    target: str, name: str, compiled: CompiledEntry
) -> tuple[manifest.Program, dict[str, Data]]:
    """The record of a program in the manifest, and its sections."""
    section, certificate = f"program/{target}/{name}", f"certificate/{target}/{name}"
    record = manifest.Program(
        section,
        certificate,
        compiled.sizes,
        compiled.arena,
        compiled.scratch,
        compiled.ops,
        compiled.gpu_scratch,
        compiled.checks,
    )
    return record, {
        section: compiled.words,
        certificate: certificate_bytes(compiled.certificate),
        values_section(target, name): arena_values_bytes(compiled.values),
    }


def _decisions(sources: Sources) -> bytes:
    return b"" if sources.decisions is None else decisions.decisions_bytes(sources.decisions)


def _constants(module: Module) -> bytes:
    """The bytes that the plan's constants are views of."""
    blob = bytearray()
    plans = [op for op in module.body if isinstance(op, mem.Program)]
    for op in [op for plan in plans for op in plan.walk()]:
        if isinstance(op, mem.Constant):
            end = op.offset + len(op.value.data)
            blob.extend(bytes(max(0, end - len(blob))))
            blob[op.offset : end] = op.value.data
    return bytes(blob)


def interface_of(entry: EntryPoint) -> manifest.Entry:
    """The interface of an entry point, from its type and attributes.

    `return_counts` has made the function return what it measures.
    """
    types = entry.function_type
    defaults = entry.attributes.get("dlc.defaults", ())
    assert isinstance(defaults, tuple)
    inputs = tuple(
        manifest.Input(
            name,
            _tensor(type).dtype.name,
            tuple(map(str, _tensor(type).shape)),
            _default(defaults[k]) if k < len(defaults) else None,
        )
        for k, (name, type) in enumerate(zip(entry.input_names, types.inputs, strict=True))
    )
    names = _output_names(entry)
    seen = len(names) - entry.hidden_results
    updates = {k: entry.input_names[at] for k, at in entry.updates.items()}
    outputs = tuple(
        manifest.Output(
            name,
            _tensor(type).dtype.name,
            tuple(map(str, _tensor(type).shape)),
            index >= seen,
            updates=updates.get(index, ""),
        )
        for index, (name, type) in enumerate(zip(names, types.results, strict=True))
    )
    doc = entry.attributes.get("dlc.doc", "")
    assert isinstance(doc, str)
    dims = _dims(entry, names)
    return manifest.Entry(entry.sym_name, inputs, outputs, dims, doc, entry.call_needs)


def _result_names(count: int) -> tuple[str, ...]:
    return ("",) if count == 1 else tuple(f"result{k}" for k in range(count))


def _output_names(entry: EntryPoint) -> tuple[str, ...]:
    """The names of all results; those that the caller does not see have names that no user writes."""
    seen = len(entry.function_type.results) - entry.hidden_results
    counts = tuple(f"#{number}" for number in range(entry.hidden_results))
    return (entry.result_names or _result_names(seen)) + counts


def _dims(entry: EntryPoint, outputs: Sequence[str]) -> tuple[manifest.Dim, ...]:
    """The dims of an entry point: those of its inputs, and those that a result tells."""
    limits, told = _counted(entry) if isinstance(entry, func.Func) else _planned(entry)
    given = [
        manifest.Dim(name, low, high)
        for name, (low, high) in entry.bounds.items()
        if name not in limits
    ]
    measured = [
        manifest.Dim(name, measured=manifest.Measured(outputs[told[name]], str(limit)))
        for name, limit in limits.items()
        if name in told
    ]
    return (*given, *measured)


def _counted(function: func.Func) -> tuple[dict[str, Size], dict[str, int]]:
    """The limit of each dim that a function measures, and the number of the result that tells it."""
    found = measuring(function)
    results = function.results_returned
    told = {name: results.index(op.count) for name, op in found.items() if op.count in results}
    return upper_bounds(found), told


def _planned(program: mem.Program) -> tuple[dict[str, Size], dict[str, int]]:
    """The same of a plan, where a count lies in the memory of the result."""
    told: dict[str, int] = {}
    for op in program.body:
        if isinstance(op, mem.MeasuredSize) and isinstance(op.view.op, mem.View):
            root = op.view.op.root.op
            if isinstance(root, mem.Root) and root.kind == "output":
                told[op.dim] = root.number
    return program.limit_of, told


def _tensor(type: object) -> TensorType:
    assert isinstance(type, TensorType)
    return type


def _default(value: object) -> manifest.Default | None:
    if not isinstance(value, Dense):
        return None
    return manifest.Default(value.array.shape, base64.b64encode(value.data).decode())
