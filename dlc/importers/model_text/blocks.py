"""Modules for what a network repeats.

A region of one input and one result that stands several times in a graph, but for sizes and strides,
becomes a module with these as parameters, and every place where it stood an instance. Regions may hold
instances of modules that were found before.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dlc.importers.model_text.names import Names, short_name
from dlc.importers.model_text.terms import (
    Call,
    Code,
    Cut,
    Index,
    Infix,
    Item,
    Layer,
    Part,
    Prefix,
    Term,
    Weight,
    values_of,
)
from dlc.ir.core import Value
from dlc.ir.dims import Dim

MOST = 60
"""Terms in a region."""
LEAST = 3
"""Terms in a region, below which the text would not be shorter."""
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
    """A module: its parameters, and the terms of one of its instances with these in place of numbers."""

    name: str
    parameters: tuple[str, ...]
    source: Value
    terms: Mapping[Value, Term]
    result: Value


class Repetition:
    """Finds and replaces repeated regions; `terms` are changed."""

    def __init__(self, terms: dict[Value, Term], results: Sequence[Value], names: Names) -> None:
        self.blocks: list[Block] = []
        self._terms = terms
        self._results = results
        self._names = names

    def run(self) -> list[Block]:
        """All modules, each after those that it uses."""
        while True:
            found = self._best()
            if found is None:
                return self.blocks
            self._replace(found)

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
            if saved > gain:
                best, gain = apart, saved
        return best or None

    def _regions(
        self, result: Value, uses: Counter[Value], order: Mapping[Value, int]
    ) -> list[tuple[object, Region]]:
        """The regions that end with a value, each with what is equal for regions that are alike."""
        inside = {result}
        found: list[tuple[object, Region]] = []
        edge = Counter(values_of(self._terms[result]))
        while len(inside) < MOST:
            if len(edge) == 1 and len(inside) >= LEAST:
                (source,) = edge
                values = tuple(sorted(inside, key=order.__getitem__))
                described = self._described(source, values)
                if described is not None:
                    found.append(described)
            # The latest value comes in next, if nothing outside needs it.
            inner = max(edge, key=lambda value: order.get(value, -1), default=result)
            if inner not in order or edge[inner] < uses[inner]:
                break
            del edge[inner]
            inside.add(inner)
            edge.update(values_of(self._terms[inner]))
        return found

    def _described(self, source: Value, values: tuple[Value, ...]) -> tuple[object, Region] | None:
        places = {source: 0, **{value: k for k, value in enumerate(values, 1)}}
        reader = _Reader(places)
        try:
            shape = tuple([reader.read(self._terms[value]) for value in values])
        except LookupError:
            return None
        if reader.layers < 2 or len({*shape}) == 1:
            return None
        return shape, Region(source, values, tuple(reader.numbers))

    # Replacing --------------------------------------------------------------------------------

    def _replace(self, regions: Sequence[Region]) -> None:
        columns = _Columns([region.numbers for region in regions])
        template = regions[0]
        kinds = [self._terms[value] for value in template.values]
        name = self._names.of(_name(kinds))
        writer = _Replacer(columns.items)
        terms = {value: writer.term(self._terms[value]) for value in template.values}
        self.blocks.append(
            Block(name, tuple(columns.parameters), template.source, terms, template.result)
        )
        for k, region in enumerate(regions):
            weights = self._weights(region)
            layer = Layer(name, columns.settings(k), tuple(weights), region.source)
            for value in region.values[:-1]:
                del self._terms[value]
            self._terms[region.result] = layer

    def _weights(self, region: Region) -> list[tuple[str, Weight]]:
        """The weights of a region by their path in the module, named as its body names the layers."""
        names = Names()
        found: list[tuple[str, Weight]] = []
        for value in region.values:
            term = self._terms[value]
            if isinstance(term, Layer):
                name = names.numbered(short_name(term.module))
                found += [(f"{name}.{path}", weight) for path, weight in term.weights]
        return found


def _apart(regions: Sequence[Region]) -> list[Region]:
    """As many of the regions, from the first on, as have no term in common."""
    taken: set[Value] = set()
    found: list[Region] = []
    for region in regions:
        if taken.isdisjoint(region.values):
            taken.update(region.values)
            found.append(region)
    return found


def _name(terms: Sequence[Term]) -> str:
    signs = {term.op for term in terms if isinstance(term, Infix)}
    if "+" in signs:
        return "Residual"
    calls = {term.function for term in terms if isinstance(term, Call)}
    return "Branches" if "concat" in calls else "Block"


class _Reader:
    """Reads terms: what is equal in all regions that are alike, and the numbers that may differ."""

    def __init__(self, places: Mapping[Value, int]) -> None:
        self.numbers: list[int] = []
        self.layers = 0
        self._places = places

    def read(self, item: Item | Cut) -> object:
        """The item without its numbers. Raises LookupError for what no region may hold."""
        match item:
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
            case Dim() | Part() | Weight():
                raise LookupError
            case _:
                return (type(item), item)

    def _layer(self, layer: Layer) -> object:
        self.layers += 1
        settings = normal(layer)
        fixed: list[object] = [layer.module, self.read(layer.source)]
        for name, value in settings:
            if is_free(name, value):
                assert isinstance(value, int)
                self.numbers.append(value)
                fixed.append(name)
            else:
                fixed.append((name, self.read(value)))
        return tuple(fixed)


def is_free(name: str, value: Item) -> bool:
    """Whether a setting is one in which regions may differ."""
    return type(value) is int and name in ("", "stride", "groups")


def normal(layer: Layer) -> list[tuple[str, Item]]:
    """The settings of a layer with those that are left out of convolutions."""
    settings = list(layer.settings)
    if not layer.module.startswith("Conv"):
        return settings
    given = {name for name, _ in settings}
    place = next(k for k, (name, _) in enumerate(settings) if name == "kernel") + 1
    missing: list[tuple[str, Item]] = [(n, v) for n, v in WITHOUT.items() if n not in given]
    return [*settings[:place], *missing, *settings[place:]]


class _Columns:
    """The numbers of regions that are alike, place for place: parameters where they differ."""

    def __init__(self, rows: Sequence[tuple[int, ...]]) -> None:
        self._rows = rows
        self._of: dict[tuple[int, ...], str] = {}
        self.items: list[Item] = []
        names = Names()
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


class _Replacer:
    """Writes parameters in place of the numbers of a region, in the order in which they are read."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = iter(items)

    def term(self, term: Term) -> Term:
        """The term with its numbers replaced; those of convolutions that are as by default vanish."""
        if not isinstance(term, Layer):
            return term
        settings: list[tuple[str, Item]] = []
        for name, value in normal(term):
            item = next(self._items) if is_free(name, value) else value
            if term.module.startswith("Conv") and WITHOUT.get(name) == item:
                continue
            settings.append((name, item))
        return replace(term, settings=tuple(settings))
