"""Reading an ONNX file: the only place that knows protobuf. Nothing in the file is trusted.

Counts are compared with the bytes that are really there before anything is made of them, and external
data may only lie in the model's folder (see `dlc.runtime.system.mapped_files`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, cast

from dlc.errors import ArtifactError, ModelError, Unsupported, UsageError
from dlc.importers.onnx.expansion import DOMAINS, expanded
from dlc.importers.onnx.facts import (
    Attribute,
    Graph,
    Input,
    Node,
    Operator,
    Output,
)
from dlc.importers.onnx.modules import modules_of
from dlc.importers.onnx.raw_data import without_raw_data
from dlc.importers.onnx.tensors import Tensors, check_shape, dtype_of
from dlc.runtime.system.mapped_files import map_file

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, ValueInfoProto

MAX_DEPTH = 16
"""Graphs inside of nodes, one in another."""
MAX_BYTES = 1 << 31
"""Protobuf itself goes no further; weights beyond that are external data."""


class _Opset(Protocol):
    domain: str
    version: int


class _Dimension(Protocol):
    dim_value: int
    dim_param: str

    def HasField(self, field_name: Literal["dim_value"]) -> bool: ...


def read_graph(path: str | Path, importable: Collection[Operator] = ()) -> Graph:
    """The graph in a file, its nodes in order of execution.

    Operators that are not among the `importable` ones are written out where ONNX itself says of what others
    they are made.

    Raises UsageError without the `onnx` package, ArtifactError (D0520) for a file that is damaged,
    ModelError (D0521) for a graph that contradicts itself, Unsupported for element types dlc lacks.
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError:
        raise UsageError(
            "reading .onnx files needs the package onnx, which is not installed",
            code="D0921",
            help="pip install 'dlc[onnx]'",
        ) from None
    path = Path(path)
    data = map_file(path)
    if len(data) > MAX_BYTES:
        raise ArtifactError(
            f"{path.name} has {len(data)} bytes, an ONNX file has at most {MAX_BYTES}",
            code="D0520",
            help="save the weights as external data",
        )
    try:
        # Protobuf reads any buffer, whatever its annotations say: no copy of the file is made for it.
        model = onnx.ModelProto.FromString(cast("bytes", without_raw_data(data, path.name)))
    except DecodeError as error:
        raise _damaged(path.name, f"it is not a protobuf message of a model ({error})") from None
    return graph_of(model, path.name, path.parent, importable, {path.name: data})


def graph_of(
    model: ModelProto,
    file: str,
    folder: Path,
    importable: Collection[Operator] = (),
    mapped: Mapping[str, memoryview] | None = None,
) -> Graph:
    """The same from a model in memory; external data is in `mapped` or looked for in `folder`."""
    graph = model.graph
    if not graph.node and not graph.output:
        raise _damaged(file, "it has no graph")
    if not graph.output:
        raise _wrong(file, "it has no outputs")
    if not all(isinstance(text, str) for text in _texts(model)):
        raise _damaged(file, "a name in it is not UTF-8")
    model = expanded(model, importable, file)
    graph = model.graph
    reader = Tensors(file, folder, mapped or {})
    tensors = {tensor.name: reader.tensor(tensor) for tensor in graph.initializer}
    if graph.sparse_initializer:
        raise Unsupported(f"{file} has sparse tensors, which dlc does not import", code="D0710")
    inputs = tuple([_input(file, value) for value in graph.input if value.name not in tensors])
    nodes = _Nodes(file, _opsets(model.opset_import), reader).ordered(graph, {*tensors})
    return Graph(graph.name, file, inputs, _outputs(file, graph), nodes, tensors)


def _outputs(file: str, graph: GraphProto) -> tuple[Output, ...]:
    if not all(value.name for value in graph.output):
        raise _wrong(file, "an output has no name")
    return tuple([_output(file, value) for value in graph.output])


def _output(file: str, value: ValueInfoProto) -> Output:
    """The declaration of an output; only its name if it is not a tensor, since no node makes such."""
    type = value.type.tensor_type
    what = f"{file}: the output {value.name}"
    dtype = dtype_of(what, type.elem_type) if type.elem_type else None
    axes = _axes(what, type.shape.dim) if type.HasField("shape") else None
    return Output(value.name, dtype, axes)


