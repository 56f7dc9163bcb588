"""Alias classes: the values that share each root of the arena, and why they do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dlc.codegen.program.certificate import Placed
from dlc.dialects import mem
from dlc.dialects.measured import upper_bound
from dlc.ir.core import Value
from dlc.ir.dims import Size
from dlc.ir.types import ViewType
from dlc.runtime.artifact.arena_values import ArenaValues, How, ValueRecord
from dlc.runtime.artifact.kernel_records import KernelRecord


def arena_values(
    program: mem.Program,
    placed: Sequence[Placed],
    calls: Mapping[mem.Call, int],
    records: Sequence[KernelRecord],
) -> ArenaValues:
    """The values in the roots of a program; `calls` are its calls' op ids, which `records` are by."""
    uses = _Uses(program.limit_of)
    for call, op_id in calls.items():
        uses.add(call, op_id)
    roots = {each.root.result: index for index, each in enumerate(placed)}
    views = [
        op
        for op in program.body
        if isinstance(op, mem.View) and op.root in roots and op.result.uses
    ]
    joined = uses.joined(views)
    return ArenaValues(
        tuple([record.title for record in records]),
        tuple(
            ValueRecord(
                view.result.name or "",
                _type(view),
                roots[view.root],
                "joined" if view in joined else _how(view, uses),
                tuple(uses.made_by.get(view.result, joined.get(view, ()))),
                tuple(uses.read_by.get(view.result, ())),
                str(view.location.own.place or ""),
            )
            for view in views
        ),
    )


@dataclass(slots=True)
class _Uses:
    """Which calls write and read each view, by op id, and what each writer of a view reads."""

    limits: Mapping[str, Size]
    made_by: dict[Value, list[int]] = field(default_factory=dict[Value, list[int]])
    read_by: dict[Value, list[int]] = field(default_factory=dict[Value, list[int]])
    sources: dict[Value, set[Value]] = field(default_factory=dict[Value, set[Value]])
    whole: dict[Value, int] = field(default_factory=dict[Value, int])
    """The first op that writes from the start of a root."""
    pieces: dict[Value, list[int]] = field(default_factory=dict[Value, list[int]])
    """The ops that write pieces of a root."""
    entire: set[Value] = field(default_factory=set[Value])
    """The roots that some op writes as a whole, not over what it reads."""

    def add(self, call: mem.Call, op_id: int) -> None:
        split = len(call.views) - call.writes
        reads, writes = call.views[:split], call.views[split:]
        for view in dict.fromkeys(reads):
            self.read_by.setdefault(view, []).append(op_id)
        for view in dict.fromkeys(writes):
            self.made_by.setdefault(view, []).append(op_id)
            self.sources.setdefault(view, set()).update(reads)
            if isinstance(view.op, mem.View):
                over = any(_same_bytes(view.op, source) for source in reads)
                self._add_written(view.op, op_id, over)

    def _add_written(self, view: mem.View, op_id: int, over: bool) -> None:
        """Note that an op writes a view, perhaps over what it reads there."""
        if view.offset == 0 and not view.counters:
            self.whole.setdefault(view.root, op_id)
        if self.is_piece(view):
            self.pieces.setdefault(view.root, []).append(op_id)
        elif not over:
            self.entire.add(view.root)

    def is_piece(self, view: mem.View) -> bool:
        """Whether a view is of a part of its root only."""
        root = view.root.op
        assert isinstance(root, mem.Root)
        return bool(view.counters) or upper_bound(_bytes(view), self.limits) != root.bytes

    def joined(self, views: Sequence[mem.View]) -> dict[mem.View, list[int]]:
        """One view of each whole root that is written only in pieces, with the ops that write them."""
        whole_views: dict[Value, mem.View] = {}
        for view in views:
            if (
                view.root in self.pieces
                and view.root not in self.entire
                and view.result not in self.made_by
                and not self.is_piece(view)
            ):
                whole_views.setdefault(view.root, view)
        return {view: list(dict.fromkeys(self.pieces[root])) for root, view in whole_views.items()}


def _how(view: mem.View, uses: _Uses) -> How:
    """Why a value shares its root, or has its own."""
    made_by = uses.made_by.get(view.result)
    if made_by is None:
        return "view"
    if any(_same_bytes(view, source) for source in uses.sources[view.result]):
        return "in place"
    if uses.is_piece(view):
        return "part"
    return "own" if uses.whole.get(view.root) in made_by else "again"


def _same_bytes(view: mem.View, other: Value) -> bool:
    """Whether two views are of the same bytes."""
    match other.op:
        case mem.View() as other_view:
            return (
                other_view.root is view.root
                and (other_view.offset, other_view.counters, other_view.steps)
                == (view.offset, view.counters, view.steps)
                and _bytes(other_view) == _bytes(view)
            )
        case _:
            return False


def _bytes(view: mem.View) -> Size:
    type = view.type
    assert isinstance(type, ViewType)
    return type.tensor.size * type.dtype.bytes


def _type(view: mem.View) -> str:
    """The type of a value, as the language writes it."""
    type = view.type
    assert isinstance(type, ViewType)
    return (
        f"{type.dtype.name}[{', '.join(map(str, type.shape))}]" if type.shape else type.dtype.name
    )
