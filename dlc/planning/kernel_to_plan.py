"""From kernels to the plan: every value gets a buffer and an offset, every kernel a wave.

`copy_insertion` prepares the function, `waves` forms waves, `buffer_assignment` assigns buffers and
`offset_assignment` places them in the arena; here the program is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dlc.dialects import array, flow, func, kernel, mem, weight
from dlc.dialects.builtin import Module
from dlc.dialects.comm import HOST, Recv
from dlc.dialects.measured import Measuring, measuring, upper_bounds
from dlc.ir.attributes import Dense
from dlc.ir.clone import move_into
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.location import Location
from dlc.ir.passes import Context, define_pass
from dlc.ir.types import ViewType
from dlc.ir.value_map import EQUAL, Rearrangement
from dlc.passes.graph.check_first import CHECKS_FIRST, checks_name
from dlc.passes.graph.device_placement import devices_of
from dlc.planning.arena import align
from dlc.planning.buffer_assignment import FIXED, BufferAssignment, PlannedBuffer, assign_buffers
from dlc.planning.copy_insertion import copy, insert_copies
from dlc.planning.failures import NEVER, last_failure
from dlc.planning.lifetimes import lifetimes
from dlc.planning.measured_sizes import Reads, refuse_unplanned
from dlc.planning.offset_assignment import ArenaOffsets, LiveBuffer, assign_offsets, cases_of
from dlc.planning.waves import NEW_WAVE, Choice, Item, Loop, Scheduler, Wave


@define_pass("plan_memory", required=True)
def plan_memory(module: Op, context: Context, *, effort: int | None = None) -> None:
    """Give every value a place in memory and every kernel a wave.

    `effort` multiplies the steps of the arena search; the default is that of the compilation.
    """
    assert isinstance(module, Module)
    if effort is not None:
        context = replace(context, options=replace(context.options, plan_effort=effort))
    constants = Constants()
    for op in list(module.body):
        if isinstance(op, func.Func):
            _put_checks_first(op, module)
    for op in list(module.body):
        if isinstance(op, func.Func):
            _plan_function(op, constants, context)


_BEHIND_CHECKS = "dlc.behind_checks"
"""The attribute of the first kernel of a function, before which nothing but its indices is looked at."""


def _put_checks_first(function: func.Func, module: Module) -> None:
    """Move the checks of a function in front of its body, whose first kernel begins a new wave."""
    checks = module.symbol(checks_name(function.sym_name))
    if not isinstance(checks, func.Func):
        return
    work = [op for op in function.body if op.regions or isinstance(op, kernel.Kernel)]
    first = next((op for op in work if isinstance(op, kernel.Kernel)), None)
    if first is not None:
        first.attributes[NEW_WAVE] = True
        if first is work[0]:
            first.attributes[_BEHIND_CHECKS] = True
    emit = Builder(function.body, function.location, function.body.first)
    move_into(checks.body, emit, function.body.arguments)
    checks.erase()


@dataclass(slots=True)
class Constants:
    """The artifact's constants, each stored once."""

    offsets: dict[bytes, int] = field(default_factory=dict[bytes, int])
    size: int = 0

    def offset(self, value: Dense) -> int:
        """The offset of these bytes; they are added if they are new."""
        if value.data not in self.offsets:
            self.offsets[value.data] = self.size
            self.size += align(max(1, len(value.data)))
        return self.offsets[value.data]


def _plan_function(function: func.Func, constants: Constants, context: Context) -> None:
    _arrive(function, context)
    insert_copies(function)
    devices = devices_of(function)
    measured = measuring(function)
    refuse_unplanned(function, measured)
    limits = upper_bounds(measured)
    reads = Reads(measured)
    scheduler = Scheduler(function, reads)
    items = scheduler.run()
    lives = lifetimes(items, scheduler.origins, reads)
    assignment = assign_buffers(
        function,
        items,
        scheduler.origins,
        lives,
        scheduler.waves,
        limits,
        devices,
        context.log,
        last_failure(items) if CHECKS_FIRST in function.attributes else NEVER,
    )
    writer = _Writer(function, scheduler, assignment, constants, context)
    program = writer.write(items, measured)
    if limits:
        program.attributes["measured"] = tuple(limits)
        program.attributes["limits"] = tuple(limits.values())


def _arrive(function: func.Func, context: Context) -> None:
    """Replace what is received by what is sent: it has arrived when the wave that sends it ends."""
    rewriter = context.rewriter
    for op in list(function.walk(formulas=False)):
        if isinstance(op, Recv):
            rewriter.replace(op, op.sent, relation=EQUAL)