def _texts(model: ModelProto) -> Iterator[str | bytes]:
    """Every text that is used; protobuf gives bytes for one that is not UTF-8."""
    yield from [entry.domain for entry in model.opset_import]
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        yield graph.name
        for value in (*graph.input, *graph.output):
            yield value.name
            yield from [dim.dim_param for dim in value.type.tensor_type.shape.dim]
        for tensor in graph.initializer:
            yield tensor.name
            yield from [text for entry in tensor.external_data for text in (entry.key, entry.value)]
        for node in graph.node:
            yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
            for attribute in node.attribute:
                yield from (attribute.name, attribute.t.name)
                external = attribute.t.external_data
                yield from [text for entry in external for text in (entry.key, entry.value)]
            pending += _inner(node)


def _inner(node: NodeProto) -> list[GraphProto]:
    """The graphs inside a node."""
    return [attribute.g for attribute in node.attribute if attribute.type == attribute.GRAPH]


def _damaged(file: str, why: str) -> ArtifactError:
    return ArtifactError(f"{file}: {why}", code="D0520")


def _wrong(file: str, why: str) -> ModelError:
    return ModelError(f"{file}: {why}", code="D0521")


def _opsets(entries: Iterable[_Opset]) -> dict[str, int]:
    versions: dict[str, int] = {}
    for entry in entries:
        versions["" if entry.domain in DOMAINS else entry.domain] = entry.version
    return versions


def _input(file: str, value: ValueInfoProto) -> Input:
    """The declaration of an input: a tensor, a sequence of them, or what may be one of these or nothing."""
    type = value.type
    what = f"{file}: the input {value.name}"
    is_optional = type.HasField("optional_type")
    if is_optional:
        type = type.optional_type.elem_type
    is_sequence = type.HasField("sequence_type")
    if is_sequence:
        type = type.sequence_type.elem_type
    if not type.HasField("tensor_type"):
        raise Unsupported(f"{what} is not a tensor or a sequence of tensors", code="D0710")
    tensor = type.tensor_type
    dtype = dtype_of(what, tensor.elem_type)
    has_rank = tensor.HasField("shape")
    if not has_rank and not is_sequence:
        raise Unsupported(f"{what} does not say how many axes it has", code="D0710")
    axes = _axes(what, tensor.shape.dim)
    return Input(value.name, dtype, axes, has_rank, is_sequence, is_optional)


def _axes(what: str, dims: Iterable[_Dimension]) -> tuple[int | str | None, ...]:
    """The declared sizes: numbers, names, or None where nothing is said, also by -1 or `?`."""
    axes = tuple([d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in dims])
    axes = tuple([None if axis in (-1, "?") else axis for axis in axes])
    check_shape(what, [axis for axis in axes if isinstance(axis, int)])
    return axes


# Nodes --------------------------------------------------------------------------------------------


_NEW, _OPEN, _DONE = 0, 1, 2
"""The state of a node in a search: not seen, what it reads is being looked at, ordered."""


