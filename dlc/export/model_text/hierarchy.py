"""The modules that a network was made of, where the file says in which of them each node was computed.

From the innermost outwards, the terms of a module become one layer of a module of the text with the name
of its class: if they hand on one value, and nothing around them stands between. Others stay where they
are, in the module around. Layers one after the other that are alike become a stack, and a `Sequential`
becomes a chain.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from dlc.dialects.array import tensor_type
from dlc.export.model_text.blocks import (
    CHAIN,
    MOST_PARAMETERS,
    Blocks,
    Region,
    as_call,
    parameters,
)
from dlc.export.model_text.names import as_type
from dlc.export.model_text.terms import Call, Code, Item, Layer, Term, Weight, values_of
from dlc.importers.imported import ImportedScope
from dlc.ir.core import Value

SEQUENTIAL = "Sequential"
CONTAINERS = frozenset((SEQUENTIAL, "ModuleList", "ModuleDict"))
"""Classes that say nothing of what is computed."""
LEAST_STACK = 2
"""Layers that are alike one after the other, from which on they are a stack."""
LEAST_PLAIN = 4
"""Terms of a module without weights, below which it is written in the module around it."""

Scopes = Callable[[Value], Sequence[ImportedScope]]


class Hierarchy:
    """Finds the modules of a network; `blocks` makes those of the text. `results` are used by no term."""

    def __init__(self, blocks: Blocks, results: Sequence[Value], scopes: Scopes) -> None:
        self._blocks = blocks
        self._terms = blocks.terms
        self._order = {value: k for k, value in enumerate(self._terms)}
        self._kinds: dict[str, str] = {}
        self._paths: dict[Value, list[str]] = {}
        self._members: dict[str, list[Value]] = defaultdict(list)
        self._users: dict[Value, Counter[Value | None]] = defaultdict(Counter)
        for value, term in self._terms.items():
            stack = scopes(value)
            self._kinds.update({scope.path: scope.kind for scope in stack})
            self._paths[value] = [scope.path for scope in stack if scope.path]
            for path in self._paths[value]:
                self._members[path].append(value)
            self._read(value, term, 1)
        for value in results:
            self._users[value][None] += 1

    def run(self) -> None:
        """Make modules, the innermost first."""
        levels: dict[int, list[str]] = defaultdict(list)
        for path, height in _heights(self._members).items():
            levels[height].append(path)
        for height in sorted(levels):
            self._level(levels[height])
        self._stacks(list(self._terms))

    def _level(self, paths: Sequence[str]) -> None:
        """Modules of the same height."""
        groups: dict[tuple[str, object], list[tuple[str, Region]]] = defaultdict(list)
        for path in paths:
            found = self._region(path)
            if found is not None:
                key, region = found
                groups[self._kind(path), key].append((path, region))
        for (kind, _), alike in groups.items():
            for same in _of_few_parameters(alike):
                regions = [region for _, region in same]
                names = [_instance(path) for path, _ in same]
                before = [self._terms[value] for region in regions for value in region.values]
                gone = [value for region in regions for value in region.values]
                for value, term in zip(gone, before, strict=True):
                    self._read(value, term, -1)
                self._blocks.replace(regions, kind, named=True, instances=names)
                for path, region in same:
                    self._read(region.result, self._terms[region.result], 1)
                    self._leave(region.result, path)

    # Regions ----------------------------------------------------------------------------------

    def _region(self, path: str) -> tuple[object, Region] | None:
        """The region of a module; None for one that needs or allows no module of the text."""
        self._stacks(self._inside(path))
        values = self._inside(path)
        if not values:
            return None
        results = self._handed_on(values)
        if len(results) > 1 and self._moved_out(values, results, path):
            values = self._inside(path)
            results = self._handed_on(values)
        if len(results) != 1 or len(values) == len(self._terms):
            return None
        if len(values) == 1 or self._is_chain(path, values):
            self._alone(path, values)
            return None
        region = Region(tuple(self._sources(values)), tuple(values))
        is_container = self._kinds.get(path) in CONTAINERS
        if is_container or not region.sources or not self._is_convex(region):
            return None
        described = self._blocks.described(region)
        if described is None:
            return None
        key, region, layers = described
        return (key, region) if layers or len(values) >= LEAST_PLAIN else None

    def _inside(self, path: str) -> list[Value]:
        members = [value for value in self._members[path] if value in self._terms]
        return sorted(members, key=self._order.__getitem__)

    def _handed_on(self, values: Sequence[Value]) -> list[Value]:
        """What others use of these, or the whole returns."""
        inside = {*values}
        return [value for value in values if any(u not in inside for u in self._users[value])]

    def _sources(self, values: Sequence[Value]) -> list[Value]:
        """What these use of others; first what a layer works on.

        That has the type of the result, or else is computed last of all floats. A weight that others use as
        well is one of them.
        """
        inside = {*values}
        found = dict.fromkeys(
            needed
            for value in values
            for needed in values_of(self._terms[value])
            if needed not in inside and not self._is_own_weight(needed, inside)
        )
        kind = values[-1].type
        rank = {value: (value.type is kind, *self._importance(value)) for value in found}
        first = max(found, key=rank.__getitem__, default=None)
        return [] if first is None else [first, *[value for value in found if value is not first]]

    def _importance(self, value: Value) -> tuple[bool, int]:
        is_signal = tensor_type(value).dtype.is_float and value not in self._blocks.stored
        return is_signal, self._order.get(value, -1)

    def _is_own_weight(self, value: Value, inside: set[Value]) -> bool:
        return value in self._blocks.stored and all(user in inside for user in self._users[value])

    def _is_convex(self, region: Region) -> bool:
        """Whether nothing that it uses follows from what it computes."""
        inside = {*region.values}
        first = self._order[region.values[0]]
        sources = [source for source in region.sources if self._order.get(source, -1) > first]
        pending, seen = list(sources), {*sources}
        while pending:
            value = pending.pop()
            for needed in values_of(self._terms[value]):
                if needed in inside:
                    return False
                if self._order.get(needed, -1) > first and needed not in seen:
                    seen.add(needed)
                    pending.append(needed)
        return True

    def _moved_out(self, values: Sequence[Value], results: Sequence[Value], path: str) -> bool:
        """Move what is handed on before the end and needs no layer, such as masks, to the module around."""
        inside = {*values}
        moved = False
        for result in results[:-1]:
            needed = self._needed(result, inside)
            if not any(isinstance(self._terms[value], Layer) for value in needed):
                for value in needed:
                    self._leave(value, path)
                moved = True
        return moved

    def _needed(self, value: Value, inside: set[Value]) -> set[Value]:
        """A value with all of those inside that it follows from."""
        pending, seen = [value], {value}
        while pending:
            for needed in values_of(self._terms[pending.pop()]):
                if needed in inside and needed not in seen:
                    seen.add(needed)
                    pending.append(needed)
        return seen

    # What is not a module of its own -------------------------------------------------------------

    def _alone(self, path: str, values: Sequence[Value]) -> None:
        """One layer takes the name of its module; a chain becomes one."""
        result = values[-1]
        term = self._terms[result]
        if len(values) > 1:
            self._chain(values, _instance(path))
        elif isinstance(term, Layer) and not term.name:
            self._set(result, replace(term, name=_instance(_owner(term, path))))
        self._leave(result, path)

    def _is_chain(self, path: str, values: Sequence[Value]) -> bool:
        """Whether a module only applies layers and functions one after the other."""
        if self._kinds.get(path) != SEQUENTIAL:
            return False
        terms = [self._terms[value] for value in values]
        if not all(_is_link(term) for term in terms):
            return False
        sources = [next(values_of(term)) for term in terms[1:]]
        return sources == list(values[:-1]) and all(
            self._users[value].total() == 1 for value in values[:-1]
        )

    def _chain(self, values: Sequence[Value], name: str) -> None:
        terms = [self._terms[value] for value in values]
        settings: list[tuple[str, Item]] = []
        weights: list[tuple[str, Weight]] = []
        for k, term in enumerate(terms):
            if isinstance(term, Layer):
                settings.append(("", as_call(term.module, term.settings)))
                weights += [(f"{k}.{path}", weight) for path, weight in term.weights]
            else:
                assert isinstance(term, Call)
                settings.append(("", Code(term.function)))
        source = next(values_of(terms[0]))
        self._drop(values[:-1])
        self._set(values[-1], Layer(CHAIN, tuple(settings), tuple(weights), source, name=name))

    def _stacks(self, values: Sequence[Value]) -> None:
        """Make stacks of the layers among these that are alike and follow each other."""
        followed: set[Value] = set()
        for value in values:
            if value in followed or value not in self._terms:
                continue
            run = [value]
            while (after := self._next(run[-1])) is not None:
                run.append(after)
            followed.update(run)
            if len(run) >= LEAST_STACK:
                self._stack(run)

    def _next(self, value: Value) -> Value | None:
        """The layer alike that alone uses the result of one."""
        layer = self._terms[value]
        (user, *others) = self._users[value] or [None]
        if user is None or others or not isinstance(layer, Layer) or not self._is_made(layer):
            return None
        after = self._terms[user]
        return user if isinstance(after, Layer) and _follows(layer, value, after) else None

    def _is_made(self, layer: Layer) -> bool:
        """Whether a layer is of a module of the text, and of a list."""
        return bool(_list_of(layer.name)) and any(layer.module == b.name for b in self._blocks.made)

    def _stack(self, run: Sequence[Value]) -> None:
        layers = [term for value in run if isinstance(term := self._terms[value], Layer)]
        weights = [
            (alike[0][0], _stacked([weight for _, weight in alike]))
            for alike in zip(*[layer.weights for layer in layers], strict=True)
        ]
        name = _list_of(layers[0].name) or ""
        stack = replace(
            layers[-1],
            source=layers[0].source,
            weights=tuple(weights),
            name=name,
            count=len(layers),
        )
        self._drop(run[:-1])
        self._set(run[-1], stack)

    # Changes ----------------------------------------------------------------------------------

    def _read(self, value: Value, term: Term, count: int) -> None:
        """Count what a term uses; -1 for one that goes."""
        for needed in values_of(term):
            users = self._users[needed]
            users[value] += count
            if not users[value]:
                del users[value]

    def _set(self, value: Value, term: Term) -> None:
        self._read(value, self._terms[value], -1)
        self._terms[value] = term
        self._read(value, term, 1)

    def _drop(self, values: Iterable[Value]) -> None:
        for value in values:
            self._read(value, self._terms.pop(value), -1)

    def _leave(self, value: Value, path: str) -> None:
        """A value is computed in the module around that of the path from now on."""
        paths = self._paths[value]
        gone = {*paths[paths.index(path) :]} if path in paths else set[str]()
        self._paths[value] = [other for other in paths if other not in gone]
        for other in gone:
            self._members[other].remove(value)

    def _kind(self, path: str) -> str:
        kind = self._kinds.get(path, "")
        name = re.split(r"\.\d+|\.", path.rstrip("0123456789").rstrip("."))[-1]
        return as_type(name if not kind or kind in CONTAINERS else kind)


def _heights(paths: Iterable[str]) -> dict[str, int]:
    """How many modules lie within each other in a module, itself included, in the order of the paths.

    >>> _heights(["net", "net.norm", "net.blocks.0.norm"])
    {'net': 2, 'net.norm': 1, 'net.blocks.0.norm': 1}
    """
    order = dict.fromkeys(paths, 1)
    for path in sorted(order, key=len, reverse=True):
        above = path.rpartition(".")[0]
        while above and above not in order:
            above = above.rpartition(".")[0]
        if above:
            order[above] = max(order[above], order[path] + 1)
    return order


def _owner(layer: Layer, path: str) -> str:
    """The module of a layer's weights, if it stands beside that of its node; else the module of the node.

    An exporter that folds a norm into a convolution leaves the convolution in the place of the norm.
    """
    owner = layer.weights[0][1].origin.rpartition(".")[0] if layer.weights else ""
    beside = owner.rpartition(".")[0] == path.rpartition(".")[0]
    return owner if owner and beside else path


def _is_link(term: Term) -> bool:
    match term:
        case Layer(more=more, count=count):
            return not more and not count
        case Call(_, (Value(),), ()):
            return True
        case _:
            return False


def _follows(layer: Layer, value: Value, after: Layer) -> bool:
    """Whether a layer is like the one whose value it takes."""
    same = (layer.module, layer.settings, layer.more) == (after.module, after.settings, after.more)
    shapes = [[weight.array.shape for _, weight in each.weights] for each in (layer, after)]
    return (
        same
        and after.source is value
        and layer.source.type is value.type
        and not layer.count
        and not after.count
        and shapes[0] == shapes[1]
        and _list_of(after.name) == _list_of(layer.name)
    )


def _stacked(weights: Sequence[Weight]) -> Weight:
    first = weights[0]
    elements = np.stack([weight.array for weight in weights])
    parts = tuple([weight.origin for weight in weights])
    return Weight(elements, first.dtype, first.origin, first.trained, parts)


def _list_of(name: str) -> str | None:
    """The name of a list, from that of one of its layers.

    >>> _list_of("blocks0"), _list_of("layer1_0"), _list_of("norm")
    ('blocks', 'layer1', None)
    """
    found = re.fullmatch(r"(.*\d)_\d+|(.*?)\d+", name)
    return None if found is None else found[1] or found[2]


def _instance(path: str) -> str:
    """The name of a module in the one around it: `norm`, or `blocks0` for one of a list.

    >>> _instance("encoder.blocks.0"), _instance("layer1.0"), _instance("encoder.blocks.0.norm")
    ('blocks0', 'layer1_0', 'norm')
    """
    found = re.search(r"(?:^|\.)([A-Za-z]\w*)((?:\.\d+)*)$", path, re.ASCII)
    if found is None:
        return ""
    name, numbers = found.groups()
    mark = "_" if name[-1].isdigit() else ""
    return f"{name}{mark}{'_'.join(numbers.split('.')[1:])}" if numbers else name


def _of_few_parameters(
    alike: Sequence[tuple[str, Region]],
) -> Iterable[Sequence[tuple[str, Region]]]:
    """These as one module, or those of equal numbers as one, where they differ in too many."""
    if parameters([region for _, region in alike]) <= MOST_PARAMETERS:
        return [alike]
    groups: Mapping[tuple[int, ...], list[tuple[str, Region]]] = defaultdict(list)
    for path, region in alike:
        groups[region.numbers].append((path, region))
    return groups.values()
