"""The pass `partition`: one program for a mesh becomes the program that each of its ranks runs.

A function has `dlc.mesh`, the axes of the mesh as texts like `data = 4`, and `dlc.splits`, a text for each
argument and then each result: the axes of the mesh along which it is split, as `data 0, model 1`, each with
the axis of the value. Arguments and results without a text are replicated. One axis of the mesh after the
other, every value gets a placement, each rank does its part of the operations, and collectives bring values
from one placement to another. What the function computes stays the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import inf
from typing import TypeAlias

from dlc.dialects import array, flow, func, weight
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.decomposed import Decomposed
from dlc.dialects.interface import bounds_attribute
from dlc.dialects.measured import substitute_dims
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.dims import Size, ceil_divide, names, substitute, symbol
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL
from dlc.ir.types import TensorType
from dlc.ir.value_map import Gone
from dlc.passes.sharding.assign import Assignment, assign
from dlc.passes.sharding.by_rows import made_by_rows
from dlc.passes.sharding.costs import Costs
from dlc.passes.sharding.find_rule import has_rule, local_attributes
from dlc.passes.sharding.placement import (
    PARTIAL,
    REPLICATED,
    Placement,
    Shard,
    is_divided,
    local_type,
)
from dlc.passes.sharding.reshard import Axis, collective_of, reshard
from dlc.target import cpu_of

MESH = "dlc.mesh"
SPLITS = "dlc.splits"

Splits: TypeAlias = Mapping[str, int]
"""The axis of a value that each axis of the mesh splits."""
Held: TypeAlias = dict[Value, dict[Placement, Value]]
"""What a rank has of each value of the whole program, by placement."""


@define_pass("partition", required=True)
def partition(module: Op, context: Context) -> None:
    """Make functions that have a mesh the programs of its ranks."""
    read = weight_splits(module)
    for function in [op for op in module.walk(formulas=False) if isinstance(op, func.Func)]:
        if MESH not in function.attributes:
            continue
        simplify(function, context)
        mesh, splits = read_mesh(function), read_splits(function)
        del function.attributes[SPLITS], function.attributes[MESH]
        module.attributes[MESH] = tuple([f"{name} = {ranks}" for name, ranks in mesh.items()])
        for name, ranks in mesh.items():
            along = [_placement(axes, name) for axes in splits]
            held = {key: axes[name] for key, axes in read.items() if name in axes}
            Partition(function, Axis(name, ranks), context, held).run(along)
    mesh = read_mesh(module)
    for source in _divided(module):
        for text in source.splits or ():
            name, _, axis = text.partition(" ")
            source.attributes["type"] = local_type(source.type, Shard(int(axis)), mesh[name])


def weight_splits(module: Op) -> dict[str, dict[str, int]]:
    """The splits of the weights that are to be divided, by name."""
    return {
        source.sym_name: {name: int(axis) for name, axis in map(str.split, source.splits or ())}
        for source in _divided(module)
    }


def _divided(module: Op) -> list[weight.Source]:
    """The weights that functions read, of which each rank has a part."""
    ops = module.regions[0]
    return [op for op in ops if isinstance(op, weight.Source) and op.whole is op.type]


def has_mesh(module: Op) -> bool:
    """Whether a function of the module is a program for a mesh."""
    return any(MESH in op.attributes for op in module.walk(formulas=False) if op is not module)


def read_mesh(op: Op) -> dict[str, int]:
    """The axes of the mesh of a function or module, and their sizes; empty without one."""
    texts = op.attributes.get(MESH, ())
    assert isinstance(texts, tuple)
    pairs = [str(text).split(" = ") for text in texts]
    return {name: int(size) for name, size in pairs}


def set_mesh(function: func.Func, mesh: Mapping[str, int], splits: Sequence[Splits]) -> None:
    """Make a function a program for a mesh; `splits` are those of arguments, then of results."""
    function.attributes[MESH] = tuple([f"{name} = {ranks}" for name, ranks in mesh.items()])
    function.attributes[SPLITS] = tuple(
        [", ".join(f"{name} {axis}" for name, axis in each.items()) for each in splits]
    )


def read_splits(function: func.Func) -> list[Splits]:
    """The splits of a function's arguments, then of its results."""
    texts = function.attributes[SPLITS]
    assert isinstance(texts, tuple)
    return [
        {name: int(axis) for name, axis in (each.split() for each in str(text).split(", ") if each)}
        for text in texts
    ]


def ranks_by_dim(function: func.Func) -> dict[str, int]:
    """Among how many ranks each named dim of a function for a mesh is divided; 1 where all have the whole.

    Raises ModelError where a rank cannot have an equal part of an argument.
    """
    splits = read_splits(function)
    types = [tensor_type(value) for value in function.body.arguments]
    found = dict.fromkeys(function.bounds, 1)
    for name, ranks in read_mesh(function).items():
        places = [_placement(axes, name) for axes in splits[: len(types)]]
        parts = _divided_dims(function, types, places, Axis(name, ranks))
        for dim in parts:
            found[dim] *= ranks
        types = [
            local_type(_substituted(type, parts), place, ranks)
            for type, place in zip(types, places, strict=True)
        ]
    return found


