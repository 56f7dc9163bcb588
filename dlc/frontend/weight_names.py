"""`names { "encoder.{i}.weight" = blocks[i].w.T }`: how a weight file from elsewhere calls the weights.

A weight that the file has under another name is a source with that key. One that it has transposed, or in
pieces for each block of a stack, is derived from sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dlc.dialects import array, weight
from dlc.dialects.array.shape import reshape, transpose
from dlc.errors import ModelError
from dlc.frontend.evaluator import Evaluator
from dlc.frontend.initialisers import Origin
from dlc.frontend.instances import Chain, Core, Instance, Stack
from dlc.frontend.values import Datum, Items
from dlc.frontend.weights import Weight, source_of
from dlc.ir.attributes import Symbol
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Op
from dlc.ir.location import FileLocation
from dlc.text import ast
from dlc.text.suggest import suggest

__all__ = ["Renamed", "renamed", "symbols_of"]

_HOLE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Renamed:
    """How a file calls a weight: the key, or for a stack the key of each block."""

    keys: tuple[str, ...]
    transposed: bool
    stacked: bool


def renamed(ev: Evaluator, owner: Instance, node: ast.Names) -> dict[str, Renamed]:
    """The names that a block gives to weights of an instance, by their symbols."""
    found: dict[str, Renamed] = {}
    for entry in node.entries:
        try:
            found.update(_Entry(ev, owner, entry).found())
        except ModelError as error:
            ev.report(error)
    return found


class _Entry:
    def __init__(self, ev: Evaluator, owner: Instance, entry: ast.NameEntry) -> None:
        self.ev, self.owner, self.entry = ev, owner, entry
        self.variables = _HOLE.findall(entry.key.value)

    def found(self) -> dict[str, Renamed]:
        """The weights that the entry names: several if a number walks through a list."""
        steps, transposed = self._steps()
        found: dict[str, Renamed] = {}
        for item, key, walked in self._weights(self.owner, steps, self.entry.key.value):
            if transposed and len(item.type.shape) - item.stacked < 2:
                raise self._wrong(f"{item.symbol} is {item.type.text}, which has no transpose")
            if (walked is not None) != bool(item.stacked):
                raise self._wrong(
                    f"{item.symbol} is stacked: its blocks are numbered in the file, blocks[i]"
                    if item.stacked
                    else f"{item.symbol} is not stacked"
                )
            count = item.type.shape[0] if item.stacked else 1
            assert isinstance(count, int)
            keys = [key if walked is None else key.replace(walked, str(k)) for k in range(count)]
            found[item.symbol] = Renamed(tuple(keys), transposed, bool(item.stacked))
        return found

    def _wrong(self, message: str, help: str | None = None) -> ModelError:
        return self.ev.at.fail("D0224", message, self.entry.target.span, help=help)

    def _steps(self) -> tuple[list[str | ast.Expr], bool]:
        """The path of the target, outermost first: names, and expressions in brackets."""
        steps: list[str | ast.Expr] = []
        node = self.entry.target
        while True:
            match node:
                case ast.Attribute(name=name, value=value):
                    steps.append(name)
                    node = value
                case ast.Index(value=value, items=(item,)) if isinstance(
                    item, ast.Name | ast.Number
                ):
                    steps.append(item)
                    node = value
                case ast.Name(name=name):
                    steps.append(name)
                    break
                case _:
                    raise self._wrong(
                        "this names no weight", "write its path, such as blocks[i].down.w.T"
                    )
        steps.reverse()
        if len(steps) > 1 and steps[-1] == "T":
            return steps[:-1], True
        return steps, False

    def _weights(
        self, value: Datum, steps: Sequence[str | ast.Expr], key: str, walked: str | None = None
    ) -> Iterator[tuple[Weight, str, str | None]]:
        """The weights at a path, each with its key; `walked` is the hole that numbers the blocks."""
        if not steps:
            raise self._wrong(
                "this is no weight but a module", "add the name of one of its weights"
            )
        step, *rest = steps
        match value:
            case Instance(core=core):
                yield from self._member(core, step, rest, key, walked)
            case Chain(parts) | Items(parts):
                yield from self._part(parts, step, rest, key, walked)
            case Stack(template=template):
                if not isinstance(step, ast.Name) or step.name not in self.variables:
                    raise self._wrong(
                        "a stack is walked by a number that the key has in braces",
                        'write "layer.{i}.weight" = blocks[i].w',
                    )
                yield from self._weights(template, rest, key, f"{{{step.name}}}")
            case _:
                raise self._wrong("this names no weight")

    def _member(
        self,
        core: Core,
        step: str | ast.Expr,
        rest: Sequence[str | ast.Expr],
        key: str,
        walked: str | None,
    ) -> Iterator[tuple[Weight, str, str | None]]:
        members = core.definition.members
        node = members.get(step) if isinstance(step, str) else None
        match node:
            case ast.Param() | ast.State() if not rest:
                yield core.weight(node), key, walked
            case ast.Use():
                yield from self._weights(core.submodule(node), rest, key, walked)
            case _:
                near = suggest(step, members) if isinstance(step, str) else None
                raise self._wrong(
                    f"{core.definition.name} has no weight or submodule {step}",
                    f"did you mean {near}?" if near else None,
                )

    def _part(
        self,
        parts: Sequence[Datum],
        step: str | ast.Expr,
        rest: Sequence[str | ast.Expr],
        key: str,
        walked: str | None,
    ) -> Iterator[tuple[Weight, str, str | None]]:
        """One of a list of layers, or all of them under a number."""
        if isinstance(step, ast.Name) and step.name in self.variables:
            for number, part in enumerate(parts):
                yield from self._weights(
                    part, rest, key.replace(f"{{{step.name}}}", str(number)), walked
                )
            return
        number = step.value if isinstance(step, ast.Number) else step
        if isinstance(number, str) and number.isdigit():
            number = int(number)
        if not isinstance(number, int) or number >= len(parts):
            raise self._wrong(f"there are {len(parts)} layers, numbered from 0")
        yield from self._weights(parts[number], rest, key, walked)


# Symbols ------------------------------------------------------------------------------------------


def symbols_of(item: Weight, name: Renamed | None) -> list[Op]:
    """The symbols for a weight: a source, or the sources that it is derived from, and itself."""
    if name is None:
        return [source_of(item)]
    origin = item.origin
    if not name.stacked and not name.transposed:
        (key,) = name.keys
        return [source_of(_with_origin(item, Origin(origin.init, origin.file, key)))]
    shape = item.type.shape[1:] if name.stacked else item.type.shape
    if name.transposed:
        shape = (*shape[:-2], shape[-1], shape[-2])
    parts = [
        Weight(
            key,
            item.type.with_shape(shape),
            Origin(origin.init, origin.file, key),
            item.trained,
            0,
            item.place,
        )
        for key in name.keys
    ]
    return [*map(source_of, parts), _derived(item, name, parts)]


def _with_origin(item: Weight, origin: Origin) -> Weight:
    return Weight(item.symbol, item.type, origin, item.trained, item.stacked, item.place)


def _derived(item: Weight, name: Renamed, parts: Sequence[Weight]) -> Op:
    """The weight from its parts: each transposed, then stacked."""
    place = item.place
    location = FileLocation(place.file, place.line, place.column, place.end)
    block = Block([part.type for part in parts])
    emit = Builder(block, location)
    values = list(block.arguments)
    if name.transposed:
        rank = len(parts[0].type.shape)
        order = (*range(rank - 2), rank - 1, rank - 2)
        values = [transpose(emit, value, order) for value in values]
    if name.stacked:
        rows = [reshape(emit, value, (1, *item.type.shape[1:])) for value in values]
        values = [emit(array.Concatenate(rows, 0))]
    emit.place(weight.Yield(values))
    symbols = tuple([Symbol(part.symbol) for part in parts])
    made = weight.Derived(block, item.symbol, item.type, symbols)
    made.location = location
    return made