class _Writer:
    """Writes the program: roots, then views as they are needed, then the work in order."""

    def __init__(
        self,
        function: func.Func,
        scheduler: Scheduler,
        assignment: BufferAssignment,
        constants: Constants,
        context: Context,
    ) -> None:
        self.function = function
        self.origins = scheduler.origins
        self.assignment = assignment
        self.constants = constants
        self.context = context
        self.updated = frozenset(function.updates.values())
        """The numbers of the arguments that results update."""
        self.end = scheduler.waves - 1
        self.body = Block()
        self.first_written: dict[int, int] = {}
        """The index of each wave of the schedule among those written; an empty one has that of the next."""
        self.last_written: dict[int, int] = {}
        """The same, but an empty wave has the index of the one before."""
        self._written_waves = 0
        self.roots: list[Value] = []
        self._views: dict[Value, Value] = {}
        self._divider: Op | None = None

    def write(self, items: list[Item], measured: Mapping[str, Measuring]) -> mem.Program:
        """Put the program into the place of the function."""
        function = self.function
        self._number_waves(items)
        self._count_wave(self.end, self.end in self.assignment.copies)
        arena = self._offsets()
        self._write_roots(arena)
        emit = Builder(self.body, function.location)
        self._divider = emit.place(mem.End())
        self._work(items, emit)
        self._copies(self.end, emit)
        self._follow_rearranged()
        before = Builder(self.body, function.location, self._divider)
        for name, op in measured.items():
            before.place(mem.MeasuredSize(self.view(op.count), name))
        emit.place(mem.End())
        self.body.unlink(self._divider)
        program = mem.Program(
            self.body,
            function.sym_name,
            function.function_type,
            max(1, self._written_waves),
            arena.total,
            sym_visibility=function.sym_visibility,
        )
        for key, value in function.attributes.items():
            if key.startswith("dlc."):
                program.attributes[key] = value
        Builder.before_op(function).place(program)
        function.erase()
        return program

    def _number_waves(self, items: list[Item]) -> None:
        """Number the waves as the engine does, without copying waves that copy nothing."""
        for item in items:
            match item:
                case Wave(number):
                    self._count_wave(number, True)
                case Loop():
                    self._count_wave(item.enter, bool(self.assignment.copies[item.enter]))
                    self._number_waves(item.test)
                    self._number_waves(item.body)
                    self._count_wave(item.leave, bool(self.assignment.copies[item.leave]))
                case Choice():
                    self._number_waves(item.then)
                    self._number_waves(item.otherwise)

    def _count_wave(self, number: int, is_written: bool) -> None:
        self.first_written[number] = self._written_waves
        self._written_waves += is_written
        self.last_written[number] = max(self._written_waves - 1, 0)

    def _offsets(self) -> ArenaOffsets:
        """Where the buffers lie in the arena."""
        live_buffers = [
            LiveBuffer(buffer, *self._lifetime(buffer))
            for buffer in self.assignment.buffers
            if buffer.kind == "arena"
        ]
        options = self.context.options
        cases = cases_of(self.function, options.planned_batch)
        return assign_offsets(live_buffers, cases, options.plan_effort, self.context.compiler)

    def _write_roots(self, arena: ArenaOffsets) -> None:
        # The location of a buffer is that of the first value in it.
        values = reversed(self.assignment.allocations.items())
        locations = {allocation.buffer: self._location(value) for value, allocation in values}
        for index, buffer in enumerate(self.assignment.buffers):
            emit = Builder(self.body, locations.get(index, self.function.location))
            in_arena = buffer.kind == "arena"
            first, last = self._lifetime(buffer)
            self.roots.append(
                emit(
                    mem.Root(
                        buffer.kind,
                        buffer.number,
                        buffer.bytes,
                        first,
                        last,
                        arena.offsets.get(buffer.number) if in_arena else None,
                        arena.above.get(buffer.number) if in_arena else None,
                        None if buffer.device == HOST else buffer.device,
                    )
                )
            )

    def _lifetime(self, buffer: PlannedBuffer) -> tuple[int, int]:
        """The first and the last wave that need a buffer."""
        end = max(self._written_waves - 1, 0)
        if buffer.kind != "arena":
            return 0, end
        first = min(self.first_written.get(buffer.first, 0), end)
        return first, max(first, self.last_written.get(buffer.last, end))

    def _location(self, value: Value) -> Location:
        return self.function.location if value.op is None else value.op.location

    # Views.

    def view(self, value: Value) -> Value:
        """The view of a value, made once, before the first wave."""
        view = self._views.get(value)
        if view is None:
            view = self._views[value] = self._make_view(value)
            view.name = value.name
            self.context.values.replaced(value, view, EQUAL)
        return view

    def _make_view(self, value: Value) -> Value:
        type = kernel.array_type(value)
        dense = ViewType(type.dtype, type.shape)
        emit = Builder(self.body, self._location(value), self._divider)
        allocation, origin = self.assignment.allocation(value, self.origins), self.origins[value]
        match origin.op:
            case array.Constant(value=elements) if allocation is None:
                return emit(mem.Constant(elements, dense, self.constants.offset(elements)))
            case weight.Get(symbol=symbol) if allocation is None:
                return emit(mem.Weight(symbol, dense))
            case _:
                assert allocation is not None
        root = self.view(origin) if allocation.buffer == FIXED else self.roots[allocation.buffer]
        counters = tuple([counter for counter, _ in allocation.steps])
        steps = tuple([step for _, step in allocation.steps])
        strides = allocation.strides
        layout = dense if strides is None else ViewType(type.dtype, type.shape, strides)
        before = self._is_from_before(origin) or None
        return emit(mem.View(root, layout, allocation.offset, counters, steps, before))

    def _is_from_before(self, value: Value) -> bool:
        """Whether this is the value, or a loop's slice of it, that an argument has before its update."""
        block = value.block
        if block is None or value.op is not None:
            return False
        if block is self.function.body:
            return value.index in self.updated
        match block.parent:
            case flow.Scan() as scan:
                sources = dict(zip(scan.slices, scan.xs, strict=True))
                return value in sources and self._is_from_before(self.origins[sources[value]])
            case _:
                return False

    def _follow_rearranged(self) -> None:
        """Tell the value map where values are that no kernel reads as they are, such as reshapes."""
        values = self.context.values
        for op in reversed(list(self.function.walk(formulas=False))):  # users before their sources
            if isinstance(op, Rearrangement) and op.results[0] not in self._views:
                values.rearranged(op.results[0], op)
        for value, view in self._views.items():
            values.replaced(value, view, EQUAL)

    # Work.

    def _work(self, items: list[Item], emit: Builder) -> None:
        for item in items:
            match item:
                case Wave(number, kernels):
                    self._wave(kernels, number, emit)
                case Loop():
                    self._loop(item, emit)
                case Choice():
                    self._choice(item, emit)

    def _wave(self, kernels: list[kernel.Kernel], number: int, emit: Builder) -> None:
        inner = Block()
        for op in kernels:
            operands = [self.view(operand) for operand in op.operands]
            outs = [self.view(result) for result in op.results]
            Builder(inner, op.location).place(op.into(operands, outs))
        _end(inner, emit.location)
        wave = mem.Wave(inner, commits=self._commits(number))
        if any(_BEHIND_CHECKS in op.attributes for op in kernels):
            wave.attributes[mem.CHECKED] = True
        emit.at(kernels[0].location).place(wave)

    def _copies(self, number: int, emit: Builder) -> None:
        """The wave that copies carried values, or updates."""
        copies = self.assignment.copies.get(number)
        if not copies:
            return
        inner = Block()
        for value, argument in copies:
            scratch = Block()
            copying = copy(Builder(scratch, emit.location), value).op
            assert isinstance(copying, kernel.Generic)
            op = copying.into([self.view(value)], [self.view(argument)])
            Builder(inner, emit.location).place(op)
            scratch.clear()
        _end(inner, emit.location)
        emit.place(mem.Wave(inner, commits=self._commits(number)))

    def _commits(self, number: int) -> bool:
        """Whether an array of the caller may have changed after a wave."""
        return CHECKS_FIRST in self.function.attributes and number >= self.assignment.first_change

    def _region(self, items: list[Item], location: Location) -> Block:
        block = Block()
        self._work(items, Builder(block, location))
        return block

    def _loop(self, item: Loop, emit: Builder) -> None:
        op = item.op
        emit = emit.at(op.location)
        self._copies(item.enter, emit)
        body = self._region(item.body, op.location)
        self._copies(item.leave, Builder(body, op.location))
        _end(body, op.location)
        if isinstance(op, flow.Scan):
            emit.place(mem.Loop(body, item.counter, op.length))
            return
        test = self._region(item.test, op.location)
        _end(test, op.location)
        (condition,) = op.condition.terminator.operands
        emit.place(mem.While(self.view(condition), test, body, item.counter, op.limit))

    def _choice(self, item: Choice, emit: Builder) -> None:
        op = item.op
        regions: list[Block] = []
        for items in (item.then, item.otherwise):
            regions.append(self._region(items, op.location))
            _end(regions[-1], op.location)
        emit.at(op.location).place(mem.Choose(self.view(op.condition), *regions))


def _end(block: Block, location: Location) -> None:
    Builder(block, location).place(mem.End())