def _divided_dims(
    function: func.Func, types: Sequence[TensorType], places: Sequence[Placement], axis: Axis
) -> dict[str, Size]:
    """The named dims that are divided along an axis of the mesh, each as the multiple of a rank's part."""
    parts: dict[str, Size] = {}
    for value, type, place in zip(function.body.arguments, types, places, strict=True):
        if not isinstance(place, Shard):
            continue
        size = substitute(type.shape[place.axis], parts)
        if is_divided(size, axis.ranks):
            continue
        name = next((name for name in names(size) if _divides(size, name, axis.ranks)), None)
        if name is None:
            raise function.fail(
                f"axis {place.axis} of {value.name}, {type.text}, has no equal parts for the "
                f"{axis.ranks} ranks along {axis.name}",
                code="D0381",
                help=f"take a size that is a multiple of {axis.ranks}",
            )
        parts[name] = symbol(name) * axis.ranks
    return parts


def _divides(size: Size, name: str, ranks: int) -> bool:
    """Whether a size has equal parts where a named dim in it is a multiple of the ranks."""
    return is_divided(substitute(size, {name: symbol(name) * ranks}), ranks)


def _substituted(type: TensorType, dims: Mapping[str, Size]) -> TensorType:
    """The type with other sizes for some dims."""
    return type.with_shape(tuple([substitute(size, dims) for size in type.shape]))


def _placement(axes: Splits, name: str) -> Placement:
    return Shard(axes[name]) if name in axes else REPLICATED


def simplify(function: func.Func, context: Context) -> None:
    """Put its decomposition in the place of each operation without a rule that has one."""
    pending = [op for op in function.walk() if isinstance(op, Decomposed)]
    rewriter = context.rewriter
    while pending:
        op = pending.pop()
        if has_rule(op) or op.regions or op.name.startswith("rng."):
            continue
        assert op.parent is not None
        before = op.previous
        rewriter.replace(op, op.decompose(rewriter.before(op)), relation=EQUAL)
        new = before.next if before is not None else op.parent.first
        while new is not None and new is not op:
            pending.extend(inner for inner in new.walk() if isinstance(inner, Decomposed))
            new = new.next


