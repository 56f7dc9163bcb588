"""The splits of weights that the text leaves open, from those that it declares.

What a product computes with a weight that is split by columns has its columns split, too. So have what is
computed of it element by element and a bias that is added, and the next weight is split by rows. A split
goes on like this along the letters of sharding rules, in both directions and to the nearest operations
first, until an operation needs the axis whole. So a transformer block needs one `split` for its heads and
one for its hidden features. (Compare sharding completion in Xu et al., "GSPMD", 2021.)
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from dlc.dialects import flow, func, weight
from dlc.dialects.builtin import Module
from dlc.dialects.flow.regions import yielded
from dlc.dialects.text_mesh import STAGES
from dlc.ir.clone import clone_block
from dlc.ir.core import Op, Value
from dlc.ir.passes import Context
from dlc.ir.types import TensorType
from dlc.passes.sharding.find_rule import rule_of
from dlc.passes.sharding.partition import partition, simplify
from dlc.passes.sharding.placement import Shard, allows
from dlc.passes.sharding.rule import WHOLE
from dlc.runtime.artifact.manifest import DATA

_STATES = (weight.OPTIMIZER, weight.AVERAGE, weight.SCALE)
"""How the names of states begin, which are split as the weights that they are kept for."""


def infer_splits(module: Module, mesh: Mapping[str, int], context: Context) -> None:
    """Split the weights that have no `split` in the text as the operations between them and others ask for.

    The axis `data`, which divides batches, and stages split no weight without being told to.
    """
    sources = {
        op.sym_name: op
        for op in module.body
        if isinstance(op, weight.Source) and not op.sym_name.startswith(_STATES)
    }
    axes = {name: ranks for name, ranks in mesh.items() if name not in (DATA, STAGES)}
    if not axes or not any(source.splits for source in sources.values()):
        return
    functions = [op for op in module.body if isinstance(op, func.Func)]
    copies = [_simplified(function, context) for function in functions]
    inferred: dict[str, dict[str, int]] = {
        name: {}
        for name, source in sources.items()
        if source.splits is None and not source.constant
    }
    for name, ranks in axes.items():
        propagation = _Propagation(ranks)
        for function in copies:
            propagation.add(function, sources)
        declared = {
            key: _axis_along(source, name) for key, source in sources.items() if key not in inferred
        }
        along_others = {key: own.values() for key, own in inferred.items()}
        for key, axis in propagation.run(declared, along_others):
            inferred[key][name] = axis
    context.log.current_pass = partition.name
    for key, own in inferred.items():
        if own:
            splits = tuple([f"{name} {axis}" for name, axis in own.items()])
            sources[key].attributes["splits"] = splits
            context.log.did(
                "split like the weights that it is computed with",
                sources[key],
                weight=key,
                splits=", ".join(splits),
            )


def _simplified(function: func.Func, context: Context) -> func.Func:
    """A copy of a function whose operations have sharding rules, as far as there are any."""
    copy = func.Func(clone_block(function.body), function.sym_name, function.function_type)
    copy.attributes |= function.attributes
    simplify(copy, Context(context.options))
    return copy


def _axis_along(source: weight.Source, name: str) -> int | None:
    """The axis of a weight that the text splits along an axis of the mesh; None without one."""
    pairs = (text.split() for text in source.splits or ())
    return next((int(axis) for by, axis in pairs if by == name), None)


class _Link(NamedTuple):
    """A value on the other side of a region; a loop walks along an axis of what is outside."""

    other: Value
    walked: int | None = None
    inward: bool = False

    def axis(self, axis: int) -> int | None:
        """The axis of the other value that is this one of the value."""
        if self.walked is None:
            return axis
        if self.inward:
            return None if axis == self.walked else axis - (axis > self.walked)
        return axis + (axis >= self.walked)


class _Propagation:
    """How the values of functions are split along one axis of the mesh, from declared weights on."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._placed: dict[Value, int | None] = {}
        """The axis along which a value is split; None where it stays whole."""
        self._letters: dict[Op, str] = {}
        """The letter of its rule along which an operation is divided."""
        self._links: defaultdict[Value, list[_Link]] = defaultdict(list)
        self._weights: defaultdict[str, list[Value]] = defaultdict(list)
        """The values of each weight in functions."""

    def add(self, function: func.Func, weights: Collection[str]) -> None:
        """Add a function, whose arguments may be weights, by name."""
        for name, value in zip(function.input_names, function.body.arguments, strict=True):
            if name in weights:
                self._weights[name].append(value)
            else:
                self._placed[value] = None
        for op in function.walk():
            match op:
                case weight.Get():
                    self._weights[op.symbol.name].append(op.result)
                case flow.Vjp():
                    self._enter(op.inputs, op.body.arguments)
                case flow.While():
                    for block in op.regions:
                        arguments = block.arguments[len(op.initial) :]
                        self._enter(op.constants, arguments)
                case flow.If():
                    for block in op.regions:
                        self._enter(op.inputs, block.arguments)
                        self._enter(op.results, yielded(block))
                case flow.Scan():
                    for each in op.inputs:
                        self._enter([each.outside], [each.argument], each.axis)
                case _:
                    pass

    def _enter(
        self, outside: Sequence[Value], inside: Sequence[Value], walked: int | None = None
    ) -> None:
        """Let values outside of a region be split as those inside, and the other way round."""
        for one, other in zip(outside, inside, strict=True):
            self._links[one].append(_Link(other, walked, inward=True))
            self._links[other].append(_Link(one, walked))

    def run(
        self, declared: Mapping[str, int | None], along_others: Mapping[str, Collection[int]]
    ) -> Iterator[tuple[str, int]]:
        """The axis of each weight that is not declared, as far as one is found.

        `along_others` are the axes of weights that other axes of the mesh split.
        """
        taken = {
            (value, axis)
            for name, axes in along_others.items()
            for value in self._weights.get(name, ())
            for axis in axes
        }
        for name, values in self._weights.items():
            self._enter(values[:-1], values[1:])
            if name in declared:
                self._placed.update(dict.fromkeys(values, declared[name]))
        pending = deque([value for value, axis in self._placed.items() if axis is not None])
        while pending:
            value = pending.popleft()
            for other, axis in self._beside(value):
                if other not in self._placed and (other, axis) not in taken:
                    self._placed[other] = axis
                    pending.append(other)
        for name, values in self._weights.items():
            axis = self._placed.get(values[0])
            if name not in declared and axis is not None:
                yield name, axis

    def _beside(self, value: Value) -> Iterator[tuple[Value, int]]:
        """The values that belong to one which is split, with the axis along which they are then split."""
        own = self._placed[value]
        assert own is not None
        for link in self._links[value]:
            axis = link.axis(own)
            if axis is not None:
                yield link.other, axis
        ops = list(value.uses) if value.op is None else [value.op, *value.uses]
        for op in dict.fromkeys(ops):
            yield from self._divided(op, value, own)

    def _divided(self, op: Op, value: Value, own: int) -> Sequence[tuple[Value, int]]:
        """The values of an operation that is divided along an axis of one of them; none if it cannot be."""
        rule = rule_of(op)
        if rule is None:
            return ()
        words = [
            *zip(op.operands, rule.operands, strict=True),
            *zip(op.results, rule.results, strict=True),
        ]
        letter = next(word[own] for each, word in words if each is value)
        found = [(each, word.index(letter)) for each, word in words if letter in word]
        if letter == WHOLE or not all(self._is_equal(*each) for each in found):
            return ()
        return found if self._letters.setdefault(op, letter) == letter else ()

    def _is_equal(self, value: Value, axis: int) -> bool:
        """Whether the ranks have equal parts of a value along an axis."""
        return isinstance(value.type, TensorType) and allows(value.type, Shard(axis), self._ranks)
