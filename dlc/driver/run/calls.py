"""One call of an entry point from texts: which one, with which inputs, giving which results.

Only the runtime is needed: this is what `dlc run x.dlc` loads.
"""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from dlc.driver.entry_choice import choose
from dlc.driver.run.inputs import ZEROS, Value, bytes_of, random_value, read_value, shape_of, zeros
from dlc.driver.run.results import Results, check_files, results_of
from dlc.errors import CallError, UsageError
from dlc.errors.suggest import did_you_mean
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.manifest import STEP, Entry, Input, Training
from dlc.runtime.artifact.spelling import describe, python_name
from dlc.runtime.calling.dim_binding import DimBinder
from dlc.runtime.calling.signature import default_value
from dlc.runtime.model import Model, load
from dlc.runtime.system.available_memory import check_free
from dlc.runtime.training.batch_sizes import batch_of

USUAL = 4
"""What a size is near to where nothing tells it."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call: values and sizes by their names in Python."""

    entry: str
    named: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A call as the user writes it: texts of inputs by name, sizes, and a seed for inputs left out.

    `files` says where results go, by their names; `words` is the command line, which is suggested with
    what it lacks. `usual` are sizes that are taken in place of `USUAL` where nothing tells them.
    """

    path: str
    entry: str | None = None
    inputs: Mapping[str, str] = field(default_factory=dict[str, str])
    dims: Mapping[str, int] = field(default_factory=dict[str, int])
    seed: int | None = None
    resize: bool = False
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    words: tuple[str, ...] = ()
    usual: Mapping[str, int] = field(default_factory=dict[str, int])

    def arguments(
        self,
        entries: Iterable[Entry],
        limits: Mapping[str, str] | None = None,
        training: Training | None = None,
    ) -> Arguments:
        """The checked arguments for the entry point that is meant.

        `limits` are sizes below which random integers of an input must be, where these are known. A step
        of `training` takes a whole batch, unless the inputs or sizes given say otherwise.
        Raises UsageError: D0904 where it is not clear which is meant; D0906 for inputs, sizes and results
        that are unknown or missing, with a command that works; D0907 for values that cannot be read;
        CallError for values and sizes that do not fit.
        """
        entries_by_name = {entry.name: entry for entry in entries}
        entry = entries_by_name[choose(entries_by_name, self.entry)]
        if training is not None and entry.name == STEP:
            batch = batch_of(training, entry)
            usual = {} if batch is None else {batch: training.batch}
            return replace(self, usual=usual).arguments([entry], limits)
        self._check_names(entry)
        check_files(entry, self.files)
        binder = DimBinder(entry)
        binder.check_bounds(self.dims)
        self._check_complete(entry, binder)
        values = self._values(entry, binder, limits or {})
        self._check_sizes(entry, binder, values)
        sizes = self._sizes(entry, binder, values)
        arguments = {**values, **{name: sizes[name] for name in binder.free}}
        named = {python_name(name): value for name, value in arguments.items()}
        return Arguments(entry.name, named)

    def _values(
        self, entry: Entry, binder: DimBinder, limits: Mapping[str, str]
    ) -> dict[str, Value]:
        """The inputs by name, without those that are left to their defaults."""
        values: dict[str, Value] = {}
        for item in entry.inputs:
            text = self.inputs.get(item.name, ZEROS)
            if text != ZEROS:
                values[item.name] = read_value(text, item, resize=self.resize)
        sizes = self._sizes(entry, binder, values)
        self._check_room(entry, sizes)
        for item in entry.inputs:
            if self.inputs.get(item.name) == ZEROS:
                values[item.name] = zeros(item, sizes)
            elif self._is_made(item) and self.seed is not None:
                limit = limits.get(item.name, "")
                values[item.name] = random_value(item, sizes, self.seed, limit)
        inouts = [item for item in entry.inputs if item.name in entry.inouts]
        return {**values, **{item.name: _own(values.get(item.name), item) for item in inouts}}

    def _check_room(self, entry: Entry, sizes: Mapping[str, int]) -> None:
        """Raises Unsupported (D0705) if less is free than the inputs to be made and the results take."""
        generated = [item for item in entry.inputs if self._is_made(item)]
        for item in generated:
            shape_of(item, sizes)  # one that is too large alone is told by its name
        own = [output for output in entry.outputs if not output.updates]
        check_free(f"a call of {entry.name}", sum(bytes_of(t, sizes) for t in (*generated, *own)))

    def _is_made(self, item: Input) -> bool:
        """Whether an input gets zeros or random numbers."""
        if item.name in self.inputs:
            return self.inputs[item.name] == ZEROS
        return item.default is None and self.seed is not None

    def _check_complete(self, entry: Entry, binder: DimBinder) -> None:
        """Every input has a value and every size that no input shows has a number."""
        if self.seed is not None:
            return
        inputs = [
            item for item in entry.inputs if item.name not in self.inputs and item.default is None
        ]
        sizes = [name for name in binder.free if name not in self.dims]
        if inputs or sizes:
            raise self._missing(binder, inputs, sizes)

    def _check_names(self, entry: Entry) -> None:
        inputs = [item.name for item in entry.inputs]
        dims = [dim.name for dim in entry.dims]
        _check_known(f"{entry.name} has no input", self.inputs, inputs)
        _check_known(f"{entry.name} has no size", self.dims, dims)

    def _check_sizes(self, entry: Entry, binder: DimBinder, values: Mapping[str, Value]) -> None:
        """Refuse a size that was given otherwise than an input shows it."""
        for number, item in enumerate(entry.inputs):
            if item.name not in values:
                continue
            shape = values[item.name].shape
            for name, size in binder.told({number: shape}, {}).items():
                if self.dims.get(name, size) != size:
                    raise UsageError(
                        f"--dim {name}={self.dims[name]}, but {item.name} has {size} for {name}",
                        code="D0906",
                        help=f"leave --dim {name} out: the input tells it",
                    )

    def _sizes(
        self, entry: Entry, binder: DimBinder, values: Mapping[str, Value]
    ) -> dict[str, int]:
        """A number for each size: the one given, the one that inputs tell, or the nearest to the usual."""
        sizes: dict[str, int] = {}
        for dim in entry.dims:
            size = self.usual.get(dim.name, USUAL)
            sizes[dim.name] = max(dim.lower, size if dim.upper is None else min(size, dim.upper))
        shapes = {
            number: values[item.name].shape
            for number, item in enumerate(entry.inputs)
            if item.name in values
        }
        free = {name: sizes[name] for name in binder.free}
        return {**sizes, **binder.told(shapes, {**free, **self.dims}), **self.dims}

    def _missing(
        self, binder: DimBinder, inputs: Sequence[Input], sizes: Sequence[str]
    ) -> UsageError:
        missing = [*[f"{item.name}: {describe(item)}" for item in inputs], *sizes]
        are = "is" if len(missing) == 1 else "are"
        one = "--input NAME=FILE" if inputs else f"--dim {sizes[0]}={binder.example(sizes[0])}"
        help = f"{one} gives one"
        if inputs or not binder.is_tied(sizes):  # else not any number goes with the inputs given
            words = shlex.join(("dlc", *self.words, "--random-inputs", "0"))
            help = f"{words} works; {help}"
        return UsageError(
            f"{', '.join(missing)} {are} missing, of {binder.entry.name}", code="D0906", help=help
        )


def _own(value: Value | None, item: Input) -> Value:
    """An array that a call may change: a copy of what was given, or of the default."""
    given = default_value(item) if value is None else Tensor(value)
    assert given is not None
    return Tensor.from_bits(np.array(given.bits, order="C"), item.dtype)


def _check_known(what: str, names: Iterable[str], candidates: Sequence[str]) -> None:
    for name in names:
        if name not in candidates:
            listed = f"there are {', '.join(candidates)}" if candidates else "there are none"
            raise UsageError(
                f"{what} {name}",
                code="D0906",
                help=did_you_mean(name, candidates) or listed,
            )


@contextmanager
def random_indices_told(request: CallRequest) -> Generator[None]:
    """A context for calls with random inputs: an index out of range says how to give other ones."""
    try:
        yield
    except CallError as error:
        (said,) = error.diagnostics[:1]
        if said.code != "D0807" or request.seed is None:
            raise
        help = "--input NAME=FILE or --input NAME=zeros gives other integers than random ones"
        raise CallError([replace(said, help=help)], sources=error.sources) from None


def load_model(
    path: str,
    *,
    weights: str | os.PathLike[str] | Mapping[str, object] | None = None,
    threads: int | None = None,
    max_memory: int | None = None,
    device: str | None = None,
    comm: object = None,
) -> Model:
    """An artifact, perhaps with other weights: those of a file, or arrays by name.

    `comm` is the communicator of the ranks that share its calls.
    """
    model = load(path, threads=threads, max_memory=max_memory, device=device, comm=comm)
    return model if weights is None else model.with_weights(weights)


def call(model: Model, request: CallRequest) -> Results:
    """Call the entry point that is meant."""
    arguments = request.arguments([point.entry for point in model.entry_points.values()])
    with random_indices_told(request):
        return call_with(model, arguments)


def call_with(model: Model, arguments: Arguments) -> Results:
    """Call an entry point with arguments that were read before."""
    point = model.entry_points[arguments.entry]
    # `out` is not among the names.
    result = _interruptible(model, lambda: point(**arguments.named))  # pyright: ignore[reportArgumentType]
    changed = [arguments.named[python_name(name)] for name in point.entry.inouts]
    return results_of(point, result, changed)


def _interruptible(model: Model, action: Callable[[], object]) -> object:
    """Do something with the model in a thread beside: Python hears of Ctrl-C only between its own steps.

    Then the call is asked to end, and ends after its current wave.
    """
    outcome: list[object] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(action())
        except BaseException as error:  # noqa: BLE001 - it is raised again below
            failure.append(error)

    beside = threading.Thread(target=run)
    try:
        beside.start()
    except RuntimeError:  # the system has no thread for it, so Ctrl-C waits for the call
        return action()
    try:
        beside.join()
    except KeyboardInterrupt:
        model.cancel()
        beside.join()
        raise
    if failure:
        raise failure[0]
    return outcome[0]
