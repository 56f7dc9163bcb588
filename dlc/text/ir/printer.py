"""IR as text, in MLIR's generic syntax at every level.

    %y = "array.transpose"(%x) <{axes = array<i64: 1, 0>}> : (tensor<2x3xf32>) -> tensor<3x2xf32>

Attributes that the class declares are in `<{...}>`, others (such as `dlc.dims`) in `{...}`. Values
keep their names, made unique within each operation of the module's body; those without are numbered.
Printing what was parsed from printed text gives the same text.
"""

from __future__ import annotations

from collections.abc import Iterator

from dlc.ir.attributes import Attribute
from dlc.ir.core import Block, Op, Value
from dlc.ir.signature import signature_of
from dlc.ir.types import FunctionType, Type
from dlc.text.ir.spelling import attribute_text, key_text, location_text, value_name

__all__ = ["Close", "Printer", "print_module", "print_pieces"]

INDENT = "  "


def print_module(op: Op, *, locations: bool = False) -> str:
    """The text of an operation and all that is in it, with a line break at the end.

    With `locations` each operation is followed by `loc(...)`.
    """
    return "".join(print_pieces(op, locations=locations))


def print_pieces(op: Op, *, locations: bool = False) -> Iterator[str]:
    """The same text in pieces, for texts too long to hold."""
    return Printer(locations).pieces(op)


class Close(str):
    """What follows the operations of a region."""

    __slots__ = ()


class Printer:
    """Writes operations; `ir_short` overrides how their parts are punctuated."""

    def __init__(self, locations: bool) -> None:
        self._locations = locations
        self._indent: str = ""
        self._names: dict[Value, str] = {}
        self._taken: dict[str, int] = {}  # with how many others wanted the name
        self._numbered = 0
        self._types: dict[Type, str] = {}

    def pieces(self, root: Op) -> Iterator[str]:
        """Work through what is still to be printed; an operation with regions adds to it."""
        todo: list[Op | Block | str] = [root]
        while todo:
            item = todo.pop()
            if isinstance(item, Op):
                inherent, others = _dictionaries(item)
                yield self._head(item, inherent)
                tail = self._tail(item, others)
                if item.regions:
                    todo.append(tail)
                    todo += self._regions(item)
                else:
                    yield tail
            elif isinstance(item, Block):
                yield self._open(item)
            else:
                if isinstance(item, Close):
                    self._indent = self._indent[: -len(INDENT)]
                    yield self._indent
                yield item

    def _regions(self, op: Op) -> list[Op | Block | str]:
        """The regions of an operation, last thing first."""
        todo: list[Op | Block | str] = [Close("})")]
        for block in reversed(op.regions):
            todo += reversed(list(block))
            todo += (block, Close("}, "))
        todo.pop()
        return todo

    def _open(self, block: Block) -> str:
        label = ""
        if block.arguments:
            arguments = ", ".join(f"{self._name(a)}: {self._type(a.type)}" for a in block.arguments)
            label = f"{self._indent}^bb0({arguments}):\n"
        elif block.first is None:
            label = f"{self._indent}^bb0:\n"  # else MLIR reads a region without a block
        self._indent += INDENT
        return "{\n" + label

    def _head(self, op: Op, properties: str) -> str:
        """Everything before the regions."""
        self._forget_names(op)
        names = self._names
        operands = ", ".join([names.get(value) or self._name(value) for value in op.operands])
        results = ", ".join([self._name(value) for value in op.results])
        equals = " = " if results else ""
        regions = " (" if op.regions else ""
        return f'{self._indent}{results}{equals}"{op.name}"({operands}){properties}{regions}'

    def _forget_names(self, op: Op) -> None:
        """Begin anew with each operation of the module's body."""
        parent = op.parent.parent if op.parent is not None else None
        if parent is not None and parent.symbol_table:
            self._names, self._taken, self._numbered = {}, {}, 0

    def _tail(self, op: Op, dictionary: str) -> str:
        """Everything after the regions."""
        spellings = self._types
        inputs = ", ".join([spellings.get(v.type) or self._type(v.type) for v in op.operands])
        results = ", ".join([spellings.get(v.type) or self._type(v.type) for v in op.results])
        if len(op.results) != 1 or isinstance(op.results[0].type, FunctionType):
            results = f"({results})"
        location = f" loc({location_text(op.location)})" if self._locations else ""
        return f"{dictionary} : ({inputs}) -> {results}{location}\n"

    def _type(self, type: Type) -> str:
        text = self._types.get(type)
        if text is None:
            text = self._types[type] = str(type)
        return text

    def _name(self, value: Value) -> str:
        """The name of a value, chosen when it is first met.

        That is where it is defined, or, in IR that is wrong or a part, at a use.
        """
        name = self._names.get(value)
        if name is None:
            if value.name:
                name = self._unique(f"%{value_name(value.name)}")
            else:
                name = f"%{self._numbered}"
                self._numbered += 1
            self._names[value] = name
        return name

    def _unique(self, name: str) -> str:
        unique = name
        while unique in self._taken:
            self._taken[name] += 1
            unique = f"{name}_{self._taken[name]}"
        self._taken[unique] = 0
        return unique


def _dictionaries(op: Op) -> tuple[str, str]:
    """The attributes that the class declares, in its order, and the others, each in their brackets."""
    attributes = op.attributes
    if not attributes:
        return "", ""
    declared = signature_of(type(op)).attributes
    inherent = [key for key in declared if key in attributes]
    properties = f" <{{{_entries(attributes, inherent)}}}>" if inherent else ""
    if len(inherent) == len(attributes):
        return properties, ""
    others = [key for key in attributes if key not in declared]
    return properties, f" {{{_entries(attributes, others)}}}"


def _entries(attributes: dict[str, Attribute], keys: list[str]) -> str:
    return ", ".join([f"{key_text(key)} = {attribute_text(attributes[key])}" for key in keys])
