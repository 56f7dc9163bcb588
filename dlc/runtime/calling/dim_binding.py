"""Dim binding: the value of each named size in a call, solved from the input shapes or passed by name.

>>> from dlc.runtime.artifact.manifest import Dim, Entry, Input, Output
>>> entry = Entry(
...     "f",
...     (Input("x", "f32", ("B", "2*T + 1")), Input("y", "f32", ("B",))),
...     (Output("z", "f32", ("B", "N")),),
...     (Dim("B", 1, 8), Dim("T"), Dim("N", 1, 100)),
... )
>>> bind = DimBinder(entry).bind
>>> bind([(3, 9), (3,)], {"N": 5})
{'N': 5, 'B': 3, 'T': 4}
>>> bind([(3, 9), (4,)], {"N": 5})
Traceback (most recent call last):
    ...
dlc.errors.CallError: error[D0804]: f: B is 3 in x but 4 in y
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CallError
from dlc.runtime.artifact import size_expressions
from dlc.runtime.artifact.manifest import Dim, Entry, Input, Need
from dlc.runtime.artifact.size_expressions import BadExpression, Expression, Numbers
from dlc.runtime.artifact.spelling import describe
from dlc.runtime.calling.status import need_error

Shape = tuple[int, ...]

NEAR = np.array([sign * distance for distance in range(1, 65) for sign in (-1, 1)])
"""What is added to the dim of a call for values to propose, the nearest first."""
FEW = 2
"""Up to this number they are looked at one by one."""


class DimBinder:
    """Solves for the dims of one entry point; `free` are those that the caller must pass by name.

    A dim is free if no input size determines it, as neither does in `T - S`: then the first one is free,
    and the other follows. `texts` gives the model's text by file name, for excerpts under messages.
    """

    def __init__(
        self, entry: Entry, texts: Callable[[], Mapping[str, str]] = dict[str, str]
    ) -> None:
        self.entry = entry
        self._texts = cache(texts)
        self._inputs = [
            (item, [size_expressions.parse(size) for size in item.shape]) for item in entry.inputs
        ]
        self._dims = {dim.name: dim for dim in entry.dims if dim.measured is None}
        self._plain = [_plain_axes(sizes, self._dims.keys()) for _, sizes in self._inputs]
        self._formulas = [_formulas(sizes, self._dims.keys()) for _, sizes in self._inputs]
        self.free = _untold(
            tuple(self._dims), [size for _, sizes in self._inputs for size in sizes]
        )

    def bind(self, shapes: Sequence[Shape], given: Mapping[str, int]) -> dict[str, int]:
        """The value of each dim.

        Raises CallError: D0803 for a rank or a fixed size, D0804 for dims, D0807 for what dims of these
        values leave no room for.
        """
        self._check_ranks(shapes)
        values: dict[str, int] = {}
        for name in self.free:
            if name not in given:
                way_out = f"write {name}={self.example(name)}"
                raise self._fail("D0801", f"the size {name} must be given", way_out)
            values[name] = given[name]
        self._bind_names(shapes, values)
        self._solve(dict(enumerate(shapes)), values)
        for name in self._dims:
            if name not in values:
                raise self._fail("D0804", self._no_value(name, shapes))
        self._check_sizes(shapes, values)
        self.check_bounds({name: values[name] for name in self._dims})
        self.check_needs(values)
        return values

    def _no_value(self, name: str, shapes: Sequence[Shape]) -> str:
        """The message for a dim without a value; names the first size that it alone would have to make."""
        for (item, sizes), shape in zip(self._inputs, shapes, strict=True):
            for size, have in zip(sizes, shape, strict=True):
                if size.names == frozenset((name,)):
                    return f"{item.name} is {_typed(item, shape)}: its size {have} is {size} for no {name}"
        return f"no value of {name} gives the inputs these shapes"

    def told(self, shapes: Mapping[int, Shape], given: Mapping[str, int]) -> dict[str, int]:
        """The dims that inputs of these shapes, by their numbers, tell beside those that are given."""
        values = dict(given)
        self._solve(shapes, values)
        return values

    def check_bounds(self, values: Mapping[str, int]) -> None:
        """Raises CallError (D0804) for a dim that is outside its bounds."""
        for name, value in values.items():
            self._check_bounds(self._dims[name], value)

    def check_needs(self, values: Mapping[str, int], *, shapes_only: bool = False) -> None:
        """Raises CallError (D0804, D0807) for a size in the model that would be below 0 at these dims, and
        for two that would differ though the model says that they are equal.

        With `shapes_only` elements that would be missing (D0807) do not count: arrays have their sizes.
        """
        for need in self.entry.needs:
            if shapes_only and need.code != "D0804":
                continue
            try:
                sizes = self._sizes(need, values)
            except CallError as error:
                told = error.diagnostics[0].message.removeprefix(f"{self.entry.name}: ")
                raise self._fail("D0804", f"{told}, so {need.told}") from None
            if not _holds(sizes):
                parsed = [size_expressions.parse(size) for size in need.sizes]
                names = frozenset[str]().union(*[each.names for each in parsed])
                dims = {name: values[name] for name in sorted(names)}
                way_out = partial(self._nearest, need, dims, values) if need.equals else None
                raise need_error(self.entry.name, need, sizes, dims, self._texts, way_out)

    def _sizes(self, need: Need, values: Mapping[str, int]) -> list[int]:
        """The sizes that a need compares."""
        return [self.evaluate(size_expressions.parse(size), values) for size in need.sizes]

    def _nearest(self, failed: Need, names: Iterable[str], values: Mapping[str, int]) -> str | None:
        """The nearest value of one of some dims at which the call would be possible; None if far away."""
        others = [need for need in self.entry.needs if need is not failed]
        found: list[tuple[int, str, int]] = []
        with np.errstate(divide="ignore"):
            for name in names:
                near, lower = values[name] + NEAR, self._dims[name].lower
                for need in (failed, *others):
                    near = near[_are_met(need, {**values, name: near}) & (near >= lower)]
                    if near.size <= FEW:
                        break
                found += [(abs(int(value) - values[name]), name, int(value)) for value in near]
        for _, name, value in sorted(found, key=lambda each: each[0]):
            if self._is_possible({**values, name: value}):
                return f"it is possible where {name} is {value}"
        return None

    def _is_possible(self, values: Mapping[str, int]) -> bool:
        """Whether dims of these values are inside their bounds and meet all needs."""
        try:
            self.check_bounds({name: values[name] for name in self._dims})
            return all(_holds(self._sizes(need, values)) for need in self.entry.needs)
        except CallError:
            return False

    def _check_ranks(self, shapes: Sequence[Shape]) -> None:
        for item, (fixed, _), shape in zip(self.entry.inputs, self._plain, shapes, strict=True):
            fits = len(shape) == len(item.shape)
            for axis, size in fixed:
                fits = fits and shape[axis] == size
            if not fits:
                message = (
                    f"{item.name} is {_typed(item, shape)}, where {describe(item)} is expected"
                )
                raise self._fail("D0803", message, _way_out(item, shape))

    def _bind_names(self, shapes: Sequence[Shape], values: dict[str, int]) -> None:
        """Sizes that are a bare name."""
        places: dict[str, str] = {}
        for item, (_, named), shape in zip(self.entry.inputs, self._plain, shapes, strict=True):
            for axis, name in named:
                have = shape[axis]
                if values.setdefault(name, have) != have:
                    message = f"{name} is {values[name]} in {places[name]} but {have}"
                    raise self._fail("D0804", f"{message} in {item.name}")
                places.setdefault(name, item.name)

    def _solve(self, shapes: Mapping[int, Shape], values: dict[str, int]) -> None:
        """Names that are in expressions, such as T in `2*T + 1`, from the shapes of inputs by number."""
        for _ in range(len(self._dims) - len(values)):
            for number, shape in shapes.items():
                for size, have in zip(self._inputs[number][1], shape, strict=False):
                    unknown = size.names - values.keys()
                    if len(unknown) == 1:
                        (name,) = unknown
                        solution = _solution(size, name, have, values)
                        if solution is not None:
                            values[name] = solution

    def _check_sizes(self, shapes: Sequence[Shape], values: Mapping[str, int]) -> None:
        """Check the sizes that are neither numbers nor names, which were compared before."""
        for item, sizes, shape in zip(self.entry.inputs, self._formulas, shapes, strict=True):
            for axis, size in sizes:
                want, have = self.evaluate(size, values), shape[axis]
                if want != have:
                    at = ", ".join(f"{name} = {values[name]}" for name in sorted(size.names))
                    message = f"{item.name} is {_typed(item, shape)}, where {size} is {want} ({at})"
                    raise self._fail("D0804", message)

    def evaluate(self, size: Expression, values: Mapping[str, int]) -> int:
        """The number that a size is; raises CallError (D0804) if it has none."""
        try:
            return size.evaluate(values)
        except BadExpression as error:
            raise self._fail("D0804", str(error)) from None

    def _check_bounds(self, dim: Dim, value: int) -> None:
        if value < dim.lower or (dim.upper is not None and value > dim.upper):
            upper = "" if dim.upper is None else dim.upper
            places = [
                item.name for item, sizes in self._inputs if any(dim.name in s.names for s in sizes)
            ]
            where = f" in {places[0]}" if places else ""
            message = f"{dim.name} is {value}{where}, outside its bounds {dim.lower}..{upper}"
            raise self._fail("D0804", message)

    def is_tied(self, names: Iterable[str]) -> bool:
        """Whether an input has a size that depends on one of these dims."""
        mentioned = {name for _, sizes in self._inputs for size in sizes for name in size.names}
        return not mentioned.isdisjoint(names)

    def example(self, name: str) -> int:
        """A value that a dim may have, for a message."""
        dim = self._dims[name]
        return max(dim.lower, 8 if dim.upper is None else min(8, dim.upper))

    def _fail(self, code: str, message: str, help: str | None = None) -> CallError:
        return CallError(f"{self.entry.name}: {message}", code=code, help=help)


def _plain_axes(
    sizes: Sequence[Expression], dims: Container[str]
) -> tuple[list[tuple[int, int]], list[tuple[int, str]]]:
    """The axes whose size is a number, and those whose size is the bare name of a dim, with these."""
    texts = [(axis, size.text) for axis, size in enumerate(sizes)]
    fixed = [(axis, int(text)) for axis, text in texts if text.isdecimal()]
    return fixed, [(axis, text) for axis, text in texts if text in dims]


def _formulas(sizes: Sequence[Expression], dims: Container[str]) -> list[tuple[int, Expression]]:
    """The axes whose size is neither a number nor the bare name of a dim, with their sizes."""
    return [
        (axis, size)
        for axis, size in enumerate(sizes)
        if not size.text.isdecimal() and size.text not in dims
    ]


def _holds(sizes: Sequence[int]) -> bool:
    """Whether a need is met: two sizes are equal, or one is not below 0."""
    size, *others = sizes
    return size == others[0] if others else size >= 0


def _are_met(need: Need, dims: Mapping[str, Numbers]) -> NDArray[np.bool_]:
    """Where a need is met, for dims that are arrays."""
    size, *others = [size_expressions.parse(text).of_arrays(dims) for text in need.sizes]
    return np.asarray(size == others[0] if others else size >= 0)


def _untold(dims: Sequence[str], sizes: Sequence[Expression]) -> tuple[str, ...]:
    """The dims that these sizes do not tell, in their order; each of them, once given, may tell others.

    >>> _untold(["T", "S", "N"], [size_expressions.parse("T - S")])
    ('T', 'N')
    """
    unknown = [set(size.names).intersection(dims) for size in sizes]
    places: dict[str, list[int]] = {dim: [] for dim in dims}
    for number, names in enumerate(unknown):
        for name in names:
            places[name].append(number)
    ready = list(range(len(sizes)))
    untold: list[str] = []

    def tell(dim: str) -> None:
        for number in places.pop(dim):
            unknown[number].discard(dim)
            ready.append(number)

    for dim in dims:
        while ready:
            number = ready.pop()
            if len(unknown[number]) == 1 and all(map(sizes[number].is_line_in, unknown[number])):
                tell(*unknown[number])
        if dim in places:
            untold.append(dim)
            tell(dim)
    return tuple(untold)


def _solution(size: Expression, name: str, have: int, values: Mapping[str, int]) -> int | None:
    """The value of `name` at which a size that depends on it in a straight line is `have`."""
    if not size.is_line_in(name):
        return None
    try:
        at_zero = size.evaluate({**values, name: 0})
        slope = size.evaluate({**values, name: 1}) - at_zero
    except BadExpression:
        return None
    if slope == 0 or (have - at_zero) % slope:
        return None
    return (have - at_zero) // slope


def _typed(item: Input, shape: Shape) -> str:
    return f"{item.dtype}{list(shape)}" if shape else item.dtype


def _way_out(item: Input, shape: Shape) -> str | None:
    """What most often is meant when the number of axes is off by one: a batch of one."""
    with_one = (1, *shape)
    if len(with_one) == len(item.shape) and all(
        size == str(have) or not size.isdecimal()
        for size, have in zip(item.shape, with_one, strict=True)
    ):
        return f"add a first axis of size 1: {item.name} is {_typed(item, with_one)} then"
    return None
