"""Functions whose axes are named in a text: `einsum` and `rearrange`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dlc.dialects import array
from dlc.dialects.array import show
from dlc.dialects.array.shape import reshape, transpose
from dlc.frontend.builtins.registry import builtin
from dlc.frontend.elaboration.tensors import dtype_of, refuse_mixture, tensor_type
from dlc.frontend.elaboration.trace import Trace
from dlc.frontend.elaboration.values import Datum
from dlc.ir.core import Value
from dlc.ir.dims import Size, floor_divide, product

GROUP: Final = "shapes"
REST: Final = ".."
"""The axes that a pattern does not name."""

_SIDE = re.compile(r"\s*(?:(\w+)|(\.\.\.?)|\(([\w\s]*)\))")


@builtin(
    "einsum(equation: text, *xs: alike)",
    GROUP,
    "The sum of products in Einstein's notation: axes that stand on the left of `->` only are summed "
    "over; `..` stands for leading axes.",
    'einsum("ij,jk->ik", [[1, 2]], [[3], [4]])',
    "[[11]]",
)
def einsum(at: Trace, equation: str, *xs: Value) -> Datum:
    if not xs:
        raise at.fail("D0208", "einsum needs tensors behind its equation")
    for x in xs[1:]:
        if dtype_of(x) is not dtype_of(xs[0]):
            raise refuse_mixture(at, [xs[0], x])
    return array.einsum(at, equation, xs)


@builtin(
    "rearrange(x: tensor, pattern: text, **sizes: size)",
    GROUP,
    "The axes of x named, taken apart, exchanged and joined: `(n h d)` is one axis made of three, whose "
    "sizes but one are given by name; `..` stands for axes without names.",
    'rearrange([1, 2, 3, 4, 5, 6], "(a b) -> b a", a=2)',
    "[[1, 4], [2, 5], [3, 6]]",
)
def rearrange(at: Trace, x: Value, pattern: str, **sizes: Size) -> Datum:
    left, right = _sides(at, pattern)
    return _Rearranged(at, x, pattern, left, right, sizes).value()


Side = list[list[str]]
"""The axes of one side; an axis in parentheses has several names."""


def _sides(at: Trace, pattern: str) -> tuple[Side, Side]:
    parts = pattern.split("->")
    if len(parts) != 2:
        raise at.fail("D0336", f'the pattern "{pattern}" is not of the form "a b -> b a"')
    return _side(at, parts[0], pattern), _side(at, parts[1], pattern)


def _side(at: Trace, text: str, pattern: str) -> Side:
    axes: Side = []
    position = 0
    text = text.rstrip()
    while position < len(text):
        match = _SIDE.match(text, position)
        if match is None:
            raise at.fail(
                "D0336", f'cannot read "{text[position:].strip()}" in the pattern "{pattern}"'
            )
        name, dots, group = match.groups()
        axes.append([name] if name else [REST] if dots else group.split())
        position = match.end()
    names = [name for axis in axes for name in axis if name != "1"]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise at.fail("D0336", f'{twice} is twice on one side of "{pattern}"')
    return axes


@dataclass(slots=True)
class _Rearranged:
    at: Trace
    x: Value
    pattern: str
    left: Side
    right: Side
    sizes: Mapping[str, Size]

    def value(self) -> Value:
        at = self.at
        names, shape = self._expanded()
        order = [name for axis in self.right for name in axis if name != "1"]
        order = [axis for name in order for axis in self._axes_of(name, names)]
        left_over = [name for name in names if name not in order]
        if left_over:
            raise at.fail(
                "D0336",
                f'{left_over[0]} of the pattern "{self.pattern}" is missing on its right side',
                help="sum or take the axis away first",
            )
        x = reshape(at, self.x, tuple(shape))
        x = transpose(at, x, tuple([names.index(name) for name in order]))
        size_of = dict(zip(names, shape, strict=True))
        final: list[Size] = []
        for axis in self.right:
            if axis == [REST]:
                final += [size_of[name] for name in self._axes_of(REST, names)]
            else:
                final.append(product([size_of[n] for n in axis if n != "1"]))
        return reshape(at, x, tuple(final))

    def _axes_of(self, name: str, names: Sequence[str]) -> list[str]:
        """The names of the expanded axes that a name on the right stands for."""
        axes = [n for n in names if n == name or (name == REST and n.startswith(REST))]
        if not axes and name != REST:
            raise self.at.fail(
                "D0336", f'{name} of the pattern "{self.pattern}" is missing on its left side'
            )
        return axes

    def _expanded(self) -> tuple[list[str], list[Size]]:
        """The names and sizes of the axes once all groups are taken apart."""
        shape = tensor_type(self.x).shape
        named = sum(axis != [REST] for axis in self.left)
        rest = len(shape) - named
        if rest < 0 or (rest > 0 and [REST] not in self.left):
            raise self.at.fail(
                "D0336",
                f'the pattern "{self.pattern}" names {named} axes, {show(self.x)} has {len(shape)}',
            )
        names: list[str] = []
        sizes: list[Size] = []
        position = 0
        for axis in self.left:
            if axis == [REST]:
                names += [f"{REST}{k}" for k in range(rest)]
                sizes += shape[position : position + rest]
                position += rest
                continue
            self._take(axis, shape[position], names, sizes)
            position += 1
        return names, sizes

    def _take(self, axis: list[str], size: Size, names: list[str], sizes: list[Size]) -> None:
        """Add the parts of one axis; the size of at most one of them is not given."""
        parts = [name for name in axis if name != "1"]
        size_of: dict[str, Size] = {name: self.sizes[name] for name in parts if name in self.sizes}
        missing = [name for name in parts if name not in size_of]
        total = product(size_of.values())
        if len(missing) > 1:
            raise self.at.fail(
                "D0336",
                f"the sizes of {' and '.join(missing)} are not known",
                help=f"give one of them: {missing[0]}=...",
            )
        if missing and total != 0:
            size_of[missing[0]] = floor_divide(size, total)
            total = total * size_of[missing[0]]
        if total != size:
            text = " * ".join(str(size_of[name]) for name in parts) or "1"
            raise self.at.fail(
                "D0336",
                f"({' '.join(axis)}) of {show(self.x)} has size {size}, which is not {text}",
            )
        names += parts
        sizes += [size_of[name] for name in parts]
