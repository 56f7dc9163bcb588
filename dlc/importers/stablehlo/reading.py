"""StableHLO modules as facts. With `attributes`, the only place that knows the bindings of MLIR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlc.errors import Unsupported
from dlc.importers.stablehlo.attributes import declared, plain
from dlc.importers.stablehlo.facts import Attribute, Function, Node, Program, Region

if TYPE_CHECKING:
    from jaxlib.mlir import ir

DIM = "jax.global_constant"
"""The attribute by which JAX says that an argument is the value of a dim."""
RESULT = "jax.result_info"
"""The attribute by which JAX says which part of what a function returns a result is."""
CUSTOM_CALL = "stablehlo.custom_call"


def read_module(module: ir.Module, file: str) -> Program:
    """The facts of a module. Raises Unsupported (D0710) for one without a function `main`."""
    reader = _Reader()
    functions: dict[str, Function] = {}
    for op in module.body.operations:
        if op.operation.name == "func.func":
            function = reader.function(op.operation)
            functions[function.name] = function
    if "main" not in functions:
        raise Unsupported(
            f"{file} has no function main, which is the one that is called", code="D0710"
        )
    return Program(file, functions, "main", tuple(reader.nodes))


def kinds_of(module: ir.Module) -> set[str]:
    """The names of all operations of a module."""
    found: set[str] = set()
    left = list(module.body.operations)
    while left:
        op = left.pop().operation
        found.add(op.name)
        for region in op.regions:
            for block in region.blocks:
                left += block.operations
    return found


class _Reader:
    """Reads functions one after the other; `nodes` are all of their operations in the order of lines."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._names: dict[ir.Value, str] = {}
        self._line = 0

    def function(self, op: ir.Operation) -> Function:
        """A function, whose values are numbered from 0."""
        self._names = {}
        (block,) = op.regions[0].blocks
        body = self._block(block)
        given, made = _dictionaries(op, "arg_attrs"), _dictionaries(op, "res_attrs")
        count = len(body.arguments)
        return Function(
            str(plain(op.attributes["sym_name"])),
            body,
            tuple([_label(argument.location) for argument in block.arguments]),
            tuple([_text(given, k, DIM) for k in range(count)]),
            tuple([_text(made, k, RESULT) for k in range(len(body.results))]),
        )

    def _block(self, block: ir.Block) -> Region:
        arguments = tuple(
            [self._named(argument, f"%arg{len(self._names)}") for argument in block.arguments]
        )
        types = tuple([declared(argument.type) for argument in block.arguments])
        nodes: list[Node] = []
        results: tuple[str, ...] = ()
        for op in block.operations:
            if op.operation.name in ("func.return", "stablehlo.return"):
                results = tuple([self._names[value] for value in op.operands])
            else:
                nodes.append(self._node(op.operation))
        return Region(arguments, types, tuple(nodes), results)

    def _named(self, value: ir.Value, name: str) -> str:
        self._names[value] = name
        return name

    def _node(self, op: ir.Operation) -> Node:
        self._line += 1
        line, place = self._line, len(self.nodes)
        operands = tuple([self._names[value] for value in op.operands])
        operand_types = tuple([declared(value.type) for value in op.operands])
        regions: list[Region] = []
        for region in op.regions:
            regions += [self._block(block) for block in region.blocks]
        first = len(self._names)
        results = tuple([self._named(v, f"%{first + k}") for k, v in enumerate(op.results)])
        attributes = _attributes(op)
        kind = op.name
        if kind == CUSTOM_CALL:
            kind = f"{kind} @{attributes.get('call_target_name', '')}"
        node = Node(
            kind,
            operands,
            results,
            operand_types,
            tuple([declared(value.type) for value in op.results]),
            attributes,
            tuple(regions),
            line,
            _label(op.location),
        )
        # The operations of its regions have later lines.
        self.nodes.insert(place, node)
        return node


def _attributes(op: ir.Operation) -> dict[str, Attribute]:
    if op.name == "stablehlo.constant" and declared(op.results[0].type).dtype is None:
        return {}  # the bindings end the process where they are asked for complex elements
    named = [op.attributes[index] for index in range(len(op.attributes))]
    return {each.name: plain(each.attr) for each in named}


def _dictionaries(op: ir.Operation, name: str) -> Sequence[ir.Attribute]:
    """A dictionary of attributes for each argument or result; none where the function has none."""
    from jaxlib.mlir import ir

    if name not in op.attributes:
        return ()
    found = op.attributes[name]
    return list(found) if isinstance(found, ir.ArrayAttr) else ()


def _text(dictionaries: Sequence[ir.Attribute], index: int, name: str) -> str:
    from jaxlib.mlir import ir

    if index >= len(dictionaries):
        return ""
    found = dictionaries[index]
    if not isinstance(found, ir.DictAttr) or name not in found:
        return ""
    return str(plain(found[name]))


def _label(location: ir.Location) -> str:
    """The name of a location, such as `jit(f)/add`; empty where it has none."""
    from jaxlib.mlir import ir

    return location.name_str if isinstance(location, ir.NameLoc) else ""
