"""Horizontal fusion: small calls of a wave become one launch on a GPU, whose blocks branch to their kernel.

They are element-wise, such as the updates of small weights: the threads of a block are independent, so the
code of several kernels may be in the branches of one. Calls of a wave do not depend on each other, and
so neither do the blocks of the fused kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from dlc.dialects import loop, mem, simt
from dlc.dialects.builtin import Module
from dlc.dialects.expr import Expr
from dlc.ir.attributes import Symbol
from dlc.ir.clone import clone_into
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.dims import Bounds, Size, maximum, total
from dlc.ir.intervals import interval
from dlc.ir.passes import Context, define_pass
from dlc.ir.types import INDEX, POINTER
from dlc.lowering.kernel_code.words import either
from dlc.runtime.abi import MAX_ARGS
from dlc.target import gpu_of

ELEMENT_WISE = ("loop", "scalar", "vec")
"""Dialects of code that threads run each for itself, with two operations of `simt`."""


@define_pass("fuse_horizontally")
def fuse_horizontally(module: Op, context: Context) -> None:
    """Make one launch of calls that stand side by side and do little."""
    assert isinstance(module, Module)
    bundles = _Bundles(module, gpu_of(context.options).occupancy.light_blocks)
    for wave in [op for op in module.walk() if isinstance(op, mem.Wave)]:
        program = mem.program_of(wave)
        if program is None or program.measured:
            continue
        calls = [op for op in wave.body if isinstance(op, mem.Call)]
        small = [call for call in calls if bundles.is_small(call, program.bounds)]
        for group in _groups(sorted(small, key=bundles.threads), bundles):
            context.log.did("launch together", group[-1], calls=len(group))
            bundles.replace(group)
    bundles.sweep()


def _groups(calls: Sequence[mem.Call], bundles: _Bundles) -> Iterator[list[mem.Call]]:
    """Calls that fit into one launch, two or more of them, of blocks of as many threads."""
    group = list[mem.Call]()
    for call in calls:
        differs = group and bundles.threads(group[0]) != bundles.threads(call)
        if differs or _arguments([*group, call]) > MAX_ARGS:
            if len(group) > 1:
                yield group
            group = []
        group.append(call)
    if len(group) > 1:
        yield group


def _arguments(calls: Sequence[mem.Call]) -> int:
    reads, writes, sizes = _shared(calls)
    return len(reads) + len(writes) + len(sizes) + len(calls)


def _shared(calls: Sequence[mem.Call]) -> tuple[list[Value], list[Value], list[Size]]:
    """What calls read, each array once, what they write, and their sizes."""
    reads = [view for call in calls for view in _reads(call)]
    sizes = [size for call in calls for size in call.sizes]
    writes = [view for call in calls for view in call.views[len(_reads(call)) :]]
    return list(dict.fromkeys(reads)), writes, list(dict.fromkeys(sizes))


def _reads(call: mem.Call) -> Sequence[Value]:
    return call.views[: len(call.views) - call.writes]


class _Bundles:
    """The functions of a module, and those that were made of several."""

    def __init__(self, module: Module, light_blocks: int) -> None:
        self.module = module
        self.light_blocks = light_blocks
        self.functions = {op.sym_name: op for op in module.body if isinstance(op, simt.Func)}
        self._others = sum(isinstance(op, loop.Func) for op in module.body)
        """How many functions have names besides."""
        self._small = {name: _by_elements(op) for name, op in self.functions.items()}
        self._made: dict[tuple[object, ...], str] = {}

    def threads(self, call: mem.Call) -> int:
        """The threads of a block."""
        return self.functions[call.kernel.name].threads

    def is_small(self, call: mem.Call, bounds: Bounds) -> bool:
        """Whether a call has few blocks, of threads that work each for itself."""
        _, most = interval(call.tiles, bounds)
        few = most is not None and most <= self.light_blocks
        return few and call.scratch == 0 and self._small.get(call.kernel.name, False)

    def replace(self, calls: Sequence[mem.Call]) -> None:
        """Put one call in the place of several of a wave."""
        reads, writes, sizes = _shared(calls)
        ends = list(accumulate(call.tiles for call in calls))
        over = [view for call in calls for view in (call.views[k] for k in call.over)]
        last = calls[-1]
        cost = last.cost
        for call in calls:
            cost = maximum(cost, call.cost)
        made = mem.Call(
            [*reads, *writes],
            Symbol(self._function(calls, reads, writes, sizes)),
            (*sizes, *ends[:-1]),
            ends[-1],
            cost,
            over=tuple(sorted({reads.index(view) for view in over})),
            writes=len(writes),
            label=f"{last.label} and {len(calls) - 1} more",
            operations=total(call.operations for call in calls),
            bytes=total(call.bytes for call in calls),
        )
        Builder.before_op(last).place(made)
        for call in calls:
            call.erase()

    def sweep(self) -> None:
        """Erase the functions that nothing calls any more."""
        called = {op.kernel.name for op in self.module.walk() if isinstance(op, mem.Call)}
        for name, function in self.functions.items():
            if name not in called:
                function.erase()

    def _function(
        self,
        calls: Sequence[mem.Call],
        reads: Sequence[Value],
        writes: Sequence[Value],
        sizes: Sequence[Size],
    ) -> str:
        """The name of the kernel that does what several calls do."""
        places = list[tuple[int, ...]]()
        written = len(reads)
        for call in calls:
            own = range(written, written + call.writes)
            written += call.writes
            after = len(reads) + len(writes)
            places.append(
                (
                    *[reads.index(view) for view in _reads(call)],
                    *own,
                    *[after + sizes.index(size) for size in call.sizes],
                )
            )
        names = [call.kernel.name for call in calls]
        key = (tuple(names), tuple(places), len(reads) + len(writes), len(sizes))
        if key not in self._made:
            self._made[key] = name = f"generic_{self._others + len(self.functions)}"
            pieces = [self.functions[name] for name in names]
            made = _bundle(name, pieces, places, len(reads) + len(writes), len(sizes))
            made.location = calls[-1].location
            self.functions[name] = made
            Builder(self.module.body, made.location).place(made)
        return self._made[key]


def _by_elements(function: simt.Func) -> bool:
    """Whether the threads of a kernel have nothing together, and nothing in it can fail."""
    return not function.narrow and all(
        isinstance(op, simt.Load | simt.Store)
        or (op.name.partition(".")[0] in ELEMENT_WISE and not isinstance(op, loop.Fail))
        for op in function.walk()
        if op is not function
    )


def _bundle(
    name: str,
    pieces: Sequence[simt.Func],
    places: Sequence[Sequence[int]],
    pointers: int,
    sizes: int,
) -> simt.Func:
    """A kernel whose blocks do the work of some kernels, one after the other.

    Its arguments are pointers, sizes, and where the blocks of all pieces but the last end; `places` says
    which of these a piece takes.
    """
    block = Block([INDEX, INDEX], ["tile", "thread"])
    emit = Builder(block, pieces[0].location)
    tile, thread = (Expr(emit, argument) for argument in block.arguments)
    shared = [block.add_argument(POINTER, f"p{k}") for k in range(pointers)]
    shared += [block.add_argument(INDEX, f"n{k}") for k in range(sizes)]
    ends = [Expr(emit, block.add_argument(INDEX, f"end{k}")) for k in range(len(pieces) - 1)]

    def run(number: int) -> None:
        own = tile - ends[number - 1] if number > 0 else tile
        arguments = [shared[place] for place in places[number]]
        clone_into(pieces[number].body, emit, [own.value, thread.value, *arguments])

    def choose(number: int) -> None:
        if number == len(ends):
            run(number)
        else:
            either(tile < ends[number], lambda: run(number), lambda: choose(number + 1))

    choose(0)
    emit.place(loop.Return())
    return simt.Func(block, name, pieces[0].threads, max(piece.blocks for piece in pieces))
