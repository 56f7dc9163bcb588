"""`names { "encoder.{i}.weight" = blocks[i].w.T }`: how a weight file from elsewhere calls the weights.

The file may have a weight under another name, transposed, or the blocks of a stack one by one, and
several weights side by side in one array: `"qkv.weight" = (q.w.T, k.w.T, v.w.T)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import gcd
from typing import TypeAlias

from dlc.errors import Label, ModelError, SourceLocation
from dlc.errors.suggest import did_you_mean
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.values import Datum, Items
from dlc.frontend.elaboration.weight import Weight
from dlc.frontend.modules.chains import Chain
from dlc.frontend.modules.instances import Core, Instance, Stack
from dlc.runtime.artifact.manifest import file_shape
from dlc.runtime.system.counts import whole_number
from dlc.text.model import ast

__all__ = ["FileNames"]

Shape: TypeAlias = tuple[int, ...]

_HOLE = re.compile(r"\{(\w+)\}")


class FileNames:
    """The weights that `names` blocks name, by their symbols, with their keys in files."""

    def __init__(self) -> None:
        self.weights: dict[str, Weight] = {}
        self._places: dict[str, SourceLocation] = {}
        self._by_key: dict[tuple[int, str, tuple[int, ...]], str] = {}
        """The weight that an entry has named by a key, or by a portion of its array."""

    def add(self, ev: Evaluator, owner: Instance, node: ast.Names) -> None:
        """Add what a block says of the weights of an instance.

        An error (D0224) is recorded for an entry that names no weight, for a weight that has another name,
        since a file with both would give it the one or the other, and for the block of a module of which
        there are several instances, since all would get the same array. Entries that are written apart may
        share a key: so weights begin alike.
        """
        for entry in node.entries:
            try:
                for item in _Entry(ev, owner, entry).found():
                    self._name(ev, item, entry)
            except ModelError as error:
                ev.report(error)

    def _name(self, ev: Evaluator, item: Weight, entry: ast.NameEntry) -> None:
        first = self._places.get(item.symbol)
        if first is not None:
            raise ev.at.fail(
                "D0224",
                f"{item.symbol} has two names in weight files",
                entry.target.span,
                labels=[Label(first, "named here first")],
                help="leave one of them out",
            )
        for key in _keys(item):
            other = self._by_key.setdefault(
                (entry.span.start, f"{ev.at.source.name}:{key}", item.portion), item.symbol
            )
            if other != item.symbol:
                raise ev.at.fail(
                    "D0224",
                    f"`{key}` names the weights {other} and {item.symbol} of two instances",
                    entry.target.span,
                    help="name them outside the module, "
                    f'names {{ "..." = {other}  "..." = {item.symbol} }}',
                )
        self.weights[item.symbol] = item
        self._places[item.symbol] = ev.at.source.place(entry.target.span)


@dataclass(frozen=True, slots=True)
class _Key:
    """A key in the making: numbers go into its braces; `blocks` are the braces that count blocks."""

    text: str
    blocks: tuple[tuple[str, int], ...] = ()

    def numbered(self, name: str, number: int) -> _Key:
        """The key with a number for one of its braces."""
        return replace(self, text=self.text.replace(f"{{{name}}}", str(number)))

    def stacked(self, name: str, count: int) -> _Key:
        """The key of a stack: the name in braces counts its blocks."""
        return replace(self, blocks=(*self.blocks, (name, count)))

    def each(self) -> Iterator[str]:
        """The key of every block, in order."""
        for numbers in product(*[range(count) for _, count in self.blocks]):
            key = self
            for (name, _), number in zip(self.blocks, numbers, strict=True):
                key = key.numbered(name, number)
            yield key.text


def _keys(item: Weight) -> tuple[str, ...]:
    """The names that files have for a weight."""
    return item.parts or (item.origin.key or item.symbol,)


def _in_files(item: Weight) -> Shape:
    """The shape that a weight has in the arrays of files."""
    shape = tuple([size for size in item.type.shape if isinstance(size, int)])
    return file_shape(shape, item.stacked, item.parts, item.transposed)


class _Entry:
    def __init__(self, ev: Evaluator, owner: Instance, entry: ast.NameEntry) -> None:
        self.ev, self.owner, self.entry = ev, owner, entry
        self.variables = _HOLE.findall(entry.key.value)
        self._span = entry.target.span

    def found(self) -> Iterator[Weight]:
        """The weights that the entry names: several if a number walks through a list, or in a tuple."""
        target = self.entry.target
        if not isinstance(target, ast.Tuple):
            yield from self._named_by(target)
            return
        for item in target.items:
            if item.name is not None:
                self._span = item.span
                raise self._wrong(
                    "the weights in an array have no names here", f"leave {item.name} = out"
                )
        items = [list(self._named_by(item.value)) for item in target.items]
        self._span = target.span
        shapes = [{key: _in_files(w) for w in each for key in _keys(w)} for each in items]
        for position, weights in enumerate(items):
            for item in weights:
                portions = {self._portion(position, shapes, key) for key in _keys(item)}
                if len(portions) > 1:
                    raise self._wrong(
                        f"{item.symbol} lies at several places in the arrays of its blocks",
                        "write an entry for each block",
                    )
                yield replace(item, portion=portions.pop())

    def _portion(
        self, position: int, shapes: Sequence[Mapping[str, Shape]], key: str
    ) -> tuple[int, ...]:
        """Where the weight at a position of the tuple lies in the array: see `weight.Source`."""
        present = [each[key] for each in shapes if key in each]
        if len(present) < len(shapes):
            raise self._wrong(f"only {len(present)} of the {len(shapes)} weights lie in {key}")
        if len({len(shape) for shape in present}) > 1 or not present[0]:
            raise self._unequal(present)
        axes = [axis for axis, sizes in enumerate(zip(*present, strict=True)) if len({*sizes}) > 1]
        if len(axes) > 1:
            raise self._unequal(present)
        sizes = [shape[axes[0]] for shape in present] if axes else [1] * len(present)
        unit = gcd(*sizes) or 1
        first = sum(sizes[:position])
        return (first // unit, (first + sizes[position]) // unit, sum(sizes) // unit, *axes)

    def _unequal(self, shapes: Sequence[Shape]) -> ModelError:
        has = " and ".join([f"[{', '.join(map(str, shape))}]" for shape in shapes])
        return self._wrong(
            f"{has} do not lie side by side in one array",
            "they have one axis at least, and differ in one at most, as files have them",
        )

    def _named_by(self, target: ast.Expr) -> Iterator[Weight]:
        """The weights at a path."""
        self._span = target.span
        steps, transposed = self._steps(target)
        for item, key in self._weights(self.owner, steps, _Key(self.entry.key.value)):
            if transposed and len(item.type.shape) - item.stacked < 2:
                raise self._wrong(f"{item.symbol} is {item.type.text}, which has no transpose")
            yield replace(self._named(item, key), transposed=transposed)

    def _named(self, item: Weight, key: _Key) -> Weight:
        """The weight with the names that files have for it."""
        walked = [name for name, _ in key.blocks]
        for name in _HOLE.findall(key.text):
            if name not in walked:
                raise self._wrong(
                    f"{{{name}}} of the key counts nothing",
                    f"write [{name}] behind the stack or the list that it walks through",
                )
        if not key.blocks:
            return replace(item, origin=item.origin._replace(key=key.text))
        if len(key.blocks) != item.stacked:
            raise self._wrong(
                f"{item.symbol} lies in a stack further out, which the key does not count",
                "write the names block in the module that has the outer stack",
            )
        return replace(item, parts=tuple(key.each()))

    def _wrong(self, message: str, help: str | None = None) -> ModelError:
        return self.ev.at.fail("D0224", message, self._span, help=help)

    def _steps(self, node: ast.Expr) -> tuple[list[str | ast.Expr], bool]:
        """The path of a target, outermost first: names, and expressions in brackets."""
        steps: list[str | ast.Expr] = []
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
        self, value: Datum, steps: Sequence[str | ast.Expr], key: _Key
    ) -> Iterator[tuple[Weight, _Key]]:
        """The weights at a path, each with its key."""
        if not steps:
            raise self._wrong(
                "this is a module, not a weight", "add the name of one of its weights"
            )
        step, *rest = steps
        match value:
            case Instance(core=core):
                yield from self._member(core, step, rest, key)
            case Chain(parts) | Items(parts):
                yield from self._part(parts, step, rest, key)
            case Stack(count=count, template=template):
                if not isinstance(step, ast.Name) or step.name not in self.variables:
                    raise self._wrong(
                        "a stack is walked by a number that the key has in braces",
                        'write "layer.{i}.weight" = blocks[i].w',
                    )
                yield from self._weights(template, rest, key.stacked(step.name, count))
            case _:
                raise self._wrong("this names no weight")

    def _member(
        self,
        core: Core,
        step: str | ast.Expr,
        rest: Sequence[str | ast.Expr],
        key: _Key,
    ) -> Iterator[tuple[Weight, _Key]]:
        members = core.definition.members
        node = members.get(step) if isinstance(step, str) else None
        match node:
            case ast.Param() | ast.State() if not rest:
                yield core.weight(node), key
            case ast.Use():
                yield from self._weights(core.submodule(node), rest, key)
            case _:
                raise self._wrong(
                    f"{core.definition.name} has no weight or submodule {step}",
                    did_you_mean(step, members) if isinstance(step, str) else None,
                )

    def _part(
        self,
        parts: Sequence[Datum],
        step: str | ast.Expr,
        rest: Sequence[str | ast.Expr],
        key: _Key,
    ) -> Iterator[tuple[Weight, _Key]]:
        """One of a list of layers, or all of them under a number."""
        if isinstance(step, ast.Name) and step.name in self.variables:
            for number, part in enumerate(parts):
                yield from self._weights(part, rest, key.numbered(step.name, number))
            return
        number = step.value if isinstance(step, ast.Number) else step
        if isinstance(number, str):
            number = whole_number(number)
        if not isinstance(number, int) or number >= len(parts):
            raise self._wrong(f"there are {len(parts)} layers, numbered from 0")
        yield from self._weights(parts[number], rest, key)