class Partition:
    """The partition of one function along one axis of the mesh."""

    def __init__(
        self, function: func.Func, axis: Axis, context: Context, held: Mapping[str, int]
    ) -> None:
        """`held` are the weights of which the ranks along the axis have parts, with the axis of each."""
        self.function, self.axis, self.context = function, axis, context
        self.held = held
        self.passing = set[Value]()
        """Weights and states, and slices of them. Of those that are split the rank has the whole only where
        it is used, not from the forward to the backward pass: it is gathered for each operation."""

    def run(self, splits: Sequence[Placement]) -> None:
        """Give the function the body that a rank runs; `splits` places arguments, then results."""
        function = self.function
        count = len(function.body.arguments)
        self._divide_dims(splits[:count])
        cpu = cpu_of(self.context.options).costs
        self.costs = Costs(self.axis.ranks, cpu, function.bounds, self.held)
        body = function.body
        updated = [body.arguments[index] for index in function.updates.values()]
        self.passing.update(updated)
        for op in function.walk():
            if isinstance(op, weight.Get) and op.symbol.name in self.held:
                self.passing.add(op.result)
        local = self.block(body, assign(body, splits[:count], splits[count:], self.costs))
        for old, new in zip(body.arguments, local.arguments, strict=True):
            self._follow(old, new, old.type is new.type)
        function.swap_body(local)

    # Sizes.

    def _divide_dims(self, arguments: Sequence[Placement]) -> None:
        """Let a named dim that is split stand for the part that a rank has of it."""
        ranks, function = self.axis.ranks, self.function
        types = [tensor_type(value) for value in function.body.arguments]
        parts = _divided_dims(function, types, arguments, self.axis)
        if not parts:
            return
        for value, type in zip(function.body.arguments, types, strict=True):
            value.type = _substituted(type, parts)
        substitute_dims(function.body, parts)
        bounds = function.bounds
        for name in parts:
            low, high = bounds[name]
            least = ceil_divide(low, ranks)
            assert isinstance(least, int)
            bounds[name] = least, None if high is None else high // ranks
        function.attributes["dlc.dims"] = bounds_attribute(bounds)
        function.retype()

    # Operations.

    def block(self, block: Block, assignment: Assignment) -> Block:
        """The block that a rank runs."""
        types = [
            self._local(value, place)
            for value, place in zip(block.arguments, assignment.arguments, strict=True)
        ]
        local = Block(types, [value.name for value in block.arguments])
        have = {
            old: {place: new}
            for old, new, place in zip(
                block.arguments, local.arguments, assignment.arguments, strict=True
            )
        }
        wanted = _wanted(block, assignment)
        for op in block:
            emit = Builder(local, op.location)
            if op.terminator:
                operands = self._brought(emit, op.operands, assignment.ends, have)
                emit.place(_made(op, operands, ()))
                continue
            new = self._operation(emit, op, assignment, have)
            places = assignment.strategies[op].results
            for old, value, place in zip(op.results, new.results, places, strict=True):
                assert value.type is self._local(old, place), (op, old.type, value.type, place)
                value.name = old.name
                have[old] = {place: value}
                self._follow(old, value, place is REPLICATED)
                if place is PARTIAL and len(wanted[old]) == 1:
                    # Summed at once: then the rank needs the memory of its part only.
                    self._brought(emit, [old], list(wanted[old]), have)
        return local

    def _operation(self, emit: Builder, op: Op, assignment: Assignment, have: Held) -> Op:
        """The part of an operation that a rank runs, after what brings its operands into place."""
        strategy = assignment.strategies[op]
        operands = self._brought(emit, op.operands, strategy.operands, have)
        self._pass_on(op)
        regions = [
            self.block(region, inner)
            for region, inner in zip(op.regions, assignment.regions.get(op, ()), strict=True)
        ]
        types = [
            self._local(value, place)
            for value, place in zip(op.results, strategy.results, strict=True)
        ]
        made = made_by_rows(emit, op, operands, strategy, self.axis)
        return emit.place(made or _made(op, operands, regions, types))

    def _pass_on(self, op: Op) -> None:
        """Note what regions of an operation have of weights and states."""
        for region in op.regions if isinstance(op, flow.Scan | flow.While | flow.If) else ():
            outer = op.operands[1:] if isinstance(op, flow.If) else op.operands
            inner = region.arguments[1:] if isinstance(op, flow.Scan) else region.arguments
            self.passing.update(
                [one for other, one in zip(outer, inner, strict=True) if other in self.passing]
            )

    def _local(self, value: Value, place: Placement) -> TensorType:
        return local_type(tensor_type(value), place, self.axis.ranks)

    def _brought(
        self,
        emit: Builder,
        values: Sequence[Value],
        places: Sequence[Placement],
        have: Held,
    ) -> list[Value]:
        """What the rank has of values in these placements; each is brought there once."""
        found: list[Value] = []
        for value, place in zip(values, places, strict=True):
            known = have[value]
            if place not in known:
                first = next(iter(known))
                there = reshard(emit, known[first], tensor_type(value), first, place, self.axis)
                self._tell(value, first, place)
                if value in self.passing and place is REPLICATED:
                    found.append(there)
                    continue
                known[place] = there
            found.append(known[place])
        return found

    def _tell(self, value: Value, have: Placement, want: Placement) -> None:
        """Log a change of the placement, with the bytes of the whole value and what sending costs."""
        log, how = self.context.log, collective_of(have, want)
        cost = self.costs.conversion(value, have, want)
        # A result may be wanted in parts of which only the call tells that they are equal.
        if how is None or isinstance(value.op, array.Fill) or cost == inf:
            log.did(f"go from {have} to {want}", value, axis=self.axis.name)
            return
        log.did(
            f"{how} from {have} to {want}",
            value,
            axis=self.axis.name,
            bytes=self.costs.bytes(value.type),
            ns=round(cost / 1000),
        )

    def _follow(self, old: Value, new: Value, same: bool) -> None:
        """Tell the value map what became of a value."""
        if same:
            self.context.values.replaced(old, new, EQUAL)
        else:
            reason = f"each rank along {self.axis.name} has a part of it"
            self.context.values.replaced(old, None, Gone(reason))


def _wanted(block: Block, assignment: Assignment) -> Mapping[Value, set[Placement]]:
    """The placements in which the operations of a block, and its end, want each value."""
    wanted: defaultdict[Value, set[Placement]] = defaultdict(set)
    for op in block:
        places = assignment.ends if op.terminator else assignment.strategies[op].operands
        for value, place in zip(op.operands, places, strict=True):
            wanted[value].add(place)
    return wanted


def _made(
    op: Op, operands: Sequence[Value], regions: Sequence[Block], results: Sequence[TensorType] = ()
) -> Op:
    """The operation on other operands, with the attributes for results of these types."""
    new = object.__new__(type(op))
    attributes = {**op.attributes, **local_attributes(op, results)}
    Op.__init__(new, tuple(operands), attributes, tuple(regions), op.location)
    return new


__all__ = [
    "Partition", "Splits", "has_mesh", "partition", "ranks_by_dim", "read_mesh", "read_splits",
    "set_mesh", "simplify", "weight_splits",
]  # fmt: skip
