"""Plans: where each value lives, and when.

A *root* is a block of memory: an input, an output, the weights, the constants, or a place in the one
arena, alive from wave `first` to wave `last`. Each device has a part of the arena of its own. A *view* is a
typed window on a root. Kernels are grouped into *waves*: the operations of a wave run together, and
all of them end before the next operation. Sizes and offsets are in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.interface import Interface, check_interface
from dlc.ir.attributes import Dense, Symbol
from dlc.ir.core import Block, Op, Value
from dlc.ir.define import attribute, op, operand, operands, region
from dlc.ir.dims import Shape, Size
from dlc.ir.types import ROOT, Type, ViewType

KINDS = ("input", "output", "arena", "weights", "constants")


@op("mem.root")
class Root(Op):
    """A block of memory.

    `number` counts inputs, outputs and arena roots each from 0. An arena root lies at `offset`, or,
    where sizes are symbolic, above the ends of the arena roots `above`, as low as that allows. It is in
    the part of its `device`, of the host where there is none.
    """

    kind: str = attribute()
    number: int = attribute()
    bytes: Size = attribute()
    first: int = attribute(default=0)
    last: int = attribute(default=0)
    offset: int | None = attribute(default=None)
    above: tuple[int, ...] | None = attribute(default=None)
    device: str | None = attribute(default=None)

    pure = False

    def infer(self) -> Type:
        if self.kind not in KINDS:
            raise self.fail(f"{self.kind!r} is not a kind of memory; there are {', '.join(KINDS)}")
        return ROOT


@op("mem.view")
class View(Op):
    """A tensor in a root, a constant or a weight, its first element `offset` bytes from the start.

    Inside loops it may move: by `steps[k]` bytes for each round of the loop with counter `counters[k]`.
    `before` marks what an input that the program overwrites was before.
    """

    root: Value = operand()
    type: ViewType = attribute()
    offset: Size = attribute(default=0)
    counters: tuple[int, ...] = attribute(default=())
    steps: Shape = attribute(default=())
    before: bool | None = attribute(default=None)

    def infer(self) -> Type:
        return self.type


CHECKED = "dlc.checked"
"""The attribute of the wave that is the first behind the checks of a call's indices."""


@op("mem.wave")
class Wave(Op):
    """Kernels that do not depend on each other; `serial` if they are not worth a second thread.

    `commits` says that an array of the caller may have changed after it: the call is no longer cancelled.
    """

    body: Block = region()
    serial: bool = attribute(default=False)
    commits: bool = attribute(default=False)

    pure = False

    def infer(self) -> tuple[Type, ...]:
        return ()


@op("mem.end")
class End(Op):
    """End a region of the plan."""

    terminator = True
    pure = False

    def infer(self) -> tuple[Type, ...]:
        return ()


@op("mem.call")
class Call(Op):
    """Run a lowered kernel on views, the last of which it writes: `sizes` are its further arguments.

    `tiles` is how many independent parts there are, `cost` the estimated nanoseconds of one. What it
    writes could lie over each of the views `over`, in this plan or another.
    """

    views: Sequence[Value] = operands()
    kernel: Symbol = attribute()
    sizes: Shape = attribute()
    tiles: Size = attribute()
    cost: Size = attribute()
    scratch: Size = attribute(default=0, doc="bytes of each thread's own, passed as last argument")
    over: tuple[int, ...] = attribute(default=(), doc="numbers of views")
    writes: int = attribute(default=1, doc="how many of the views are written")
    label: str = attribute(default="", doc="what it computes, for people")
    operations: Size = attribute(default=0, doc="arithmetic operations of the whole call")
    bytes: Size = attribute(default=0, doc="that the whole call reads and writes")

    pure = False

    def infer(self) -> tuple[Type, ...]:
        count = len(self.views)
        if not 0 <= self.writes <= count:
            raise self.fail(f"a call of {count} views cannot write {self.writes} of them")
        outside = next((number for number in self.over if not 0 <= number < count), None)
        if outside is not None:
            raise self.fail(f"a call of {count} views cannot lie over the one numbered {outside}")
        return ()


@op("mem.constant")
class Constant(Op):
    """A view of known numbers in the artifact's constants, at `offset` bytes."""

    value: Dense = attribute()
    type: ViewType = attribute()
    offset: int = attribute()

    pure = False

    def infer(self) -> Type:
        return self.type


@op("mem.weight")
class Weight(Op):
    """A view of a weight symbol as `prepare` leaves it."""

    symbol: Symbol = attribute()
    type: ViewType = attribute()

    pure = False

    def infer(self) -> Type:
        return self.type


@op("mem.size")
class MeasuredSize(Op):
    """A dim that the call measures: it is the i64 in the view once the kernel that counts has run."""

    view: Value = operand()
    dim: str = attribute()

    pure = False

    def infer(self) -> tuple[Type, ...]:
        return ()


@op("mem.program")
class Program(Interface):
    """An entry point with its plan: roots, views and constants first, then waves and control flow.

    `arena` is how many bytes the arena needs where that is a number. Of each dim that the call measures
    there is a `mem.size`, and its limit is known before: the dim `measured[k]` is at most `limits[k]`.
    The visibility and the attributes `dlc.*` are the function's.
    """

    waves: int = attribute(doc="how many there are; roots name them by number")
    arena: int | None = attribute(default=None)
    measured: tuple[str, ...] = attribute(default=())
    limits: Shape = attribute(default=())
    sym_visibility: str | None = attribute(default=None)

    def check(self) -> None:
        check_interface(self, lambda: self.measured)

    @property
    def limit_of(self) -> dict[str, Size]:
        """The limit of each measured dim."""
        return dict(zip(self.measured, self.limits, strict=True))

    def infer(self) -> tuple[Type, ...]:
        return ()


def same_place(one: Value, other: Value) -> bool:
    """Whether two views are the same elements of the same memory."""
    match one.op, other.op:
        case View() as first, View() as second:
            return first.root is second.root and _place(first) == _place(second)
        case _:
            return False


def _place(view: View) -> tuple[object, ...]:
    """Which elements of its root a view has, whether from before the program overwrites them or after."""
    return view.type, view.offset, view.counters, view.steps


def program_of(op: Op) -> Program | None:
    """The program that an operation of a plan belongs to."""
    current: Op | None = op
    while current is not None and not isinstance(current, Program):
        current = current.parent.parent if current.parent is not None else None
    return current


@op("mem.loop")
class Loop(Op):
    """Run the body `length` times; `counter` counts the rounds from 0."""

    body: Block = region()
    counter: int = attribute()
    length: Size = attribute()

    pure = False

    def infer(self) -> tuple[Type, ...]:
        return ()


@op("mem.while")
class While(Op):
    """Run `test`, and as long as it leaves true in `condition`, the body and again.

    More than `limit` rounds fail the call; `counter` counts them.
    """

    condition: Value = operand()
    test: Block = region()
    body: Block = region()
    counter: int = attribute()
    limit: int | None = attribute(default=None)

    pure = False

    def infer(self) -> tuple[Type, ...]:
        return ()


@op("mem.choose")
class Choose(Op):
    """Run one of two regions, by the bool in `condition`."""

    condition: Value = operand()
    then: Block = region()
    otherwise: Block = region()

    pure = False

    def infer(self) -> tuple[Type, ...]:
        return ()
