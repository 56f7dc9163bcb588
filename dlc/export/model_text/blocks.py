"""Parts of a network become modules: parts that differ only in sizes share one module with parameters.

A region is what a module has in it. Every place where one stood becomes a layer of that module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import cast

from dlc.dialects.array import tensor_type
from dlc.export.model_text.body import Body, write_body
from dlc.export.model_text.names import Names, readable
from dlc.export.model_text.terms import (
    Call,
    Code,
    Cut,
    If,
    Index,
    Infix,
    Item,
    Layer,
    Part,
    Prefix,
    Scan,
    Term,
    Weight,
    While,
)
from dlc.ir.core import Value
from dlc.ir.dims import Dim, names
from dlc.ir.types import BOOL

MOST_PARAMETERS = 6
WITHOUT = {"stride": 1, "padding": 0, "groups": 1}
"""Settings of convolutions that are left out where they have these values."""
ORDER = ("", "kernel", "stride", "padding", "dilation", "groups", "bias", "dims", "F")
"""The order of the settings of convolutions."""
CONVOLUTIONS = frozenset(
    [f"{kind}{rank}d" for kind in ("Conv", "ConvTranspose") for rank in (1, 2, 3)]
)
FREE = frozenset(("", "kernel", "stride", "padding", "groups"))
"""Settings in which regions may differ that become one module; the nameless are sizes."""
CHAIN = "chain"
"""What layers one after the other are a layer of; its settings are those layers, as calls."""
SHAPED = frozenset(("reshape", "broadcast", "full"))
"""Functions of a shape, whose numbers may differ between regions that are alike."""
ARGUMENTS = {"cos": "cosine", "sin": "sine"}
"""Names of arguments by the function that makes them."""


@dataclass(frozen=True, slots=True)
class Region:
    """Terms that follow from `sources` and that only `result`, the last of them, hands on.

    `numbers` are those in which it may differ from others, in order of the text, and `roles` what they are:
    the setting of a convolution, or empty for a size.
    """

    sources: tuple[Value, ...]
    values: tuple[Value, ...]
    numbers: tuple[int, ...] = ()
    roles: tuple[str, ...] = ()

    @property
    def result(self) -> Value:
        """The value that is handed on."""
        return self.values[-1]


@dataclass(frozen=True, slots=True)
class Block:
    """A module: its parameters, and the terms of one of its instances with these in place of numbers.

    `shapes` are those of the weights that belong to no layer; `named` says that members keep the names
    that they had in the class.
    """

    name: str
    parameters: tuple[str, ...]
    arguments: Mapping[Value, str]
    """The names of its inputs."""
    terms: Mapping[Value, Term]
    shapes: Mapping[Value, tuple[Item, ...]]
    result: Value
    named: bool = False


class Blocks:
    """Makes modules of regions; `terms` are changed. `stored` are weights without a layer.

    `taken` gives the modules names; `sizes` are the names of sizes, which nothing in them takes; `inputs`
    what the inputs of the whole are called.
    """

    def __init__(
        self,
        terms: dict[Value, Term],
        stored: Mapping[Value, Weight],
        taken: Names,
        sizes: Iterable[str],
        inputs: Mapping[Value, str],
    ) -> None:
        self.made: list[Block] = []
        self.terms = terms
        self.stored = stored
        self._taken = taken
        self._sizes = frozenset(sizes)
        self._inputs = inputs

    def described(self, region: Region) -> tuple[object, Region, int] | None:
        """What is equal for regions that are alike, the region with its numbers, and its layers.

        None for one that no module may hold.
        """
        reader = _Reader(region, self.stored, self._sizes)
        try:
            shape = tuple([reader.item(self.terms[value]) for value in region.values])
        except LookupError:
            return None
        described = replace(region, numbers=tuple(reader.numbers), roles=tuple(reader.roles))
        return (len(region.sources), shape), described, reader.layers

    def replace(
        self,
        regions: Sequence[Region],
        wanted: str,
        *,
        named: bool = False,
        instances: Sequence[str] = (),
    ) -> None:
        """Make one module of regions that are alike, and of each a layer: `instances` are their names."""
        template = regions[0]
        arguments = self._arguments(template, named)
        taken = {*self._sizes, *arguments.values()}
        columns = _Columns([region.numbers for region in regions], template.roles, taken)
        writer = _Template(template, self.stored, self._sizes, columns.items)
        terms = {value: cast("Term", writer.item(self.terms[value])) for value in template.values}
        parameters = tuple(columns.parameters)
        members = self._body(template, arguments, parameters, named).weights
        name = self._taken.of(wanted)
        self.made.append(
            Block(name, parameters, arguments, terms, writer.shapes, template.result, named)
        )
        for k, region in enumerate(regions):
            # In every instance the members are called as in the first.
            given = dict(zip(region.sources, arguments.values(), strict=True))
            own = self._body(region, given, parameters, named).weights.values()
            layer = Layer(
                name,
                columns.settings(k),
                tuple(zip(members, own, strict=True)),
                region.sources[0],
                region.sources[1:],
                instances[k] if instances else "",
            )
            for value in region.values[:-1]:
                del self.terms[value]
            self.terms[region.result] = layer

    def _arguments(self, region: Region, named: bool) -> dict[Value, str]:
        """The names of the sources, in their order."""
        free = Names(self._sizes)
        if not named:
            return {source: free.of("x") for source in region.sources}
        found: dict[Value, str] = {}
        for k, source in enumerate(region.sources):
            term = self.terms.get(source)
            if source in self._inputs:
                wanted = readable(self._inputs[source], "x")
            elif source in self.stored:
                wanted = readable(self.stored[source].origin, "w")
            elif k == 0:
                wanted = "x"
            elif isinstance(term, Call) and term.function in ARGUMENTS:
                wanted = ARGUMENTS[term.function]
            else:
                wanted = "mask" if tensor_type(source).dtype is BOOL else "y"
            found[source] = free.of(wanted)
        return found

    def _body(
        self, region: Region, arguments: Mapping[Value, str], scope: Sequence[str], named: bool
    ) -> Body:
        """The body that a region would have as a module."""
        terms = {value: self.terms[value] for value in region.values}
        shapes = dict.fromkeys(self.stored, ())
        scope = (*self._sizes, *scope)
        return write_body(
            terms, arguments, self.stored, [region.result], shapes, scope, named=named
        )


class _Walk:
    """Goes through terms and makes new ones with other numbers: the free ones, in which regions differ."""

    def __init__(
        self, region: Region, stored: Mapping[Value, Weight], sizes: AbstractSet[str]
    ) -> None:
        self._inside = {*region.values, *region.sources}
        self._stored = {
            value: weight for value, weight in stored.items() if value not in self._inside
        }
        self._sizes = sizes

    def number(self, value: int, role: str = "") -> Item:
        """What a free number becomes; `role` is the setting that it is, if it is not a size."""
        raise NotImplementedError

    def value(self, value: Value) -> Item:
        """What a value becomes that the region has."""
        raise NotImplementedError

    def weight(self, value: Value) -> Item:
        """What a weight becomes that belongs to no layer."""
        raise NotImplementedError

    def layer(self, layer: Layer, settings: tuple[tuple[str, Item], ...]) -> Item:
        """What a layer becomes that has new settings."""
        raise NotImplementedError

    def item(self, item: Item) -> Item:
        """The item with other numbers. Raises LookupError for what no region may hold."""
        match item:
            case Value():
                if item in self._stored:
                    return self.weight(item)
                if item not in self._inside:
                    raise LookupError
                return self.value(item)
            case Layer():
                return self.layer(item, tuple(self._settings(item.module, item.settings)))
            case Call(function, items, named):
                free = function in SHAPED
                parts = [
                    self._shape(part) if free and k and isinstance(part, tuple) else self.item(part)
                    for k, part in enumerate(items)
                ]
                return Call(function, tuple(parts), tuple([(n, self.item(v)) for n, v in named]))
            case Infix(op, left, right):
                return Infix(op, self.item(left), self.item(right))
            case Prefix(op, operand):
                return Prefix(op, self.item(operand))
            case Index(source, places):
                return Index(self.item(source), tuple([self._place(place) for place in places]))
            case tuple():
                return tuple([self.item(part) for part in item])
            case Dim() if not self._sizes >= {*names(item)}:
                raise LookupError
            case Part() | Weight() | If() | Scan() | While():
                raise LookupError
            case _:
                return item

    def _shape(self, shape: tuple[Item, ...]) -> Item:
        return tuple([self.number(n) if type(n) is int and n > 1 else self.item(n) for n in shape])

    def _place(self, place: Item | Cut) -> Item | Cut:
        if not isinstance(place, Cut):
            return self.item(place)
        ends = [
            self.number(end) if type(end) is int else self.item(end)
            for end in (place.start, place.stop)
        ]
        return Cut(ends[0], ends[1], place.step)

    def _settings(
        self, module: str, settings: Sequence[tuple[str, Item]]
    ) -> list[tuple[str, Item]]:
        """The settings of a layer with new numbers; defaults of convolutions vanish."""
        if module == CHAIN:
            return [(name, self._link(link)) for name, link in settings]
        found: list[tuple[str, Item]] = []
        for name, value in complete(module, settings):
            new = self.item(value)
            if isinstance(value, int) and not isinstance(value, bool) and name in FREE:
                new = self.number(value, name)
            if not (module in CONVOLUTIONS and WITHOUT.get(name) == new):
                found.append((name, new))
        return found

    def _link(self, link: Item) -> Item:
        """A layer of a chain."""
        if not isinstance(link, Call):
            return link
        settings = [*[("", item) for item in link.items], *link.named]
        return as_call(link.function, self._settings(link.function, settings))


class _Reader(_Walk):
    """Tells what is equal in all regions that are alike, and gathers the numbers that may differ."""

    def __init__(
        self, region: Region, stored: Mapping[Value, Weight], sizes: AbstractSet[str]
    ) -> None:
        super().__init__(region, stored, sizes)
        self.numbers: list[int] = []
        self.roles: list[str] = []
        self.layers = 0
        self._places = {value: k for k, value in enumerate((*region.sources, *region.values))}
        self._weights: dict[Value, str] = {}

    def number(self, value: int, role: str = "") -> Item:
        self.numbers.append(value)
        self.roles.append(role)
        return Code("_")

    def value(self, value: Value) -> Item:
        return Code(f"%{self._places[value]}")

    def weight(self, value: Value) -> Item:
        if value in self._weights:
            return Code(self._weights[value])
        type = tensor_type(value)
        self._weights[value] = f"w{len(self._weights)}"
        for size in type.shape:
            assert isinstance(size, int)
            self.number(size)
        self.layers += 1
        kind = f"{type.dtype.name} {type.rank} {self._stored[value].trained}"
        return Code(f"{self._weights[value]}: {kind}")

    def layer(self, layer: Layer, settings: tuple[tuple[str, Item], ...]) -> Item:
        self.layers += 1
        sources = [self.item(source) for source in (layer.source, *layer.more)]
        return Call(f"{layer.module} {layer.count}", tuple(sources), settings)


class _Template(_Walk):
    """Writes parameters in place of the numbers of a region."""

    def __init__(
        self,
        region: Region,
        stored: Mapping[Value, Weight],
        sizes: AbstractSet[str],
        items: Iterable[Item],
    ) -> None:
        super().__init__(region, stored, sizes)
        self.shapes: dict[Value, tuple[Item, ...]] = {}
        self._items = iter(items)

    def number(self, value: int, role: str = "") -> Item:
        return next(self._items)

    def value(self, value: Value) -> Item:
        return value

    def weight(self, value: Value) -> Item:
        if value not in self.shapes:
            self.shapes[value] = tuple([next(self._items) for _ in tensor_type(value).shape])
        return value

    def layer(self, layer: Layer, settings: tuple[tuple[str, Item], ...]) -> Item:
        for source in (layer.source, *layer.more):
            self.item(source)
        return replace(layer, settings=settings)


def complete(module: str, settings: Sequence[tuple[str, Item]]) -> list[tuple[str, Item]]:
    """The settings of a layer with those that are left out of convolutions."""
    if module not in CONVOLUTIONS:
        return list(settings)
    given = {name for name, _ in settings}
    missing: list[tuple[str, Item]] = [(n, v) for n, v in WITHOUT.items() if n not in given]
    return sorted([*settings, *missing], key=lambda pair: ORDER.index(pair[0]))


def as_call(module: str, settings: Iterable[tuple[str, Item]]) -> Call:
    """A layer as it is declared: `Linear(3, 4, bias=false)`."""
    pairs = list(settings)
    plain = tuple([item for name, item in pairs if not name])
    return Call(module, plain, tuple([(name, item) for name, item in pairs if name]))


def parameters(regions: Sequence[Region]) -> int:
    """The number of parameters of a module for these regions."""
    columns = zip(*[region.numbers for region in regions], strict=True)
    named = zip(columns, regions[0].roles, strict=True)
    return len({pair for pair in named if len({*pair[0]}) > 1})


class _Columns:
    """The numbers of regions that are alike, place for place: parameters where they differ."""

    def __init__(
        self, rows: Sequence[tuple[int, ...]], roles: Sequence[str], taken: Iterable[str]
    ) -> None:
        self._of: dict[tuple[str, tuple[int, ...]], str] = {}
        self._named: set[str] = set()
        self.items: list[Item] = []
        free = Names(taken)
        columns = list(zip(*rows, strict=True))
        sizes = [column for column, role in zip(columns, roles, strict=True) if not role]
        for column, role in zip(columns, roles, strict=True):
            if len({*column}) == 1:
                self.items.append(column[0])
                continue
            if (role, column) not in self._of:
                name = free.of(role or _size_name(column, sizes))
                self._of[role, column] = name
                self._named |= {name} if role else set()
            self.items.append(Code(self._of[role, column]))
        self.parameters = sorted(self._of.values(), key=self._named.__contains__)

    def settings(self, row: int) -> tuple[tuple[str, Item], ...]:
        """The arguments of one instance: sizes by their place, then settings by name."""
        values = {name: column[row] for (_, column), name in self._of.items()}
        return tuple([(n if n in self._named else "", values[n]) for n in self.parameters])


def _size_name(column: tuple[int, ...], sizes: Sequence[tuple[int, ...]]) -> str:
    if column == sizes[0]:
        return "inputs"
    return "outputs" if column == sizes[-1] else "width"
