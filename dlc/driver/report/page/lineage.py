"""What became of each operation from level to level: graph, kernel, plan, and the code of a kernel.

The value map follows every result from the graph to the kernels and from there into the plan. What a
rewrite has fused into its reader has no value any more: it became those kernels of its place in the text
that its readers became, or what these became. A kernel that no value leads to, such as the transform before
a product, belongs to what reads its result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dlc.dialects import func, kernel, mem
from dlc.ir.core import Block, Op, Value
from dlc.ir.location import FileLocation, FusedLocation, UnknownLocation
from dlc.ir.types import TensorType
from dlc.ir.value_map import Origin, ValueMap

Ids = Mapping[Op, str]
"""The id of each operation of a level: a letter for the level, and a number."""
Targets = Callable[[Value], Iterable[Op]]
"""The operations of a level that compute a value."""


@dataclass(slots=True)
class Lineage:
    """Links from an id to the ids of the next level, as far as the levels have been walked."""

    links: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def from_graph(self, graph: Tracked, ids: Ids, kernels: Ids) -> None:
        """Link the operations of the graph to the kernels that they became."""
        became = graph.became(lambda value: _kernels_of(value, kernels), kernels)
        found: set[Op] = set()
        for op, targets in became.items():
            found |= targets
            self.links |= {(ids[op], kernels[target]) for target in targets}
        origins = _inverse(became)
        for op in reversed([op for op in kernels if op not in found]):
            readers = {r for result in op.results for r in _reading_kernels(result, kernels)}
            sources = {source for reader in readers for source in origins.get(reader, ())}
            near = {source for source in sources if _share_place(source, op)}
            origins[op] = near or sources
            self.links |= {(ids[source], kernels[op]) for source in origins[op]}

    def from_kernels(self, tracked: Tracked, ids: Ids, plan: Ids) -> None:
        """Link kernels to the steps of the plan that write their results."""
        became = tracked.became(lambda value: _writers_of(value, plan), plan)
        for op, targets in became.items():
            self.links |= {(ids[op], plan[target]) for target in targets}

    def from_plan(self, steps: Sequence[str], codes: Sequence[str]) -> None:
        """Link each step to its code: the calls stand in the order of the steps that they replace."""
        if len(steps) == len(codes):
            self.links |= {pair for pair in zip(steps, codes, strict=True) if all(pair)}


@dataclass(slots=True)
class Tracked:
    """Operations of a level whose results the value map follows from now on.

    `readers` are the operations that read the results of each, in this level.
    """

    values: ValueMap
    names: dict[Op, list[str]] = field(default_factory=dict[Op, list[str]])
    readers: dict[Op, list[Op]] = field(default_factory=dict[Op, list[Op]])

    @classmethod
    def of(cls, values: ValueMap, ids: Ids) -> Tracked:
        """Follow the results of these operations."""
        tracked = cls(values)
        for op, id in ids.items():
            names = tracked.names[op] = list[str]()
            for number, value in enumerate(op.results):
                if isinstance(value.type, TensorType):
                    name = f"{id}:{number}"
                    values.track(value, name)
                    names.append(name)
            users = (_in_level(user, ids) for value in op.results for user in value.uses)
            tracked.readers[op] = [user for user in dict.fromkeys(users) if user is not None]
        return tracked

    def origins(self, op: Op) -> Iterator[Origin]:
        for name in self.names[op]:
            yield self.values.origins[name]

    def became(self, targets: Targets, level: Ids) -> dict[Op, set[Op]]:
        """The operations of a lower level that each one became."""
        became: dict[Op, set[Op]] = {}
        for op in reversed(self.names):
            found: set[Op] = set()
            for origin in self.origins(op):
                if origin.value is not None:
                    found |= set(targets(origin.value))
            became[op] = found or self._fused(op, became, level)
        return became

    def _fused(self, op: Op, became: Mapping[Op, set[Op]], level: Ids) -> set[Op]:
        """What an operation became that has no value any more."""
        readers = {target for reader in self.readers[op] for target in became.get(reader, ())}
        main = places(op)[:1]
        here = {target for target in level if main and main[0] in places(target)}
        if readers & here or not here:
            return readers & here or readers
        alone = sum(places(other)[:1] == main and other.name == op.name for other in self.names)
        return here if alone == 1 else readers


def _in_level(user: Op, ids: Ids) -> Op | None:
    """The operation of the level that a user is, or that it ends: a yield hands on to its loop."""
    if user in ids:
        return user
    around = user.parent.parent if user.terminator and user.parent is not None else None
    return around if around in ids else None


def _kernels_of(value: Value, kernels: Ids) -> Iterator[Op]:
    """The kernel that computes a value, perhaps in another shape."""
    op = value.op
    while op is not None:
        if op in kernels:
            yield op
            return
        op = op.operands[0].op if op.operands else None


def _reading_kernels(value: Value, kernels: Ids) -> Iterator[Op]:
    """The kernels that read a value, perhaps in another shape."""
    pending, seen = [value], set[Value]()
    while pending:
        value = pending.pop()
        seen.add(value)
        for user in value.uses:
            if user in kernels:
                yield user
            else:
                pending += [result for result in user.results if result not in seen]


def _writers_of(view: Value, plan: Ids) -> Iterator[Op]:
    """The steps that write a view, or another view of its root where none writes this one."""
    direct = [user for user in view.uses if _writes(user, view) and user in plan]
    if direct or not isinstance(view.op, mem.View):
        yield from direct
        return
    for other in view.op.root.uses:
        if isinstance(other, mem.View):
            yield from (u for u in other.result.uses if _writes(u, other.result) and u in plan)


def _writes(op: Op, view: Value) -> bool:
    return isinstance(op, kernel.Kernel) and view in op.targets


def _share_place(one: Op, other: Op) -> bool:
    return bool(set(places(one)) & set(places(other)))


def places(op: Op) -> tuple[FileLocation, ...]:
    """The places in texts that an operation comes from, the main one first."""
    match op.location:
        case FileLocation() as place:
            return (place,)
        case FusedLocation(parts):
            return parts
        case UnknownLocation():
            return ()


def _inverse(became: Mapping[Op, Iterable[Op]]) -> dict[Op, set[Op]]:
    origins: dict[Op, set[Op]] = {}
    for op, targets in became.items():
        for target in targets:
            origins.setdefault(target, set()).add(op)
    return origins


# The operations of a level ------------------------------------------------------------------------


def graph_ids(functions: Iterable[func.Func]) -> dict[Op, str]:
    """Ids for the operations of functions at graph level, and of the regions in them."""
    ops = (op for f in functions for op in f.walk() if op is not f and not op.terminator)
    return {op: f"g{number}" for number, op in enumerate(ops)}


def kernel_ids(functions: Iterable[func.Func]) -> dict[Op, str]:
    """Ids for kernels, loops and branches, without what is inside a kernel."""
    ops = (op for f in functions for op in _kernels_in(f.body))
    return {op: f"k{number}" for number, op in enumerate(ops)}


def _kernels_in(block: Block) -> Iterator[Op]:
    for op in block:
        if op.name.startswith("flow.") and not op.terminator:
            yield op
            for region in op.regions:
                yield from _kernels_in(region)
        elif isinstance(op, kernel.Kernel) or op.name.startswith("comm."):
            yield op


def steps(programs: Iterable[Op]) -> list[Op]:
    """What runs in the waves of programs, in order: kernels in the plan, calls of their code later."""
    return [
        op
        for program in programs
        if isinstance(program, mem.Program)
        for wave in program.walk()
        if isinstance(wave, mem.Wave)
        for op in wave.body
        if not op.terminator
    ]
