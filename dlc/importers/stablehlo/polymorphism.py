"""Shapes that calls choose: the dims of a module by the names that JAX gave them, and its conditions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dlc.dialects import array
from dlc.importers.stablehlo.facts import Program
from dlc.importers.stablehlo.known import Known
from dlc.ir.bounded import never_negative
from dlc.ir.core import Value
from dlc.ir.dims import Shape, Size, names, substitute, symbol
from dlc.ir.equal_sizes import highest_value, least_value, solution

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


def dim_names(program: Program) -> list[Shape]:
    """The shapes of the inputs, with a dim of its own for each size that the module does not know.

    It is called by input and axis, `x_0`, until JAX's own name for it is found.
    """
    main = program.functions[program.main]
    labels = [label_of(label) for label in labels_of(program)]
    return [
        tuple(
            [
                symbol(f"{label}_{axis}") if size is None else size
                for axis, size in enumerate(type.shape)
            ]
        )
        for label, type in zip(labels, main.body.types, strict=True)
    ]


class Conditions:
    """What a module says of the sizes of its inputs."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._equal: list[tuple[Size, Size]] = []
        self._least: list[Size] = []
        self._dims: dict[str, Size] = {}

    def note(self, condition: Value) -> None:
        """Note a condition that JAX checks in each call. One that is not of sizes is left to the call."""
        match condition.op:
            case array.Compare(lhs=lhs, rhs=rhs, predicate="eq" | "ge" as predicate):
                one, other = self._known.sizes(lhs), self._known.sizes(rhs)
                if one is not None and other is not None and predicate == "eq":
                    self._equal.append((one[0], other[0]))
                elif one is not None and other is not None:
                    self._least.append(one[0] - other[0])
            case _:
                pass

    def name_dims(self, names: Sequence[str], values: Sequence[Value]) -> None:
        """Note the names that JAX gives to sizes which are passed to a function."""
        for name, value in zip(names, values, strict=True):
            sizes = self._known.sizes(value) if name.isidentifier() else None
            if sizes is not None:
                self._dims.setdefault(name, sizes[0])

    def open_needs(self) -> Iterator[tuple[str, str, str]]:
        """What only a call can tell: a size that is 0 or more, what is told, and what it equals if any."""
        bounds = self._known.bounds
        for one, other in dict.fromkeys(self._equal):
            if one != other:
                yield str(one), f"{one} is {{n}} and must be {other}, which is {{m}}", str(other)
        for size in dict.fromkeys(self._least):
            if not never_negative(size, bounds):
                yield str(size), f"{size} is {{n}}, which must be 0 or more", ""

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
        renamed = [tuple([substitute(size, dims) for size in shape]) for shape in shapes]
        return tuple(renamed), _bounds([substitute(size, dims) for size in self._least])

    def _solution(self, one: Size, other: Size) -> tuple[str, Size] | None:
        """One of our own dims, and what it is where two sizes are equal."""
        found = None if one == other else solution(one, other)
        if found is None or found[0] not in self._dims:
            return found
        name, size = found
        own = str(size)
        return (own, symbol(name)) if own.isidentifier() and own not in self._dims else None


def _bounds(sizes: Sequence[Size]) -> dict[str, tuple[int, int | None]]:
    """The bounds of dims in which sizes of one dim alone are 0 or more."""
    bounds: dict[str, tuple[int, int | None]] = {}
    for size in sizes:
        if len(names(size)) != 1:
            continue
        (name,) = names(size)
        low, high = bounds.get(name, (0, None))
        highest = highest_value(size)
        if highest is not None:
            bounds[name] = low, highest if high is None else min(high, highest)
        else:
            least = least_value(size, name, low, high)
            bounds[name] = low if least is None else least, high
    return bounds
