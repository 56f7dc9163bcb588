"""The trace: where elaboration puts operations, and the locations that they get.

A region is built like any other code: its operations may use values of the blocks around it. When it is
closed, `capture` turns these values into arguments of the region, since regions of the IR are isolated.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dlc.dialects.comm import HOST, PLACED, STAGED, stage_of_device
from dlc.dialects.measured import FreshNames
from dlc.dialects.text_mesh import TextMesh
from dlc.errors import Diagnostic, Label, ModelError, SourceLocation
from dlc.frontend.elaboration.problems import Problems, Stop
from dlc.frontend.elaboration.weight import Weight
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.location import FileLocation, Location, UnknownLocation
from dlc.ir.needs import Need
from dlc.ir.types import TensorType
from dlc.ir.value_map import ValueMap
from dlc.runtime.arrays.dtypes import MAX_RANK
from dlc.text.model import ast
from dlc.text.source import Source, Span, in_library

__all__ = ["MAX_STEPS", "REGION", "Frame", "Inout", "Loop", "Trace", "capture"]

MAX_STEPS = 110_000
"""A model that takes more steps is refused: a loop over layers was probably meant as a `scan`."""
REGION = 12
"""As how many steps an operation with regions counts, each time that these are elaborated."""
NOWHERE = UnknownLocation("no expression yet")


@dataclass(slots=True)
class Frame:
    """One function that is being elaborated in place."""

    function: str
    path: str
    source: Source
    depth: int = 0
    caller: Frame | None = None
    call_site: tuple[Source, Span] | None = None
    draws: int = 0
    key: str = ""
    """The path of calls that led here, for the keys of random numbers."""
    calls: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def called_at(self) -> SourceLocation | None:
        """The place of the call that is being elaborated; None for an entry point."""
        return None if self.call_site is None else self.call_site[0].place(self.call_site[1])

    def call(self, function: str, path: str) -> str:
        """The key of a call from here: its number among the calls of the same function tells it apart."""
        name = f"{path}:{function}"
        count = self.calls.get(name, 0)
        self.calls[name] = count + 1
        return f"{self.key}/{name}" if count == 0 else f"{self.key}/{name}#{count}"

    def named(self, name: str) -> str:
        """The path of a value of this function: `blocks.attn.s`."""
        return f"{self.path}.{name}" if self.path else name


@dataclass(slots=True)
class Inout:
    """An `inout` parameter of the entry point that is elaborated."""

    declaration: ast.Parameter
    argument: Value
    value: Value | None = None
    """What it is after the call, once a `set` has said so."""
    set_by: ast.Set | None = None


class Loop:
    """A loop while its body is elaborated; `outer` is the block that it will be in."""

    outer: Block

    def counter(self) -> Value:
        """The number of the step, an i64 in the body."""
        raise NotImplementedError

    def slice_of(self, value: Value) -> Value:
        """This step's part of a value whose first axis counts the steps."""
        raise NotImplementedError


