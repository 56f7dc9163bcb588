"""Shapes that calls choose: the dims of a module by the names that JAX gave them, and its conditions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dlc.dialects import array
from dlc.importers.stablehlo.facts import Function, Program
from dlc.importers.stablehlo.known import Known
from dlc.ir.core import Value
from dlc.ir.dims import Shape, Size, substitute, symbol
from dlc.ir.equal_sizes import solution

_WORD = re.compile(r"[A-Za-z0-9_]+")


def label_of(label: str) -> str:
    """The name of an input or a result: `p_w` for `p['w']`, `am` for `result['am']`."""
    words = _WORD.findall(label)
    if len(words) > 1 and words[0] == "result" and not words[1].isdigit():
        words = words[1:]
    return "_".join(words)


def labels_of(program: Program) -> tuple[str, ...]:
    """The names of the main function's inputs in the program, empty where they have none.

    With sizes that calls choose, JAX wraps the function that has the names into another one.
    """
    main = program.functions[program.main]
    found = dict(zip(main.body.arguments, main.labels, strict=True))
    for node in main.body.nodes:
        inner = program.functions.get(str(node.attributes.get("callee")))
        if inner is not None:
            for name, label in zip(node.operands, inner.labels, strict=True):
                if name in found:
                    found[name] = found[name] or label
    arguments = enumerate(main.body.arguments)
    return tuple([found[name] or f"arg{index}" for index, name in arguments])


def dim_names(main: Function) -> list[Shape]:
    """The shapes of the inputs, with a dim of its own for each size that the module does not know."""
    return [
        tuple(
            [
                symbol(f"d{k}_{axis}") if size is None else size
                for axis, size in enumerate(type.shape)
            ]
        )
        for k, type in enumerate(main.body.types)
    ]


class Conditions:
    """What a module says of the sizes of its inputs."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._equal: list[tuple[Size, Size]] = []
        self._least: list[tuple[Size, Size]] = []
        self._dims: dict[str, Size] = {}

    def note(self, condition: Value, message: str) -> None:
        """Note a condition that JAX checks in each call. One that is not of sizes is left to the call."""
        match condition.op:
            case array.Compare(lhs=lhs, rhs=rhs, predicate="eq" | "ge" as predicate):
                one, other = self._known.sizes(lhs), self._known.sizes(rhs)
                if one is not None and other is not None:
                    rows = self._equal if predicate == "eq" else self._least
                    rows.append((one[0], other[0]))
            case _:
                pass

    def name_dims(self, names: Sequence[str], values: Sequence[Value]) -> None:
        """Note the names that JAX gives to sizes which are passed to a function."""
        for name, value in zip(names, values, strict=True):
            sizes = self._known.sizes(value) if name.isidentifier() else None
            if sizes is not None:
                self._dims.setdefault(name, sizes[0])

    def solved(
        self, shapes: Sequence[Shape]
    ) -> tuple[tuple[Shape, ...], dict[str, tuple[int, int | None]]]:
        """The shapes of the inputs with JAX's dims in them, and the bounds of these."""
        dims: dict[str, Size] = {}
        named = [(size, symbol(name)) for name, size in self._dims.items()]
        for one, other in (*self._equal, *named):
            found = self._solution(substitute(one, dims), substitute(other, dims))
            if found is not None:
                name, size = found
                dims = {known: substitute(old, {name: size}) for known, old in dims.items()}
                dims.setdefault(name, size)  # a multiple of a number keeps its name
        bounds: dict[str, tuple[int, int | None]] = {}
        for size, least in self._least:
            own = substitute(size, dims)
            if isinstance(least, int) and str(own) in self._dims:
                bounds[str(own)] = (max(least, 0), None)
        renamed = [tuple([substitute(size, dims) for size in shape]) for shape in shapes]
        return tuple(renamed), bounds

    def _solution(self, one: Size, other: Size) -> tuple[str, Size] | None:
        """One of our own dims, and what it is where two sizes are equal."""
        found = None if one == other else solution(one, other)
        if found is None or found[0] not in self._dims:
            return found
        name, size = found
        own = str(size)
        return (own, symbol(name)) if own.isidentifier() and own not in self._dims else None
