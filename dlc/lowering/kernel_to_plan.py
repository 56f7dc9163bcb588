"""From kernels to the plan: every value gets a place in memory, every kernel a wave.

Kernels keep their order. A kernel starts a new wave if it needs what the current wave computes. A value
lives from the wave that writes it to the last that reads it. An element-wise kernel may write into an
input that dies with it: then both are the same root.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from dlc.dialects import array, func, kernel, mem, weight
from dlc.dialects.builtin import Module
from dlc.ir.attributes import Dense
from dlc.ir.builder import Builder
from dlc.ir.core import Block, Op, Value
from dlc.ir.dims import Bounds, Size, evaluate
from dlc.ir.passes import Context, define_pass
from dlc.ir.types import ViewType
from dlc.ir.value_map import EQUAL
from dlc.lowering.array_to_kernel import generic
from dlc.passes.place import Buffer, align, height, order_above, place

SAMPLE = 64
"""The value at which an unbounded dim is looked at to choose the order of buffers."""


@dataclass(slots=True)
class Memory:
    """A root to be: what it is, how big, and in which waves it is alive."""

    kind: str
    number: int
    bytes: Size
    first: int
    last: int


@dataclass(slots=True)
class Plan:
    """What is decided about one function before it is written down."""

    memories: list[Memory] = field(default_factory=list)
    home: dict[Value, int] = field(default_factory=dict)
    """The memory that holds each value."""
    waves: list[list[kernel.Kernel]] = field(default_factory=list)
    last_use: dict[Value, int] = field(default_factory=dict)


@define_pass("plan_memory", required=True)
def plan_memory(module: Op, context: Context) -> None:
    """Give every value a place in memory and every kernel a wave."""
    assert isinstance(module, Module)
    constants = Constants()
    for op in list(module.body):
        if isinstance(op, func.Func):
            _plan_function(op, constants, context)


@dataclass(slots=True)
class Constants:
    """The artifact's constants, each stored once."""

    offsets: dict[bytes, int] = field(default_factory=dict)
    size: int = 0

    def offset(self, value: Dense) -> int:
        """Where these bytes lie; they are added if they are new."""
        if value.data not in self.offsets:
            self.offsets[value.data] = self.size
            self.size += align(max(1, len(value.data)))
        return self.offsets[value.data]


def _plan_function(function: func.Func, constants: Constants, context: Context) -> None:
    _own_results(function)
    plan = Plan()
    _make_waves(function, plan)
    _find_lifetimes(function, plan)
    _assign_memories(function, plan, context)
    _write_program(function, plan, constants, context)


def _own_results(function: func.Func) -> None:
    """Copy results that are inputs, weights, constants or results already: each is its own memory."""
    terminator = function.body.terminator
    seen: set[Value] = set()
    results: list[Value] = []
    for value in terminator.operands:
        origin = _origin(value)
        if not isinstance(origin.op, kernel.Kernel) or origin in seen:
            type = kernel.array_type(value)
            emit = Builder.before_op(terminator)
            value = generic(emit, (value,), type.shape, lambda e, i, a: e(kernel.Load(a[0], i)))
            origin = value
        seen.add(origin)
        results.append(value)
    terminator.set_operands(results)


def _origin(value: Value) -> Value:
    """The value whose memory this one is a view of."""
    while isinstance(value.op, array.Reshape):
        value = value.op.source
    return value


def _make_waves(function: func.Func, plan: Plan) -> None:
    current: set[Value] = set()
    for op in function.body:
        if not isinstance(op, kernel.Kernel):
            continue
        if not plan.waves or any(_origin(operand) in current for operand in op.operands):
            plan.waves.append([])
            current = set()
        plan.waves[-1].append(op)
        current.update(op.results)


def _find_lifetimes(function: func.Func, plan: Plan) -> None:
    for number, wave in enumerate(plan.waves):
        for op in wave:
            for operand in op.operands:
                plan.last_use[_origin(operand)] = number
    for value in function.results_returned:
        plan.last_use[_origin(value)] = len(plan.waves)


def _assign_memories(function: func.Func, plan: Plan, context: Context) -> None:
    outputs = {_origin(value): k for k, value in enumerate(function.results_returned)}
    end = len(plan.waves)
    for k, argument in enumerate(function.body.arguments):
        _new_memory(plan, argument, "input", k, 0, end)
    # Outputs in their order, though waves may compute them in another.
    for value, k in outputs.items():
        _new_memory(plan, value, "output", k, 0, end)
    arena = 0
    for number, wave in enumerate(plan.waves):
        readers = Counter(
            plan.home[origin]
            for op in wave
            for origin in {_origin(operand) for operand in op.operands}
            if origin in plan.home
        )
        for op in wave:
            for result in op.results:
                if result in outputs:
                    continue
                last = plan.last_use.get(result, number)
                donor = _donor(op, result, number, plan, readers)
                if donor is not None:
                    plan.home[result] = plan.home[donor]
                    plan.memories[plan.home[donor]].last = last
                    context.log.did("write in place", result, into=donor.name or "an input")
                    continue
                _new_memory(plan, result, "arena", arena, number, last)
                arena += 1


def _new_memory(plan: Plan, value: Value, kind: str, number: int, first: int, last: int) -> None:
    plan.home[value] = len(plan.memories)
    plan.memories.append(Memory(kind, number, _bytes(value), first, last))


