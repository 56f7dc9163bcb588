"""Modules for what a network repeats, where nothing says which modules it was made of.

A region of one input and one result that stands several times in a graph, but for sizes and strides,
becomes a module, and regions may hold instances of modules that were found before.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from dlc.export.model_text.blocks import MOST_PARAMETERS, Blocks, Region, parameters
from dlc.export.model_text.terms import Call, Infix, Layer, Term, values_of
from dlc.ir.core import Value

MOST = 60
"""Terms in a region."""
LEAST = 3
"""Terms in a region, below which the text would not be shorter."""
GAIN = 6
"""Terms that a module must save."""


class Repetition:
    """Finds repeated regions; `blocks` makes modules of them. `results` are used by no term."""

    def __init__(self, blocks: Blocks, results: Sequence[Value]) -> None:
        self._blocks = blocks
        self._terms = blocks.terms
        self._results = results

    def run(self) -> None:
        """Replace them, those first that save most."""
        while True:
            regions = self._best()
            if regions is None:
                return
            kinds = [self._terms[value] for value in regions[0].values]
            self._blocks.replace(regions, _name(kinds))

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
            if saved > gain and parameters(apart) <= MOST_PARAMETERS:
                best, gain = apart, saved
        return best or None

    def _regions(
        self, result: Value, uses: Counter[Value], order: Mapping[Value, int]
    ) -> list[tuple[object, Region]]:
        """The regions that end with a value, each with what is equal for regions that are alike."""
        stored = self._blocks.stored
        inside = {result}
        regions: list[tuple[object, Region]] = []
        read = Counter(values_of(self._terms[result]))
        while len(inside) < MOST:
            edge = {value: count for value, count in read.items() if value not in stored}
            own = all(read[value] == uses[value] for value in read if value in stored)
            if len(edge) == 1 and len(inside) >= LEAST and own:
                (source,) = edge
                values = tuple(sorted(inside, key=order.__getitem__))
                described = self._described(Region((source,), values))
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

    def _described(self, region: Region) -> tuple[object, Region] | None:
        described = self._blocks.described(region)
        if described is None:
            return None
        key, region, layers = described
        terms = [self._terms[value] for value in region.values]
        kinds = {term.module if isinstance(term, Layer) else None for term in terms}
        alone = len(kinds) == 1 and None not in kinds
        return None if layers < 2 or alone else (key, region)


def _apart(regions: Sequence[Region]) -> list[Region]:
    """Greedily, from the first on, regions that have no term in common."""
    taken: set[Value] = set()
    disjoint: list[Region] = []
    for region in regions:
        if taken.isdisjoint(region.values):
            taken.update(region.values)
            disjoint.append(region)
    return disjoint


def _name(terms: Sequence[Term]) -> str:
    """By what its last two terms do."""
    for term in terms[:-3:-1]:
        if isinstance(term, Infix) and term.op == "+":
            return "Residual"
        if isinstance(term, Call) and term.function == "concat":
            return "Branches"
    return "Block"