class _Nodes:
    """Reads the nodes of a file's graphs."""

    def __init__(self, file: str, opsets: dict[str, int], reader: Tensors) -> None:
        self._file = file
        self._opsets = opsets
        self._reader = reader
        self._depth = 0

    def ordered(
        self,
        graph: GraphProto,
        tensors: Collection[str],
        around: Collection[str] = (),
        line: int = 0,
    ) -> tuple[Node, ...]:
        """The nodes that results depend on, each after those whose outputs it reads.

        `around` are the tensors of the graphs around this one, which is in a node of that line.
        """
        outer = frozenset(("", *around, *tensors, *[value.name for value in graph.input]))
        makers = self._makers(graph, outer)
        visible = outer | {*makers}
        order = self._order(graph, makers, outer)
        return tuple(
            [
                self._node(graph.node[k], line or position, visible)
                for position, k in enumerate(order, 1)
            ]
        )

    def _order(
        self, graph: GraphProto, makers: dict[str, int], outer: Collection[str]
    ) -> list[int]:
        """The numbers of the nodes that results depend on: in the file's order where that is right,
        else as a depth-first search leaves them."""
        order: list[int] = []
        edges: list[tuple[int, int]] = []  # a node that makes what another one reads, and that one
        state = bytearray(len(graph.node))  # _NEW
        for value in graph.output:
            pending = [self._maker(makers, outer, value.name, "is an output")]
            while pending:
                number = pending[-1]
                if number < 0 or state[number] == _DONE:
                    pending.pop()
                    continue
                if state[number] == _OPEN:  # what it reads has been ordered
                    state[number] = _DONE
                    order.append(pending.pop())
                    continue
                state[number] = _OPEN
                node = graph.node[number]
                for name in (*node.input, *_captured(node)):
                    maker = self._maker(makers, outer, name, f"is read by {_label(node)}")
                    if maker < 0:
                        continue
                    if state[maker] == _OPEN:
                        raise self._cycle(graph, pending[pending.index(maker) :], state)
                    if state[maker] == _NEW:
                        pending.append(maker)
                    edges.append((maker, number))
        return sorted(order) if all(maker < reader for maker, reader in edges) else order

    def _makers(self, graph: GraphProto, outer: Collection[str]) -> dict[str, int]:
        makers: dict[str, int] = {}
        for number, node in enumerate(graph.node):
            for name in filter(None, node.output):
                if name in makers or name in outer:
                    raise _wrong(self._file, f"two things are called {name}")
                makers[name] = number
        return makers

    def _maker(self, makers: dict[str, int], outer: Collection[str], name: str, user: str) -> int:
        """The number of the node that makes a tensor; -1 for one that no node makes.

        `user` says what it is for.
        """
        maker = makers.get(name)
        if maker is not None:
            return maker
        if name not in outer:
            raise ModelError(
                f"{self._file}: the tensor {name} {user}, and nothing makes it",
                code="D0521",
                help="it is not an input, an initializer or an output of a node: a part was cut off",
            )
        return -1

    def _cycle(self, graph: GraphProto, pending: list[int], state: bytearray) -> ModelError:
        """The error for nodes that wait for each other; those being looked at are the way around."""
        nodes = [graph.node[number] for number in pending if state[number] == _OPEN]
        cycle = " -> ".join([*map(_label, nodes), _label(nodes[0])])
        return ModelError(
            f"{self._file}: {next(filter(None, nodes[0].output))} depends on itself: {cycle}",
            code="D0521",
            help="nodes follow those that they read: one of these reads a later one",
        )

    def _node(self, node: NodeProto, line: int, visible: Collection[str]) -> Node:
        domain = "" if node.domain in DOMAINS else node.domain
        if not domain and not self._opsets.get(""):
            raise _wrong(self._file, "it does not say which version of the ONNX operators it uses")
        attributes: dict[str, Attribute] = {}
        for attribute in node.attribute:
            if attribute.type == attribute.GRAPH:
                attributes[attribute.name] = self._graph(attribute.g, line, visible)
            else:
                attributes[attribute.name] = _attribute(attribute, self._reader)
        return Node(
            node.op_type,
            domain,
            node.name,
            tuple(node.input),
            tuple(node.output),
            attributes,
            self._opsets.get(domain, 0),
            line,
            modules_of(node),
        )

    def _graph(self, graph: GraphProto, line: int, visible: Collection[str]) -> Graph:
        """A graph inside a node."""
        if self._depth == MAX_DEPTH:
            raise _wrong(self._file, f"its graphs are nested more than {MAX_DEPTH} deep")
        self._depth += 1
        tensors = {tensor.name: self._reader.tensor(tensor) for tensor in graph.initializer}
        inputs = tuple([Input(value.name, None, ()) for value in graph.input])
        nodes = self.ordered(graph, {*tensors}, visible, line)
        self._depth -= 1
        return Graph(graph.name, self._file, inputs, _outputs(self._file, graph), nodes, tensors)


def _label(node: NodeProto) -> str:
    """The name of a node in messages: its kind, and its name or its first result."""
    name = node.name or f"that makes {next(filter(None, node.output), '?')}"
    return f"{node.op_type} {name}"


def _captured(node: NodeProto) -> set[str]:
    """The values that the graphs inside a node read from those around them."""
    captured: set[str] = set()
    pending = [(graph, frozenset[str]()) for graph in _inner(node)]
    while pending:
        graph, around = pending.pop()
        results = [name for inner in graph.node for name in inner.output]
        initializers = [tensor.name for tensor in graph.initializer]
        own = around | {*results, *initializers, *[value.name for value in graph.input]}
        read = [name for inner in graph.node for name in inner.input]
        read += [value.name for value in graph.output]
        captured.update(name for name in read if name and name not in own)
        pending += [(deeper, own) for inner in graph.node for deeper in _inner(inner)]
    return captured


def _attribute(attribute: AttributeProto, reader: Tensors) -> Attribute:
    match attribute.type:
        case attribute.FLOAT:
            return float(attribute.f)
        case attribute.INT:
            return int(attribute.i)
        case attribute.STRING:
            return attribute.s.decode("utf-8", "replace")
        case attribute.TENSOR:
            return reader.tensor(attribute.t)
        case attribute.FLOATS:
            return tuple([float(number) for number in attribute.floats])
        case attribute.INTS:
            return tuple([int(number) for number in attribute.ints])
        case attribute.STRINGS:
            return tuple([text.decode("utf-8", "replace") for text in attribute.strings])
        case _:
            return None


__all__ = ["graph_of", "read_graph"]