def _bytes(value: Value) -> Size:
    type = kernel.array_type(value)
    return type.size * type.dtype.bytes


def _donor(
    op: kernel.Kernel, result: Value, number: int, plan: Plan, readers: Counter[int]
) -> Value | None:
    """An arena value that dies with `op` and that its result may overwrite element by element."""
    if not isinstance(op, kernel.Generic) or len(op.results) != 1:
        return None
    for operand, argument in zip(op.inputs, op.arrays, strict=True):
        origin = _origin(operand)
        home = plan.home.get(origin)
        if (
            home is not None
            and plan.memories[home].kind == "arena"
            and plan.memories[home].last == number
            and _bytes(origin) == _bytes(result)
            and kernel.array_type(operand) == kernel.array_type(result)
            and sum(_origin(other) is origin for other in op.inputs) == 1
            and readers[home] == 1
            and _reads_only_own_element(op, argument)
        ):
            return origin
    return None


def _reads_only_own_element(op: kernel.Generic, argument: Value) -> bool:
    """Whether every load of an input is at the index of the element being computed, before any store."""
    return all(
        isinstance(use, kernel.Load)
        and use.array is argument
        and list(use.indices) == op.indices
        and use.parent is op.body
        for use in argument.uses
    )


def _write_program(function: func.Func, plan: Plan, constants: Constants, context: Context) -> None:
    body = Block()
    emit = Builder(body, function.location)
    placed = _place_arena(plan, function.bounds)
    roots = [_write_root(emit, memory, placed) for memory in plan.memories]
    views = _Views(function, plan, emit, roots, constants, context)
    for number, wave in enumerate(plan.waves):
        inner = Block()
        for op in wave:
            _write_kernel(op, Builder(inner, op.location), views)
        Builder(inner, function.location).place(mem.End())
        wave_op = mem.Wave(inner)
        emit.at(wave[0].location).place(wave_op)
    emit.place(mem.End())
    arena = placed.total if isinstance(placed.total, int) else None
    program = mem.Program(body, function.sym_name, function.function_type, len(plan.waves), arena)
    for key, value in function.attributes.items():
        if key.startswith("dlc."):
            program.attributes[key] = value
    Builder.before_op(function).place(program)
    function.erase()


@dataclass(frozen=True, slots=True)
class _Placed:
    """Where each arena memory lies, by number: an offset, or the memories that it lies above."""

    offsets: dict[int, int]
    above: dict[int, tuple[int, ...]]
    total: int | None


def _place_arena(plan: Plan, bounds: Bounds) -> _Placed:
    arena = [memory for memory in plan.memories if memory.kind == "arena"]
    static = all(isinstance(memory.bytes, int) for memory in arena)
    sample = {name: SAMPLE if high is None else high for name, (_, high) in bounds.items()}
    buffers = [
        Buffer(max(1, evaluate(memory.bytes, sample)), memory.first, memory.last)
        for memory in arena
    ]
    offsets = place(buffers)
    if static:
        numbered = {memory.number: offset for memory, offset in zip(arena, offsets, strict=True)}
        return _Placed(numbered, {}, height(buffers, offsets))
    above = {
        memory.number: tuple(arena[j].number for j in below)
        for memory, below in zip(arena, order_above(buffers, offsets), strict=True)
    }
    return _Placed({}, above, None)


def _write_root(emit: Builder, memory: Memory, placed: _Placed) -> Value:
    offset = above = None
    if memory.kind == "arena":
        offset = placed.offsets.get(memory.number)
        above = placed.above.get(memory.number)
    return emit(
        mem.Root(memory.kind, memory.number, memory.bytes, memory.first, memory.last, offset, above)
    )


class _Views:
    """Makes the view of each value once, before the first wave."""

    def __init__(
        self,
        function: func.Func,
        plan: Plan,
        emit: Builder,
        roots: list[Value],
        constants: Constants,
        context: Context,
    ) -> None:
        self._function = function
        self._plan = plan
        self._roots = roots
        self._constants = constants
        self._context = context
        self._emit = emit
        self._made: dict[Value, Value] = {}

    def __getitem__(self, value: Value) -> Value:
        view = self._made.get(value)
        if view is None:
            view = self._made[value] = self._make(value)
            view.name = value.name
            self._context.values.replaced(value, view, EQUAL)
        return view

    def _make(self, value: Value) -> Value:
        type = kernel.array_type(value)
        view_type = ViewType(type.dtype, type.shape)
        first_wave = next((op for op in self._emit.block if isinstance(op, mem.Wave)), None)
        emit = Builder(self._emit.block, self._function.location, first_wave)
        origin = _origin(value)
        match origin.op:
            case array.Constant(value=dense):
                return emit(mem.Constant(dense, view_type, self._constants.offset(dense)))
            case weight.Get(symbol=symbol):
                return emit(mem.Weight(symbol, view_type))
            case _:
                return emit(mem.View(self._roots[self._plan.home[origin]], view_type))


def _write_kernel(op: kernel.Kernel, emit: Builder, views: _Views) -> None:
    """The kernel in destination form."""
    operands = [views[operand] for operand in op.operands]
    outs = [views[result] for result in op.results]
    emit.place(op.into(operands, outs))
