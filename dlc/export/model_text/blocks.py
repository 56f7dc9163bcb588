"""Modules for what a network repeats.

A region of one input and one result that stands several times in a graph, but for sizes and strides,
becomes a module with these as parameters, and every place where it stood an instance. Regions may hold
instances of modules that were found before.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dlc.dialects.array import tensor_type
from dlc.export.model_text.body import Body, write_body
from dlc.export.model_text.names import ModulePaths, Names
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
    values_of,
)
from dlc.ir.core import Value
from dlc.ir.dims import Dim

MOST = 60
"""Terms in a region."""
LEAST = 3
"""Terms in a region, below which the text would not be shorter."""
MOST_PARAMETERS = 6
GAIN = 6
"""Terms that a module must save."""
WITHOUT = {"stride": 1, "groups": 1}
"""Settings of convolutions that are left out where they have these values."""


@dataclass(frozen=True, slots=True)
class Region:
    """Terms that follow from `source` and that only `result`, the last of them, hands on.

    `numbers` are the sizes in which it may differ from others, in order of the text.
    """

    source: Value
    values: tuple[Value, ...]
    numbers: tuple[int, ...]

    @property
    def result(self) -> Value:
        """The value that is handed on."""
        return self.values[-1]


@dataclass(frozen=True, slots=True)
class Block:
    """A module: its parameters, and the terms of one of its instances with these in place of numbers.

    `shapes` are those of the weights that belong to no layer.
    """

    name: str
    parameters: tuple[str, ...]
    argument: str
    """The name of its input."""
    source: Value
    terms: Mapping[Value, Term]
    shapes: Mapping[Value, tuple[Item, ...]]
    result: Value


class Repetition:
    """Finds and replaces repeated regions; `terms` are changed. `stored` are weights without a layer.

    `names` gives the modules theirs, `paths` the classes that they had; `sizes` are the names of sizes,
    which nothing in them takes.
    """

    def __init__(
        self,
        terms: dict[Value, Term],
        stored: Mapping[Value, Weight],
        results: Sequence[Value],
        names: Names,
        sizes: Iterable[str],
        paths: ModulePaths,
    ) -> None:
        self._paths = paths
        self.blocks: list[Block] = []
        self._terms = terms
        self._stored = stored
        self._results = results
        self._names = names
        self._sizes = frozenset(sizes)
        self._argument = Names(self._sizes).of("x")

    def run(self) -> list[Block]:
        """All modules, each after those that it uses."""
        while True:
            regions = self._best()
            if regions is None:
                return self.blocks
            self._replace(regions)

    def _best(self) -> list[Region] | None:
        """The places of the region whose replacement saves most; None if none saves enough."""
        uses = Counter(self._results)
        for term in self._terms.values():
            uses.update(values_of(term))
        order = {value: k for k, value in enumerate(self._terms)}
        groups: dict[object, list[Region]] = defaultdict(list)
        for value in self._terms:
            for key, region in self._regions(value, uses, order):
                groups[key].append(region)
        best: list[Region] = []
        gain = GAIN - 1
        for regions in groups.values():
            if len(regions) < 2:
                continue
            apart = _apart(regions)
            saved = (len(apart) - 1) * len(apart[0].values)
            if saved > gain and _parameters(apart) <= MOST_PARAMETERS:
                best, gain = apart, saved
        return best or None

    def _regions(
        self, result: Value, uses: Counter[Value], order: Mapping[Value, int]
    ) -> list[tuple[object, Region]]:
        """The regions that end with a value, each with what is equal for regions that are alike."""
        inside = {result}
        regions: list[tuple[object, Region]] = []
        read = Counter(values_of(self._terms[result]))
        while len(inside) < MOST:
            edge = {value: count for value, count in read.items() if value not in self._stored}
            own = all(read[value] == uses[value] for value in read if value in self._stored)
            if len(edge) == 1 and len(inside) >= LEAST and own:
                (source,) = edge
                values = tuple(sorted(inside, key=order.__getitem__))
                described = self._described(source, values)
                if described is not None:
                    regions.append(described)
            # The latest value comes in next, if nothing outside needs it.
            inner = max(edge, key=lambda value: order.get(value, -1), default=None)
            if inner is None or inner not in order or edge[inner] < uses[inner]:
                break
            del read[inner]
            inside.add(inner)
            read.update(values_of(self._terms[inner]))
        return regions

    def _described(self, source: Value, values: tuple[Value, ...]) -> tuple[object, Region] | None:
        reader = self._reader(source, values)
        try:
            shape = tuple([reader.read(self._terms[value]) for value in values])
        except LookupError:
            return None
        terms = [self._terms[value] for value in values]
        kinds = {term.module if isinstance(term, Layer) else None for term in terms}
        alone = len(kinds) == 1 and None not in kinds
        if reader.layers < 2 or alone:
            return None
        return shape, Region(source, values, tuple(reader.numbers))

    def _reader(self, source: Value, values: tuple[Value, ...]) -> _Reader:
        places = {source: 0, **{value: k for k, value in enumerate(values, 1)}}
        return _Reader(places, self._stored)

    # Replacing --------------------------------------------------------------------------------

    def _replace(self, regions: Sequence[Region]) -> None:
        columns = _Columns([region.numbers for region in regions], {*self._sizes, self._argument})
        template = regions[0]
        kinds = [self._terms[value] for value in template.values]
        parameters = tuple(columns.parameters)
        members = self._body(template, parameters).weights
        origins = [weight.origin for weight in members.values()]
        name = self._names.of(self._paths.module(origins) or _name(kinds))
        reader = self._reader(template.source, template.values)
        for value in template.values:
            reader.read(self._terms[value])
        items = dict(zip(reader.slots, columns.items, strict=True))
        terms = {value: _replaced(self._terms[value], items) for value in template.values}
        shapes = {
            value: tuple([items[value, axis] for axis in range(tensor_type(value).rank)])
            for value in reader.weights
        }
        self.blocks.append(
            Block(name, parameters, self._argument, template.source, terms, shapes, template.result)
        )
        for k, region in enumerate(regions):
            # In every instance the members are called as in the first.
            own = self._body(region, parameters).weights.values()
            weights = tuple(zip(members, own, strict=True))
            layer = Layer(name, columns.settings(k), weights, region.source)
            for value in region.values[:-1]:
                del self._terms[value]
            self._terms[region.result] = layer

    def _body(self, region: Region, parameters: tuple[str, ...]) -> Body:
        """The body that a region would have as a module."""
        terms = {value: self._terms[value] for value in region.values}
        names = {region.source: self._argument}
        shapes = dict.fromkeys(self._stored, ())
        scope = (*self._sizes, *parameters)
        return write_body(terms, names, self._stored, [region.result], shapes, scope, self._paths)


def _apart(regions: Sequence[Region]) -> list[Region]:
    """Greedily, from the first on, regions that have no term in common."""
    taken: set[Value] = set()
    disjoint: list[Region] = []
    for region in regions:
        if taken.isdisjoint(region.values):
            taken.update(region.values)
            disjoint.append(region)
    return disjoint


def _parameters(regions: Sequence[Region]) -> int:
    """The number of parameters of a module for these regions."""
    columns = zip(*[region.numbers for region in regions], strict=True)
    return len({column for column in columns if len({*column}) > 1})


def _name(terms: Sequence[Term]) -> str:
    """By what its last two terms do."""
    for term in terms[:-3:-1]:
        if isinstance(term, Infix) and term.op == "+":
            return "Residual"
        if isinstance(term, Call) and term.function == "concat":
            return "Branches"
    return "Block"


class _Reader:
    """Reads terms: what is equal in all regions that are alike, and the numbers that may differ."""

    def __init__(self, places: Mapping[Value, int], stored: Mapping[Value, Weight]) -> None:
        self.numbers: list[int] = []
        self.slots: list[tuple[Layer | Value, int]] = []
        """The positions of the numbers: a setting of a layer, or an axis of a weight."""
        self.weights: list[Value] = []
        self.layers = 0
        self._places = places
        self._stored = stored

    def read(self, item: Item | Cut) -> object:
        """The item without its numbers. Raises LookupError for what no region may hold."""
        match item:
            case Value() if item in self._stored:
                return self._weight(item)
            case Value():
                return ("value", self._places[item])
            case Layer():
                return self._layer(item)
            case Call(function, items, named):
                return (function, *map(self.read, items), *[(n, self.read(v)) for n, v in named])
            case Infix(op, left, right):
                return (op, self.read(left), self.read(right))
            case Prefix(op, operand):
                return (op, self.read(operand))
            case Index(source, places):
                return ("[]", self.read(source), *map(self.read, places))
            case Cut(start, stop, step):
                return (self.read(start), self.read(stop), step)
            case tuple():
                return tuple(map(self.read, item))
            case Dim() | Part() | Weight() | If() | Scan() | While():
                raise LookupError
            case _:
                return (type(item), item)

    def _layer(self, layer: Layer) -> object:
        self.layers += 1
        settings = normal(layer)
        fixed: list[object] = [layer.module, self.read(layer.source)]
        for position, (name, value) in enumerate(settings):
            if is_free(name, value):
                assert isinstance(value, int)
                self._number(value, layer, position)
                fixed.append(name)
            else:
                fixed.append((name, self.read(value)))
        return tuple(fixed)

    def _weight(self, value: Value) -> object:
        if value in self.weights:
            return ("weight", self.weights.index(value))
        self.weights.append(value)
        self.layers += 1
        type = tensor_type(value)
        for axis, size in enumerate(type.shape):
            assert isinstance(size, int)
            self._number(size, value, axis)
        return ("weight", type.dtype, type.rank, self._stored[value].trained)

    def _number(self, number: int, owner: Layer | Value, position: int) -> None:
        self.numbers.append(number)
        self.slots.append((owner, position))


def is_free(name: str, value: Item) -> bool:
    """Whether a setting is one in which regions may differ."""
    return type(value) is int and name in ("", "stride", "groups")


def normal(layer: Layer) -> list[tuple[str, Item]]:
    """The settings of a layer with those that are left out of convolutions."""
    settings = list(layer.settings)
    if not layer.module.startswith("Conv"):
        return settings
    names = {name for name, _ in settings}
    position = next(k for k, (name, _) in enumerate(settings) if name == "kernel") + 1
    missing: list[tuple[str, Item]] = [(n, v) for n, v in WITHOUT.items() if n not in names]
    return [*settings[:position], *missing, *settings[position:]]


class _Columns:
    """The numbers of regions that are alike, place for place: parameters where they differ."""

    def __init__(self, rows: Sequence[tuple[int, ...]], taken: Iterable[str]) -> None:
        self._rows = rows
        self._of: dict[tuple[int, ...], str] = {}
        self.items: list[Item] = []
        names = Names(taken)
        columns = list(zip(*rows, strict=True))
        for column in columns:
            if len({*column}) == 1:
                self.items.append(column[0])
                continue
            if column not in self._of:
                self._of[column] = names.of(self._role(column, columns))
            self.items.append(Code(self._of[column]))
        self.parameters = sorted(self._of.values(), key=_is_step)

    def _role(self, column: tuple[int, ...], columns: Sequence[tuple[int, ...]]) -> str:
        if column == columns[0]:
            return "inputs"
        if max(column) <= 4:
            return "stride"
        sizes = [other for other in columns if max(other) > 4]
        return "outputs" if column == sizes[-1] else "width"

    def settings(self, row: int) -> tuple[tuple[str, Item], ...]:
        """The arguments of one instance."""
        values = {name: column[row] for column, name in self._of.items()}
        return tuple([(name if _is_step(name) else "", values[name]) for name in self.parameters])


def _is_step(parameter: str) -> bool:
    """Whether a parameter is given by name, after the sizes."""
    return parameter.startswith("stride")


def _replaced(term: Term, items: Mapping[tuple[Layer | Value, int], Item]) -> Term:
    """The term with parameters in place of numbers; what is as by default for convolutions vanishes."""
    if not isinstance(term, Layer):
        return term
    settings: list[tuple[str, Item]] = []
    for position, (name, value) in enumerate(normal(term)):
        item = items.get((term, position), value)
        if not (term.module.startswith("Conv") and WITHOUT.get(name) == item):
            settings.append((name, item))
    return replace(term, settings=tuple(settings))