class Trace(Builder):
    """A builder that knows the place in the text it has reached: `source` and `span`."""

    __slots__ = (
        "_here", "_locations", "_on_trial", "_stood", "base_key", "bounds", "brought", "builtin",
        "conditions", "declared", "device", "folder", "frame", "function", "gets",
        "implicit_seed", "inouts", "loops", "mesh", "placed", "places", "problems", "rate",
        "root_source", "source", "span", "stacked", "stage", "steps", "stored", "top", "total_steps",
        "training", "values",
    )  # fmt: skip

    def __init__(self, source: Source, problems: Problems, values: ValueMap | None = None) -> None:
        self.top = self.block = Block()
        self.before = None
        self.source = source
        self.span = Span(0, 0)
        self.problems = problems
        self.values = values
        self.function = ""
        """The function of the IR that is being made."""
        self.frame = Frame("", "", source)
        self.steps = 0
        self.training = False
        self.total_steps: Value | None = None
        self.rate: Value | None = None
        """The part of the learning rates that a plateau has left, in a step that is passed it."""
        self.declared: dict[Value, SourceLocation] = {}
        self.base_key: Value | None = None
        self.implicit_seed = False
        self.inouts: dict[str, Inout] = {}
        """The `inout` parameters of the entry point by name."""
        self.stored: dict[str, Weight] = {}
        self.folder: Path | None = None
        self.loops: list[Loop] = []
        self.device: str | None = None
        self.stage: int | None = None
        """The stage of a pipeline of ranks that operations are on."""
        self.places: dict[str, str] = {}
        """The devices that were chosen for submodules by path, without those that were met."""
        self.mesh: TextMesh | None = None
        """The mesh that the root text declares."""
        self.root_source = source
        self.gets: dict[str, Value] = {}
        self.stacked: dict[str, int] = {}
        """How many leading axes of each weight count the blocks of stacks."""
        self.placed: list[Op] | None = None
        """All operations in the order in which they were placed, where an observer asks for them."""
        self.bounds: dict[str, tuple[int, int | None]] = {}
        self.brought = FreshNames(self.bounds)
        self.conditions: dict[Need, SourceLocation] = {}
        """What the text requires of the sizes of a call, and where it says so."""
        self._locations: dict[tuple[Source, Span, str, str], dict[str, FileLocation]] = {}
        """The locations at a place, reached by a path of calls, by operation; "" for none."""
        self._here: dict[str, FileLocation] | None = None
        """Those of the place reached, if they were asked for."""
        self._stood: tuple[Source, Span, Frame] | None = None
        """The place reached by `stand`, and the function that it is part of."""
        self.builtin = ""
        """The builtin function that places operations here, if one does: they are called after it."""
        self._on_trial: list[Block] | None = None

    # Operations ---------------------------------------------------------------------------------

    def stand(self, span: Span) -> None:
        """Go to a place in the text: operations placed from now on come from there."""
        self.span = span
        self._stood = self.source, span, self.frame
        self._here = None
        self.builtin = ""

    def place(self, op: Op) -> Op:
        """Put an operation at the end of the block, with the location reached in the text."""
        for result in op.results:
            if isinstance(result.type, TensorType):
                self.check_rank(result.type.rank)
        op.location = self._located(self.builtin or op.name.partition(".")[2])
        if self.device is not None:
            op.attributes[PLACED] = self.device
        if self.stage is not None:
            op.attributes[STAGED] = self.stage
        self.block.insert(op, None)
        if self.placed is not None:
            self.placed.append(op)
        self.count()  # last: it has its place in the block even where this was one too many
        return op

    @property
    def location(self) -> Location:
        """The location reached in the text."""
        return self._located("")

    def _located(self, operation: str) -> Location:
        """The location reached in the text, for an operation that is called so.

        It is made when an operation asks for it: most expressions are names and numbers, which place none.
        """
        if self._stood is None:
            return NOWHERE
        source, span, frame = self._stood
        if self._here is None:
            key = (source, span, frame.path, frame.key)
            self._here = self._locations.setdefault(key, {})
        location = self._here.get(operation)
        if location is None:
            location = self._here[operation] = _location(source, span, frame, operation)
        return location

    def check_rank(self, axes: int, span: Span | None = None) -> None:
        """Raises ModelError (D0338) for more axes than a value has."""
        if axes > MAX_RANK:
            raise self.fail(
                "D0338",
                f"a tensor of {axes:,} axes given where one of at most {MAX_RANK} axes is expected",
                span,
                help="make several axes one",
            )

    def count(self, steps: int = 1) -> None:
        """Count an operation, a call or an item of a list; stops with D0216 when there are too many.

        What costs more time to elaborate than an operation counts as several.
        """
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise self.stop(
                "D0216",
                f"the model takes more than {MAX_STEPS:,} operations and calls",
                help="loop over equal layers with `scan`: the block is compiled once",
            )

    def count_items(self, items: int) -> None:
        """Count the items of a list, which take less time than operations."""
        self.count(items // 8)

    @contextmanager
    def on(self, device: str | None) -> Generator[None]:
        """Place operations on a device meanwhile, or where they are placed anyway for None."""
        outer = self.device, self.stage
        stage = stage_of_device(device)
        if stage is not None:
            self.stage = stage
        elif device is not None:
            self.device = None if device == HOST else device
        try:
            yield
        finally:
            self.device, self.stage = outer

    def fresh_dim(self, name: str) -> str:
        """The name of a size that an operation brings: `n`, `n_1`, ..., none of them declared."""
        return self.brought.take(name)

    @contextmanager
    def inside(self, block: Block) -> Generator[Block]:
        """Fill another block meanwhile."""
        if self._on_trial is not None and block is not self.top:
            self._on_trial.append(block)
        outer, self.block = self.block, block
        try:
            yield block
        finally:
            self.block = outer

    @contextmanager
    def looping(self, loop: Loop) -> Generator[None]:
        """Elaborate the body of a loop meanwhile."""
        self.loops.append(loop)
        try:
            yield
        finally:
            self.loops.pop()

    @contextmanager
    def discarded(self) -> Generator[Block]:
        """Elaborate only to check: what is placed meanwhile is thrown away, and names nothing."""
        values, self.values = self.values, None
        draws, calls = self.frame.draws, dict(self.frame.calls)
        conditions = dict(self.conditions)
        outer, self._on_trial = self._on_trial, []
        try:
            with self.inside(Block()) as block:
                yield block
        finally:
            self.values = values
            self.frame.draws, self.frame.calls = draws, calls
            self.conditions = conditions
            # Blocks that no operation has become a part of, such as a loop's body: the inner first.
            for block in reversed(self._on_trial):
                block.clear()
            self._on_trial = outer

    @contextmanager
    def scratch(self) -> Generator[None]:
        """Elaborate something to check it, with inputs and weights of its own, and throw it away."""
        kept = (self.top, self.gets, self.base_key, self.implicit_seed)
        try:
            with self.discarded() as block:
                self.top, self.gets = block, {}
                self.base_key, self.implicit_seed = None, False
                yield
        finally:
            self.top, self.gets, self.base_key, self.implicit_seed = kept

    # Names and places ---------------------------------------------------------------------------

    def called(self, value: Value, name: str, span: Span) -> None:
        """Call a value by the name that the text gives it."""
        path = self.frame.named(name)
        if value.name is None:
            value.name = path
        if self.values is not None and isinstance(value.type, TensorType):
            self.values.track(value, self.function, path, str(self.source.place(span)))

    def here(self) -> SourceLocation:
        """The place reached in the text."""
        return self.source.place(self.span)

    def fail(
        self,
        code: str,
        message: str,
        span: Span | None = None,
        *,
        place: SourceLocation | None = None,
        help: str | None = None,
        labels: Sequence[Label] = (),
    ) -> ModelError:
        """The error to raise for something at `place`, at `span`, or at the place reached."""
        if place is None:
            place = self.source.place(self.span if span is None else span)
        return ModelError([Diagnostic(code, message, place, tuple(labels), help)])

    def stop(
        self, code: str, message: str, *, place: SourceLocation | None = None, help: str
    ) -> Stop:
        """The error that ends elaboration at once: the model has no end."""
        return Stop(
            Diagnostic(code, message, self.here() if place is None else place, self.calls(), help)
        )

    def calls(self) -> tuple[Label, ...]:
        """Labels that say from where the function at hand was called: the nearest and the first."""
        labels: list[Label] = []
        frame: Frame | None = self.frame
        while frame is not None and frame.called_at is not None:
            labels.append(Label(frame.called_at, f"{frame.function} is called here"))
            frame = frame.caller
        return (*labels[:1], *labels[1:][-1:])


def _location(source: Source, span: Span, frame: Frame, operation: str) -> FileLocation:
    """A place in a text; in one of the library with the call in the user's text that led there."""
    place, own = source.place(span), None
    if source.is_library:
        caller, outer = frame.called_at, frame.caller
        while outer is not None and caller is not None and in_library(caller):
            caller, outer = outer.called_at, outer.caller
        if caller is not None and not in_library(caller):
            own = FileLocation(caller.file, caller.line, caller.column, caller.end)
    return FileLocation(place.file, place.line, place.column, place.end, frame.path, operation, own)


def capture(blocks: Sequence[Block]) -> list[Value]:
    """Make regions isolated: what they use of the blocks around them becomes arguments, at the end.

    Gives these values in order of use; every block gets an argument for each of them.
    """
    own = set(blocks)
    outer: dict[Value, None] = {}
    for block in blocks:
        for op in block:
            for operand in op.operands:
                if operand.block not in own:
                    outer[operand] = None
    for block in blocks:
        inner = {value: block.add_argument(value.type, value.name) for value in outer}
        for op in block:
            for operand in dict.fromkeys(op.operands):
                if operand in inner:
                    op.replace_operand(operand, inner[operand])
    return list(outer)
