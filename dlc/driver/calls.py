"""One call of an entry point from texts: which one, with which inputs, giving which results.

Only the runtime is needed: this is what `dlc run x.dlc` loads.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from numpy.typing import ArrayLike

from dlc.driver.inputs import ZEROS, Value, random_value, read_value, zeros
from dlc.errors import UsageError
from dlc.runtime.binding import Binder
from dlc.runtime.entry import EntryPoint
from dlc.runtime.manifest import Entry, Input, Output
from dlc.runtime.model import Model, load
from dlc.runtime.spelling import describe, python_name
from dlc.runtime.tensor import Tensor
from dlc.runtime.weight_files import nearest


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asks for: texts of inputs by name, sizes, and a seed for the inputs left out."""

    path: str
    entry: str | None = None
    inputs: Mapping[str, str] = field(default_factory=dict[str, str])
    dims: Mapping[str, int] = field(default_factory=dict[str, int])
    seed: int | None = None
    resize: bool = False

    def arguments(self, entry: Entry) -> dict[str, Value]:
        """The inputs by name, without those that are left to their defaults.

        Raises UsageError: D0906 for inputs and sizes that are unknown or missing, with a command that
        works; D0907 for values that cannot be read.
        """
        self._check_names(entry)
        missing = [
            item
            for item in entry.inputs
            if item.name not in self.inputs and item.default is None and self.seed is None
        ]
        if missing:
            raise self._missing(entry, missing)
        found: dict[str, Value] = {}
        for item in entry.inputs:
            text = self.inputs.get(item.name, ZEROS)
            if text != ZEROS:
                found[item.name] = read_value(text, item, resize=self.resize)
        sizes = self._sizes(entry, found)
        for item in entry.inputs:
            if self.inputs.get(item.name) == ZEROS:
                found[item.name] = zeros(item, sizes)
            elif item.name not in found and item.default is None and self.seed is not None:
                found[item.name] = random_value(item, sizes, self.seed)
        return found

    def _check_names(self, entry: Entry) -> None:
        inputs = [item.name for item in entry.inputs]
        dims = [dim.name for dim in entry.dims]
        _check_known(f"{entry.name} has no input", self.inputs, inputs)
        _check_known(f"{entry.name} has no size", self.dims, dims)

    def _sizes(self, entry: Entry, found: Mapping[str, Value]) -> dict[str, int]:
        """A number for each size: the one given, the one an input shows, or the nearest to 4."""
        sizes = {
            dim.name: max(dim.lower, 4 if dim.upper is None else min(4, dim.upper))
            for dim in entry.dims
        }
        for item in entry.inputs:
            if item.name in found:
                shape = found[item.name].shape
                sizes.update(
                    (name, size)
                    for name, size in zip(item.shape, shape, strict=False)
                    if name in sizes
                )
        return {**sizes, **self.dims}

    def _missing(self, entry: Entry, missing: Sequence[Input]) -> UsageError:
        wanted = ", ".join(f"{item.name}: {describe(item)}" for item in missing)
        are = "is" if len(missing) == 1 else "are"
        choice = f" --entry {entry.name}" if self.entry is not None else ""
        return UsageError(
            f"{wanted} {are} missing, of {entry.name}",
            code="D0906",
            help=f"dlc run {self.path}{choice} --random-inputs 0 works; --input NAME=FILE gives one",
        )


def _check_known(what: str, given: Iterable[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            near = nearest(name, known)
            listed = f"there are {', '.join(known)}" if known else "there are none"
            raise UsageError(
                f"{what} {name}",
                code="D0906",
                help=f"did you mean {near[0]}?" if near else listed,
            )


@dataclass(frozen=True, slots=True)
class Results:
    """What a call gave: each result with its declaration, in order."""

    entry: str
    values: tuple[tuple[Output, Tensor], ...]


def choose(names: Iterable[str], wanted: str | None) -> str:
    """The entry point that is meant: the named one, or the only one. Raises UsageError (D0904)."""
    known = list(names)
    if wanted is None and len(known) == 1:
        return known[0]
    if wanted in known:
        return wanted
    if not known:
        raise UsageError("the model has no entry point", code="D0904", help="write `export fn`")
    if wanted is None:
        raise UsageError(
            f"the model has {len(known)} entry points: {', '.join(known)}",
            code="D0904",
            help=f"choose one, such as --entry {known[0]}",
        )
    near = nearest(wanted, known)
    raise UsageError(
        f"there is no entry point {wanted}",
        code="D0904",
        help=f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}",
    )


def load_model(
    path: str, *, weights: str | os.PathLike[str] | None = None, threads: int | None = None
) -> Model:
    """An artifact, perhaps with the weights of another file."""
    model = load(path, threads=threads)
    return model if weights is None else model.with_weights(weights)


def call(model: Model, request: Request) -> Results:
    """Call the entry point that is meant."""
    point = model.entry_points[choose(model.entry_points, request.entry)]
    arguments = request.arguments(point.entry)
    free = Binder(point.entry).free
    sizes = {name: size for name, size in request.dims.items() if name in free}
    named: dict[str, object] = {python_name(name): value for name, value in arguments.items()}
    result = point(**named, **sizes)  # pyright: ignore[reportArgumentType] - `out` is not among them
    return results_of(point, result)


def results_of(point: EntryPoint, result: object) -> Results:
    """What a call returned, sorted by the declared results."""
    outputs = point.outputs
    found = cast("tuple[ArrayLike, ...]", result if isinstance(result, tuple) else (result,))
    pairs = zip(outputs, found, strict=True)
    return Results(point.name, tuple([(output, Tensor(value)) for output, value in pairs]))
