"""All that the page of a model shows, as one object for JSON (`dlc.driver.report.page.schema`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dlc.codegen.kernels import Processor, assembly, kernel_texts
from dlc.dialects import func, loop, mem, simt
from dlc.dialects.array.elementwise import show
from dlc.dialects.builtin import Module
from dlc.driver.compile.compile import lower_to
from dlc.driver.compile.decisions import recorded
from dlc.driver.compile.entries import (
    entry_functions,
    find_entry,
    keep_entry,
    settle_interfaces,
)
from dlc.driver.compile.job import CompileJob
from dlc.driver.compile.pipelines import STAGES
from dlc.driver.memory.asked import EntryPlan, compile_for_plan, entry_plans
from dlc.driver.report.graph_drawing import graph_of
from dlc.driver.report.module_paths import Path, components, module_paths
from dlc.driver.report.page.drawing import graph_data
from dlc.driver.report.page.lineage import (
    Lineage,
    Tracked,
    graph_ids,
    kernel_ids,
    steps,
)
from dlc.driver.report.page.memory import memory_data
from dlc.driver.report.page.schema import (
    JsonDecision,
    JsonEntry,
    JsonFile,
    JsonLevel,
    JsonNode,
    JsonPage,
)
from dlc.driver.run.request import CompileRequest
from dlc.driver.source.dim_bounds import narrow_dims
from dlc.driver.source.source_model import SourceModel
from dlc.errors import CallError
from dlc.ir.core import Op
from dlc.ir.location import FileLocation, parts_of
from dlc.ir.types import TensorType
from dlc.runtime.artifact.decisions import DecisionRecord
from dlc.runtime.system.counts import whole_number
from dlc.text.ir.short import list_short

VERSION = 1
"""Of the data."""


def page_data(request: CompileRequest, entry: str | None = None) -> JsonPage:
    """Compile a model and describe it at every level, or one of its entry points.

    Memory is shown at the largest sizes. Raises what compiling does, and UsageError (D0904) for an entry
    point that does not exist.
    """
    model = request.open()
    with model.quoting():
        narrow_dims(model, request.settings.dims)
        settle_interfaces(model.module)
    if entry is not None:
        find_entry(model.module, entry)
        if model.training is None:
            keep_entry(model.module, entry)
    return _Collector(model, request).collect()


@dataclass(slots=True)
class _Collector:
    """What has been collected on the way down."""

    model: SourceModel
    request: CompileRequest
    levels: list[JsonLevel] = field(default_factory=list[JsonLevel])
    nodes: dict[str, JsonNode] = field(default_factory=dict[str, JsonNode])
    entries: dict[str, JsonEntry] = field(default_factory=dict[str, JsonEntry])
    lineage: Lineage = field(default_factory=Lineage)
    paths: dict[Op, Path] = field(default_factory=dict[Op, Path])
    files: _Files = field(init=False)
    placed: dict[int, list[JsonNode]] = field(default_factory=dict[int, list[JsonNode]])
    """The nodes that come mainly from each line of the text."""

    def collect(self) -> JsonPage:
        """Walk down through the levels, and look at each."""
        self.files = _Files.of(self.model)
        self.levels.append({"name": "text", "text": self.files.text, "lines": []})
        ids = self._graph_and_kernels()
        self._plan_and_code(ids)
        decisions = recorded(self.model.context.log).decisions
        for number, decision in enumerate(decisions):
            for node in self.placed.get(self.files.line(decision.place), ()):
                node["decisions"].append(number)
        return {
            "version": VERSION,
            "model": self.model.name,
            "target": self.request.settings.target,
            "files": self.files.table,
            "levels": self.levels,
            "nodes": self.nodes,
            "links": [list(link) for link in sorted(self.lineage.links)],
            "decisions": [self._decision(each) for each in decisions],
            "entries": list(self.entries.values()),
        }

    # Levels ---------------------------------------------------------------------------------------

    def _lower_to(self, stage: str) -> bool:
        """Whether the model comes to a stage, or stands at it: one that was read may stand below."""
        if STAGES.index(self.model.stage) > STAGES.index(stage):
            return False
        lower_to(CompileJob.of(self.model, self.request.settings), stage)
        return True

    def _graph_and_kernels(self) -> dict[Op, str]:
        """Look at the graph and the kernels; gives the ids of the kernels."""
        module, values = self.model.module, self.model.context.values
        tracked, graph = None, dict[Op, str]()
        if self._lower_to("graph"):
            functions = entry_functions(module)
            graph = graph_ids(functions)
            self._draw(functions, graph)
            self._add_level("graph", graph)
            tracked = Tracked.of(values, graph)
        if not self._lower_to("kernel"):
            return {}
        kernels = kernel_ids(entry_functions(module))
        self._add_level("kernel", kernels)
        if tracked is not None:
            self.lineage.from_graph(tracked, graph, kernels)
        return kernels

    def _plan_and_code(self, kernels: Mapping[Op, str]) -> None:
        """Look at the plan, the memory and the code of kernels."""
        model = self.model
        tracked = Tracked.of(model.context.values, kernels)
        numbered: list[str] = []
        if self._lower_to("plan"):
            plan = {op: f"p{number}" for number, op in enumerate(steps(model.module.body))}
            numbered = list(plan.values())
            self._add_level("plan", plan)
            self.lineage.from_kernels(tracked, kernels, plan)
        artifact = compile_for_plan(model, self.request)
        self._lower_to("loop")  # an artifact that was compiled before comes from the cache
        codes = {op.sym_name: f"f{number}" for number, op in enumerate(_codes(model.module))}
        called = [codes.get(_called(op), "") for op in steps(model.module.body)]
        self.lineage.from_plan(numbered, called)
        for id, op in zip(numbered, steps(model.module.body), strict=False):
            if isinstance(op, mem.Call) and op.label:
                self.nodes[id]["name"] = op.label
        self._add_level("loop", {op: codes[op.sym_name] for op in _codes(model.module)})
        self._add_code(codes)
        for planned in entry_plans(artifact):
            self._add_memory(planned)

    def _add_memory(self, planned: EntryPlan) -> None:
        """Note the memory of an entry point; of sizes without an upper bound at the least ones."""
        name = planned.entry.name
        entry = self.entries.setdefault(name, {"name": name})
        lower = {dim.name: dim.lower for dim in planned.entry.dims}
        unbounded = {size: lower[size] for size, usual in planned.usual.items() if usual is None}
        try:
            memory = planned.at(planned.dims(unbounded))
        except CallError as error:
            entry["memory_error"] = error.diagnostics[0].message
        else:
            entry["memory"] = memory_data(memory, self.files.line, self._steps_of(name))

    def _steps_of(self, entry: str) -> list[str]:
        """The ids of the steps of an entry point, in order."""
        found: list[str] = []
        number = 0
        for program in self.model.module.body:
            if isinstance(program, mem.Program):
                count = len(steps([program]))
                if program.sym_name == entry:
                    found = [f"p{number + k}" for k in range(count)]
                number += count
        return found

    def _draw(self, functions: Sequence[func.Func], ids: Mapping[Op, str]) -> None:
        layers = {layer.path: layer.type for layer in self.model.layers}
        types = {components(path): type for path, type in layers.items()}
        for function in functions:
            paths = module_paths(function, layers)
            self.paths |= paths
            graph = graph_of(function, paths, types, lambda op: ids.get(op, ""))
            name = function.sym_name
            self.entries[name] = {"name": name, "graph": graph_data(graph)}

    def _add_level(self, name: str, ids: Mapping[Op, str]) -> None:
        """Note the text of the module as it is, and a node for each of these operations."""
        listing = list_short(self.model.module)
        lines = [0] * (listing.text.count("\n") + 1)
        for op, (first, _) in listing.lines.items():
            at = self.files.lines(parts_of(op.location))
            lines[first - 1] = at[0] if at else 0
        self.levels.append({"name": name, "text": listing.text, "lines": lines})
        for op, id in ids.items():
            self.nodes[id] = self._node(op)
            self.nodes[id]["at"][name] = list(listing.lines[op])

    def _add_code(self, codes: Mapping[str, str]) -> None:
        """Note the LLVM text and the machine code of each kernel."""
        settings = self.request.settings
        texts = kernel_texts(self.model.module)
        on_gpu = {op.sym_name for op in _codes(self.model.module) if isinstance(op, simt.Func)}
        machine = {
            name: assembly([text], self._processor(name in on_gpu), settings.level)
            for name, text in texts.items()
        }
        self._add_texts("llvm", texts, codes)
        self._add_texts("ptx" if on_gpu == machine.keys() else "asm", machine, codes)

    def _processor(self, on_gpu: bool) -> Processor:
        settings = self.request.settings
        return settings.gpu if on_gpu else settings.processor

    def _add_texts(self, level: str, texts: Mapping[str, str], codes: Mapping[str, str]) -> None:
        line, parts = 1, list[str]()
        for name, text in texts.items():
            text = f"{text.rstrip()}\n\n"
            count = text.count("\n")
            self.nodes[codes[name]]["at"][level] = [line, line + count - 2]
            line += count
            parts.append(text)
        self.levels.append({"name": level, "text": "".join(parts), "lines": []})

    # Nodes ----------------------------------------------------------------------------------------

    def _node(self, op: Op) -> JsonNode:
        types = [value.type for value in op.results if isinstance(value.type, TensorType)]
        named = next((value.name for value in op.results if value.name), "")
        symbol = op.sym_name if isinstance(op, loop.Func | simt.Func) else ""
        node: JsonNode = {
            "name": symbol or (f"{op.name} %{named}" if named else op.name),
            "type": ", ".join(show(value) for value in op.results),
            "module": ".".join(self.paths.get(op, ())),
            "at": {},
            "lines": self.files.lines(parts_of(op.location)),
            "decisions": [],
        }
        sizes = [_bytes(type) for type in types]
        if sizes and None not in sizes:
            node["bytes"] = sum(size for size in sizes if size is not None)
        if node["lines"]:
            self.placed.setdefault(node["lines"][0], []).append(node)
        return node

    def _decision(self, record: DecisionRecord) -> JsonDecision:
        return {
            "pass": record.by,
            "kind": record.kind,
            "what": record.what,
            "subject": record.subject,
            "line": self.files.line(record.place),
            "figures": list(record.figures),
            "times": record.times,
        }


@dataclass(slots=True)
class _Files:
    """The files of the model's text, one below the other: each after a line with its name."""

    table: list[JsonFile]
    text: str
    starts: dict[str, int]
    """The line before the first one of each file."""

    @classmethod
    def of(cls, model: SourceModel) -> _Files:
        table: list[JsonFile] = []
        starts: dict[str, int] = {}
        parts: list[str] = []
        line = 1
        for name, text in model.texts.items():
            table.append({"name": name, "line": line})
            starts[name] = line
            parts.append(f"── {name}\n{text.rstrip()}\n\n")
            line += parts[-1].count("\n")
        return cls(table, "".join(parts), starts)

    def lines(self, places: Iterable[FileLocation]) -> list[int]:
        """The lines of places, each once; of one in a text that is not shown, the line of the call."""
        shown = [place if place.file in self.starts else place.own for place in places]
        found = [self.starts[each.file] + each.line for each in shown if each.file in self.starts]
        return list(dict.fromkeys(found))

    def line(self, place: str) -> int:
        """The line of a place `FILE:LINE:COLUMN`, or 0."""
        file, _, rest = place.rpartition(":")[0].rpartition(":")
        start = self.starts.get(file)
        return 0 if start is None else start + (whole_number(rest) or 0)


def _codes(module: Module) -> list[loop.Func | simt.Func]:
    """The code of kernels."""
    return [op for op in module.body if isinstance(op, loop.Func | simt.Func)]


def _called(op: Op) -> str:
    return op.kernel.name if isinstance(op, mem.Call) else ""


def _bytes(type: TensorType) -> int | None:
    """The bytes of a tensor, if its sizes are numbers."""
    count = type.dtype.numpy.itemsize
    for size in type.shape:
        if not isinstance(size, int):
            return None
        count *= size
    return count
