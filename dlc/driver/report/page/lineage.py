"""The lineage of each operation from level to level: graph, kernel, plan, and the code of a kernel.

The value map follows every result from the graph to the kernels and from there into the plan. What a
rewrite has fused into its reader has no value any more: it became those kernels of its place in the text
that its readers became, or what these became. A kernel that no value leads to, such as the transform before
a product, belongs to what reads its result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from dlc.dialects import func, kernel, mem
from dlc.ir.core import Block, Op, Value
from dlc.ir.location import FileLocation, parts_of
from dlc.ir.types import TensorType
from dlc.ir.value_map import Origin, ValueMap

Ids = Mapping[Op, str]
"""The id of each operation of a level: a letter for the level, and a number."""
_OWN = "<page>"
"""What the value map takes for the function of the values that are followed here: ids tell them apart."""
Targets = Callable[[Value], Iterable[Op]]
"""The operations of a level that compute a value."""


@dataclass(slots=True)
class Lineage:
    """Links from an id to the ids of the next level, as far as the levels have been walked."""

    links: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def from_graph(self, graph: Tracked, ids: Ids, kernels: Ids) -> None:
        """Link the operations of the graph to the kernels that they became."""
        became, guessed = graph.became(lambda value: _kernels_of(value, kernels), kernels)
        origins = _inverse(became)
        for op in reversed([op for op in kernels if op not in origins]):
            readers = {r for result in op.results for r in _reading_kernels(result, kernels)}
            sources = {source for reader in readers for source in origins.get(reader, ())}
            near = {source for source in sources if _share_place(source, op)}
            origins[op] = near or sources
            for source in origins[op]:
                became[source].add(op)
        graph.narrow(became, guessed, kernels)
        self.links |= {(ids[op], kernels[to]) for op, found in became.items() for to in found}

    def from_kernels(self, tracked: Tracked, ids: Ids, plan: Ids) -> None:
        """Link kernels to the steps of the plan that write their results."""
        became, _ = tracked.became(lambda value: _writers_of(value, plan), plan)
        for op, targets in became.items():
            self.links |= {(ids[op], plan[target]) for target in targets}

    def from_plan(self, steps: Sequence[str], codes: Sequence[str]) -> None:
        """Link each step to its code: the calls are in the order of the steps that they replace."""
        if len(steps) == len(codes):
            self.links |= {pair for pair in zip(steps, codes, strict=True) if all(pair)}


@dataclass(slots=True)
class Tracked:
    """Operations of a level whose results the value map follows from now on.

    `readers` are the operations that read the results of each, in this level, `reads` what each reads.
    """

    values: ValueMap
    names: dict[Op, list[str]] = field(default_factory=dict[Op, list[str]])
    readers: dict[Op, list[Op]] = field(default_factory=dict[Op, list[Op]])
    reads: dict[Op, list[Value]] = field(default_factory=dict[Op, list[Value]])

    @classmethod
    def of(cls, values: ValueMap, ids: Ids) -> Tracked:
        """Follow the results of these operations."""
        tracked = cls(values)
        for op, id in ids.items():
            names = tracked.names[op] = list[str]()
            for number, value in enumerate(op.results):
                if isinstance(value.type, TensorType):
                    name = f"{id}:{number}"
                    values.track(value, _OWN, name)
                    names.append(name)
            users = (_in_level(user, ids) for value in op.results for user in value.uses)
            tracked.readers[op] = [user for user in dict.fromkeys(users) if user is not None]
            tracked.reads[op] = list(op.operands)
        return tracked

    def origins(self, op: Op) -> Iterator[Origin]:
        for name in self.names[op]:
            yield self.values.of(_OWN)[name]

    def became(self, targets: Targets, level: Ids) -> tuple[dict[Op, set[Op]], set[Op]]:
        """The operations of a lower level that each one became, and those that only its readers tell."""
        here: dict[FileLocation, set[Op]] = {}
        for target in level:
            for place in parts_of(target.location):
                here.setdefault(place, set()).add(target)
        alike = Counter((op.name, *parts_of(op.location)[:1]) for op in self.names)
        became: dict[Op, set[Op]] = {}
        guessed: set[Op] = set()
        for op in reversed(self.names):
            values = [origin.value for origin in self.origins(op) if origin.value is not None]
            found = {target for value in values for target in targets(value)}
            if not found:
                readers = {to for reader in self.readers[op] for to in became.get(reader, ())}
                placed = {
                    target for place in parts_of(op.location)[:1] for target in here.get(place, ())
                }
                is_alone = alike[op.name, *parts_of(op.location)[:1]] == 1
                found = readers & placed or (placed if is_alone else set()) or readers
                if not placed:
                    guessed.add(op)
            became[op] = found
        return became, guessed

    def narrow(self, became: dict[Op, set[Op]], guessed: AbstractSet[Op], kernels: Ids) -> None:
        """Of the kernels that the readers of an operation became, keep those that read what it reads.

        Kernels that no value leads to are among them by now.
        """
        self._follow_readers([op for op in reversed(self.names) if op in guessed], became)
        for op in (op for op in self.names if op in guessed):
            fed = {to for value in self.reads[op] for to in self._fed(value, became, kernels)}
            became[op] = became[op] & fed or became[op]
        constants = [op for op in reversed(self.names) if op in guessed and not self.reads[op]]
        self._follow_readers(constants, became)

    def _follow_readers(self, ops: Iterable[Op], became: dict[Op, set[Op]]) -> None:
        for op in ops:
            readers = {to for reader in self.readers[op] for to in became.get(reader, ())}
            became[op] = readers or became[op]

    def _fed(self, value: Value, became: Mapping[Op, set[Op]], kernels: Ids) -> Iterable[Op]:
        """The kernels that read a value, or that it is inside; a constant may be in any."""
        if value.op in self.names and not self.reads[value.op]:
            return ()
        if value.op not in self.names:
            return _reading_kernels(value, kernels)
        live = [origin.value for origin in self.origins(value.op) if origin.value is not None]
        if not live:
            return became[value.op]
        return [kernel for each in live for kernel in _reading_kernels(each, kernels)]


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
    return bool(set(parts_of(one.location)) & set(parts_of(other.location)))


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
