"""The calls of a program for people: the module of each, what it computes, and how much."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dlc.dialects import mem, weight
from dlc.ir.core import Value
from dlc.ir.dims import Size
from dlc.ir.location import Location, parts_of
from dlc.runtime.artifact.kernel_records import KernelRecord
from dlc.runtime.artifact.size_expressions import MAX_LENGTH

UNKNOWN = "0"
"""In place of an amount that is too long to write down."""


def kernel_records(
    program: mem.Program, calls: Mapping[mem.Call, int], ops: int
) -> tuple[KernelRecord, ...]:
    """The records of a program; `calls` are its calls' op ids, below `ops`."""
    layers = _Layers(program)
    records = [KernelRecord()] * ops
    for call, op_id in calls.items():
        records[op_id] = KernelRecord(
            _path(call.location) or layers.of(call),
            call.label,
            _text(call.operations),
            _text(call.bytes),
            _places(call.location),
        )
    return tuple(records)


def _path(location: Location) -> str:
    """The path of the module that an operation belongs to, or else of one that is fused into it."""
    return next((part.path for part in parts_of(location) if part.path), "")


def _places(location: Location) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(part.own.place) for part in parts_of(location)))


def _text(size: Size) -> str:
    text = str(size)
    return text if len(text) <= MAX_LENGTH else UNKNOWN


class _Layers:
    """The layer whose weights a call reads: the path of a call that no text names, as of an update."""

    def __init__(self, program: mem.Program) -> None:
        self._sources: dict[str, tuple[str, ...]] = {}
        """The trained weights that each derived or constant weight comes from."""
        for op in program.parent or ():
            match op:
                case weight.Source(sym_name=name, constant=True):
                    self._sources[name] = ()
                case weight.Derived(sym_name=name, sources=sources):
                    leaves = [leaf for source in sources for leaf in self._leaves(source.name)]
                    self._sources[name] = tuple(leaves)
                case _:
                    pass

    def of(self, call: mem.Call) -> str:
        """The path of the module; empty if it is not known."""
        return _layer([name for view in call.views for name in self._weights(view)])

    def _weights(self, view: Value) -> tuple[str, ...]:
        """The trained weights in a view; training has them as inputs."""
        match view.op:
            case mem.Weight(symbol=symbol):
                return self._leaves(symbol.name)
            case mem.View(root=root) if isinstance(root.op, mem.Root) and root.op.kind == "input":
                name = view.name or ""
                return (name,) if "." in name and not name.startswith(weight.OPTIMIZER) else ()
            case _:
                return ()

    def _leaves(self, name: str) -> tuple[str, ...]:
        return self._sources.get(name, (name,))


def _layer(weights: Sequence[str]) -> str:
    """The path of the module that has all of these weights; for names without dots, their common prefix."""
    dotted = all("." in name for name in weights)
    paths = [name.split(".")[:-1] if dotted else re.split("(?=_)", name) for name in weights]
    shared: list[str] = []
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ("." if dotted else "").join(shared)
