"""The module that each operation of a function belongs to, as a path: `("h.0", "attn", "query")`.

Names of values and of weights begin with the path of their module, in texts as well as in files that other
frameworks exported. An operation without a named value or a weight belongs to what its neighbours have in
common: the sum of a residual block to the block, an activation to the module around the two layers that it
stands between.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dlc.dialects import array, func, weight
from dlc.ir.core import Block, Op, Value

Path = tuple[str, ...]
KEPT = "$optimizer."
"""With what the names of inputs begin that an optimizer keeps for a weight."""


def module_paths(function: func.Func, layers: Collection[str] = ()) -> dict[Op, Path]:
    """The path of each operation of a function and of the regions of its operations.

    `layers` are the paths of the model's modules, as far as they are known: then no other path is given.
    """
    names = _Names({components(layer) for layer in layers if layer}, _keys(function))
    for name, argument in trained(function, layers).items():
        names.weights[argument] = (name,)
    paths: dict[Op, Path] = {}
    _walk(function.body, (), names, paths)
    return paths


def components(name: str) -> Path:
    """The parts of a path; a number belongs to the name before it.

    >>> components("h.0.attn.query"), components("/layer1/layer1.0/conv1")
    (('h.0', 'attn', 'query'), ('layer1', 'layer1.0', 'conv1'))
    """
    if "/" in name:
        return tuple(part for part in name.split("/") if part)
    parts: list[str] = []
    for part in name.split("."):
        if part.isdecimal() and parts:
            parts[-1] = f"{parts[-1]}.{part}"
        else:
            parts.append(part)
    return tuple(parts)


def trained(function: func.Func, layers: Collection[str]) -> dict[str, Value]:
    """The inputs of a training step that are weights, or what the optimizer keeps for one, by name.

    `layers` are the paths of the model's modules.
    """
    arguments = zip(function.input_names, function.body.arguments, strict=True)
    return {
        name.removeprefix("$"): argument
        for name, argument in arguments
        if name.startswith(KEPT) or name.rpartition(".")[0] in set(layers) - {""}
    }


@dataclass(slots=True)
class _Names:
    """The paths that are known, and the names of the weights that values hold or are computed from.

    `keys` has them by symbol: as the weight is called in its file.
    """

    known: Collection[Path]
    keys: Mapping[str, tuple[str, ...]]
    weights: dict[Value, tuple[str, ...]] = field(default_factory=dict[Value, tuple[str, ...]])

    def path(self, op: Op) -> Path | None:
        """The path that the names of its results say, or the common one of its weights.

        The weights decide where the two are beside each other: a module that gives its argument a name,
        through a cast to the dtype that it has, names what another module computes.
        """
        names = [value.name for value in op.results if value.name]
        named = next((path for name in names if (path := self._module(name))), None)
        weights = [name for value in op.operands for name in self.weights.get(value, ())]
        kept = [name for name in weights if f"${name}".startswith(KEPT)]
        if kept:
            return named or common((KEPT.strip("$."), *components(name)[1:-2]) for name in kept)
        paths = [path for name in weights if (path := self._module(name)) is not None]
        read = common(paths) if paths else None
        if named is None or read is None:
            return named or read
        return named if common([named, read]) in (named, read) else read

    def _module(self, name: str) -> Path | None:
        path = components(name)[:-1]
        if self.known:
            return next((path[:n] for n in range(len(path), 0, -1) if path[:n] in self.known), ())
        return path or None


def common(paths: Iterable[Path]) -> Path:
    """The path that all have in common.

    >>> common([("h.0", "attn", "query"), ("h.0", "attn", "key")])
    ('h.0', 'attn')
    """
    first, *rest = [*paths] or [()]
    length = len(first)
    for path in rest:
        length = min(length, len(path))
        while first[:length] != path[:length]:
            length -= 1
    return first[:length]


def _walk(block: Block, around: Path, names: _Names, paths: dict[Op, Path]) -> None:
    """Settle the operations of a block, which is in a module, and of the blocks in it."""
    pending = [(block, around)]
    while pending:
        block, around = pending.pop()
        _note_weights(block, names)
        named = {op: path for op in block if (path := names.path(op)) is not None}
        later = _later(block, named)
        for op in block:
            before = [
                paths.get(value.op, around) if value.op is not None else around
                for value in op.operands
                if value not in names.weights and (value.op is None or value.op.operands)
            ]
            path = named.get(op)
            if path is None:
                path = _settled(before, later.get(op), around)
            paths[op] = path
            if op.name.startswith("flow."):
                for region in op.regions:
                    _pass_on(op, region, names.weights)
                    pending.append((region, path))


def _keys(function: func.Func) -> dict[str, tuple[str, ...]]:
    """The names of the weights that each symbol of the function's module stands for."""
    keys: dict[str, tuple[str, ...]] = {}
    for op in function.parent or ():
        match op:
            case weight.Source(sym_name=name, key=key):
                keys[name] = (key or name,)
            case weight.Derived(sym_name=name, sources=sources):
                keys[name] = tuple([key for each in sources for key in keys.get(each.name, ())])
            case _:
                pass
    return keys


def _note_weights(block: Block, names: _Names) -> None:
    """Note what holds a weight, or is computed from weights and constants alone."""
    weights, constants = names.weights, set[Value]()
    for op in block:
        if isinstance(op, weight.Get):
            weights[op.result] = names.keys.get(op.symbol.name, ())
        elif isinstance(op, array.Fill | array.Constant):
            constants.add(op.result)
        elif op.operands and all(v in weights or v in constants for v in op.operands):
            read = [name for value in op.operands for name in weights.get(value, ())]
            for result in op.results if read else ():
                weights[result] = tuple(dict.fromkeys(read))


def _pass_on(op: Op, region: Block, weights: dict[Value, tuple[str, ...]]) -> None:
    """Note the arguments of a region that are weights: the last are the last operands."""
    count = min(len(region.arguments), len(op.operands))
    pairs = zip(region.arguments[-count:], op.operands[-count:], strict=True) if count else ()
    for argument, operand in pairs:
        if operand in weights:
            weights[argument] = weights[operand]


def _later(block: Block, named: Mapping[Op, Path]) -> dict[Op, Path]:
    """The path of the first named operation that needs each one's results."""
    later: dict[Op, Path] = {}
    for op in reversed(list(block)):
        path = named.get(op, later.get(op))
        for value in op.operands:
            if value.op is not None and path is not None:
                later[value.op] = path
    return later


def _settled(before: Sequence[Path], after: Path | None, around: Path) -> Path:
    """The path of an operation without one, from those of what it reads and of what reads it.

    What reads nothing, such as a mask of positions, belongs to its reader.
    """
    if not before:
        return around if after is None else after
    if after is None:
        return _between(before[-1], around)
    nearest = max(reversed(before), key=lambda path: len(common([path, after])))
    return _between(nearest, after)


def _between(before: Path, after: Path) -> Path:
    """The module of what stands between two others.

    >>> _between(("h.0", "attn", "query"), ("h.0", "attn", "out")), _between(("conv",), ("head",))
    (('h.0', 'attn'), ())

    The end of a module of a sequence still belongs to it:

    >>> _between(("h.0", "mlp"), ("h.1", "norm"))
    ('h.0',)
    """
    length = len(common([before, after]))
    if length + 1 < len(before) and before[length].rpartition(".")[2].isdecimal():
        length += 1
    return before[:length]
