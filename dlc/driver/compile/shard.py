"""Which weights and states the ranks of a training split, and along which axis.

Of an array that is split, each rank along `data` has one part after another of its largest axis that the
ranks divide; the number of a block in a stack of blocks is an axis only if no other will do, as a loop goes
along it. An array without such an axis stays whole on every rank.
"""

from __future__ import annotations

from collections.abc import Mapping

from dlc.dialects import weight
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.builtin import Module
from dlc.dialects.func import Func
from dlc.ir.types import TensorType
from dlc.passes.sharding.partition import Splits
from dlc.passes.sharding.placement import is_divided
from dlc.runtime.artifact.manifest import DATA, EVALUATE, STEP
from dlc.runtime.ranks.parts import Shard

_KEPT = (weight.OPTIMIZER, weight.AVERAGE)


def shard(module: Module, mesh: Mapping[str, int], split: Shard | None) -> dict[str, Splits]:
    """The splits of the weights and states of a training, by name, without those that stay whole.

    They are what the text says, and along `data` what `split` asks for; the mesh has this axis then.
    """
    arrays = arrays_of(module)
    splits = {name: _declared(module, name, type) for name, type in arrays.items()}
    splits = {name: own for name, own in splits.items() if own}
    if split is None:
        return splits
    for name, type in arrays.items():
        if split == "weights" or name.startswith(_KEPT):
            own = dict(splits.get(name, {}))
            if DATA in own:  # As the text says; an average begins as its weight is, part by part.
                continue
            axis = _axis(type, _stacked(module, name), own, mesh[DATA])
            if axis is not None:
                own[DATA] = axis
                # In the order of the mesh, in which arrays are split.
                splits[name] = {each: own[each] for each in mesh if each in own}
    return splits


def arrays_of(module: Module) -> dict[str, TensorType]:
    """The types of the weights and states that the functions that train take, by name."""
    found: dict[str, TensorType] = {}
    for name in (STEP, EVALUATE):
        function = module.symbol(name)
        assert isinstance(function, Func)
        found |= zip(function.input_names, map(tensor_type, function.body.arguments), strict=True)
    sources = {op.sym_name for op in module.body if isinstance(op, weight.Source)}
    return {name: type for name, type in found.items() if name in sources}


def _declared(module: Module, name: str, type: TensorType) -> Splits:
    """What the text says of an array: of a state of the same shape as its weight, what it says of that."""
    owner = _owner(module, name)
    if owner is None or owner.type.shape != type.shape:
        return {}
    pairs = [text.split() for text in owner.splits or ()]
    return {mesh_axis: int(axis) for mesh_axis, axis in pairs}


def _stacked(module: Module, name: str) -> int:
    """How many leading axes of an array count blocks: those of the weight that it is kept for."""
    owner = _owner(module, name)
    return 0 if owner is None else owner.stacked


def _owner(module: Module, name: str) -> weight.Source | None:
    """The weight that a state is kept for, or itself."""
    owner = name
    if name.startswith(_KEPT):
        owner = name.partition(".")[2].rpartition(":")[2]
        while module.symbol(owner) is None and "." in owner:
            owner = owner.rpartition(".")[0]
    source = module.symbol(owner)
    return source if isinstance(source, weight.Source) else None


def _axis(type: TensorType, stacked: int, own: Splits, ranks: int) -> int | None:
    """The largest axis that the ranks divide and nothing splits yet; None if there is none."""
    sizes = {
        axis: size
        for axis, size in enumerate(type.shape)
        if isinstance(size, int) and is_divided(size, ranks) and axis not in own.values()
    }
    inner = {axis: size for axis, size in sizes.items() if axis >= stacked} or sizes
    return max(inner, key=lambda axis: inner[axis], default=None)
