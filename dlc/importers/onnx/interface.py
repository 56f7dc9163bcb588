"""The interface of a graph: names, sizes, and a check of the file's declarations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dlc.dialects import func
from dlc.dialects.interface import bounds_attribute
from dlc.errors import Diagnostic, ModelError, UsageError
from dlc.importers.identifiers import Identifiers
from dlc.importers.onnx.facts import Array, Graph, Input, Output, Tensor
from dlc.importers.solved_sizes import SolvedSizes
from dlc.ir.attributes import encode
from dlc.ir.dims import Bounds, Shape, Size, known_multiple, names, substitute, symbol
from dlc.ir.types import TensorType
from dlc.text.model.words import NEVER_NAMES

MEANINGLESS = ("torch_jit_export", "torch_jit", "main_graph", "graph", "tf2onnx", "main", "test")
"""Names that exporters give every graph; entry points are then `run`, as for what is not a name."""


def entry_name(graph: Graph) -> str:
    """The name of the only entry point."""
    means = graph.name.isidentifier() and graph.name not in MEANINGLESS
    return Identifiers("run").of(graph.name if means else "")


def input_names(graph: Graph) -> tuple[str, ...]:
    """The names of the inputs."""
    called = Identifiers("x")
    return tuple([called.of(declared.name) for declared in graph.inputs])


def result_names(graph: Graph) -> tuple[str, ...]:
    """The names of the results; expressions cannot refer to them, so few words are reserved."""
    called = Identifiers("y", NEVER_NAMES)
    return tuple([called.of(name) for name in graph.outputs])


def check_names(graph: Graph, what: str, names: Iterable[str], candidates: Sequence[str]) -> None:
    """Raise UsageError (D0901) for a name that the file does not have."""
    for name in names:
        if name not in candidates:
            listed = ", ".join(candidates) or "none"
            raise UsageError(
                f"{graph.file} has no {what} {name}", code="D0901", help=f"it has {listed}"
            )


def with_fixed(graph: Graph, fixed: Mapping[str, Array]) -> Graph:
    """The graph with values in place of some of its inputs.

    Raises UsageError (D0901) for a value whose type is not that of the input.
    """
    if not fixed:
        return graph
    tensors = dict(graph.tensors)
    for declared in graph.inputs:
        if declared.name in fixed:
            tensors[declared.name] = _fitting(declared, np.asarray(fixed[declared.name]))
    kept = tuple([declared for declared in graph.inputs if declared.name not in fixed])
    return replace(graph, inputs=kept, tensors=tensors)


def _fitting(declared: Input, value: Array) -> Tensor:
    assert declared.dtype is not None
    sizes = zip(declared.axes, value.shape, strict=False)
    fits = len(declared.axes) == value.ndim and all(
        axis == size for axis, size in sizes if isinstance(axis, int)
    )
    kind = np.dtype(np.float64) if declared.dtype.is_float else declared.dtype.numpy
    if not fits or not np.can_cast(value.dtype, kind, "same_kind"):
        axes = [axis or "?" for axis in declared.axes]
        raise UsageError(
            f"{declared.name} is {declared.dtype.name}{axes}, its fixed value has the shape "
            f"{list(value.shape)} and the dtype {value.dtype}",
            code="D0901",
            help="--fix NAME=VALUE takes a number or a list of numbers of that shape",
        )
    array = value.astype(kind)
    return Tensor(
        declared.dtype, encode(array, declared.dtype) if declared.dtype.is_float else array
    )


@dataclass(frozen=True, slots=True)
class AskedSizes:
    """What is asked of the inputs: other shapes, by their names, numbers and bounds of sizes, by theirs."""

    shapes: Mapping[str, Shape]
    dims: Mapping[str, int]
    bounds: Bounds

    def with_numbers(self, numbers: Mapping[str, int]) -> AskedSizes:
        """The same with numbers for more sizes."""
        return replace(self, dims={**self.dims, **numbers})


class Sizes:
    """The shapes of inputs: declared ones or others, with names for sizes or numbers in their place.

    In ONNX a size may be called like an input or like the graph; ours are names in one scope, so such a
    size gets another.
    """

    def __init__(
        self,
        graph: Graph,
        asked: AskedSizes,
        solved: SolvedSizes,
    ) -> None:
        self._shapes = asked.shapes
        self._dims = asked.dims
        self._bounds = {
            name: (low, high)
            for name, (low, high) in asked.bounds.items()
            if low >= 1 and (high is None or low <= high)
        }
        only = {name: low for name, (low, high) in self._bounds.items() if low == high}
        self._numbers = {**only, **asked.dims}
        self._solved = solved
        self._tensors = {declared.name for declared in (*graph.inputs, *graph.declared)}
        self._taken = {entry_name(graph), *input_names(graph)}
        self._names = Identifiers("N", taken=self._taken)
        self._named: dict[str, Size] = {}

    @property
    def are_declared(self) -> bool:
        """Whether all shapes are those of the file."""
        return not self._shapes and not self._dims and not self.settled

    @property
    def settled(self) -> frozenset[str]:
        """The names of sizes that keep to the bounds that were asked for."""
        return frozenset(self._known() & self._bounds.keys())

    @property
    def renamed(self) -> dict[str, str]:
        """The renamed sizes of the file."""
        return {
            f"the size {old}" if old in self._tensors else old: str(new)
            for old, new in self._named.items()
            if old != str(new)
        }

    def of_inputs(self, graph: Graph) -> list[str]:
        """The names of all sizes that inputs have."""
        found = zip(graph.inputs, input_names(graph), strict=True)
        shapes = [self.of(declared, name) for declared, name in found]
        return list(
            dict.fromkeys(n for shape in shapes for size in shape for n in sorted(names(size)))
        )

    def of(self, declared: Input, name: str) -> Shape:
        """The shape of an input, which is called `name` from now on."""
        shape = self._shapes.get(declared.name)
        if shape is None:
            axes = enumerate(declared.axes)
            shape = tuple([self._size(f"{name}_{number}", axis) for number, axis in axes])
        for used in sorted({dim for size in shape for dim in names(size)}):
            if used in self._taken:
                raise UsageError(
                    f"the shape of {declared.name} has a size {used}, which is the name of an input "
                    "or of the entry point",
                    code="D0901",
                    help="give the size another name",
                )
            self._named.setdefault(used, symbol(used))
        return tuple(
            [substitute(substitute(size, self._numbers), self._solved.dims) for size in shape]
        )

    def _size(self, axis_name: str, axis: int | str | None) -> Size:
        if isinstance(axis, int):
            return axis
        key = axis_name if axis is None else axis
        if key not in self._named:
            # tf2onnx writes such names for sizes that have none.
            name = "N" if key.startswith("unk__") else key
            self._named[key] = symbol(self._names.of(name))
        return self._named[key]

    def check(self, graph: Graph) -> None:
        """Raise UsageError if a number was given to a size that is not there."""
        check_names(graph, "size", self._dims, sorted(self._known()))

    def _known(self) -> set[str]:
        return {dim for size in self._named.values() for dim in names(size)}

    def bounds_of(self, shapes: Iterable[Shape]) -> dict[str, tuple[int, int | None]]:
        """The bounds of sizes with names: those that were asked for, or any from 1 on."""
        used = [name for shape in shapes for size in shape for name in sorted(names(size))]
        return {name: self._bounds_of(name) for name in used}

    def _bounds_of(self, name: str) -> tuple[int, int | None]:
        """The bounds of a size; in `16*H` those of H that keep all of it inside those of the file's H."""
        if name in self._solved.bounds:
            return self._solved.bounds[name]
        low, high = self._bounds.get(name, (1, None))
        step = known_multiple(self._solved.dims.get(name, 1))
        return max(-(-low // step), 1), None if high is None else high // step


def check_result(
    graph: Graph, declared: Output, type: TensorType, *, sizes: bool
) -> Diagnostic | None:
    """A warning where the file declares another shape of a result than its nodes make, which holds.

    Shapes are compared if `sizes` says so: not where others were asked for than those of the file.
    Raises ModelError (D0521) where the dtypes differ.
    """
    same_dtype = declared.dtype in (None, type.dtype)
    if same_dtype and (not sizes or declared.axes is None or _agree(declared.axes, type.shape)):
        return None
    dtype = type.dtype if declared.dtype is None else declared.dtype
    axes = type.shape if declared.axes is None else [axis or "?" for axis in declared.axes]
    shown = f"{dtype.name}[{', '.join(map(str, axes))}]" if axes else dtype.name
    message = (
        f"{graph.file}: the output {declared.name} is declared as {shown}, "
        f"but its nodes make {type.text}"
    )
    if same_dtype:
        return Diagnostic("D0521", message, severity="warning")
    raise ModelError(
        message, code="D0521", help="correct the declaration of the output in the file"
    )


def _agree(declared: Sequence[int | str | None], shape: Shape) -> bool:
    """Whether shapes can be the same; sizes with names may have any value."""
    return len(declared) == len(shape) and all(
        one == other
        for one, other in zip(declared, shape, strict=True)
        if isinstance(one, int) and isinstance(other, int)
    )


def declare(
    function: func.Func,
    inputs: tuple[str, ...],
    results: tuple[str, ...],
    bounds: Mapping[str, tuple[int, int | None]],
) -> None:
    """Write names and bounds into a function."""
    if bounds:
        function.attributes["dlc.dims"] = bounds_attribute(dict(bounds))
    function.attributes["dlc.inputs"] = inputs
    function.attributes["dlc.results"] = results
