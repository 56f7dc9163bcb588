"""The values of expressions during elaboration.

Numbers, sizes, texts, dtypes and functions are known when compiling; a tensor is a `Value` of the IR.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from dlc.dialects.array import show
from dlc.errors import SourceLocation
from dlc.ir.core import Value
from dlc.ir.dims import Dim, Size
from dlc.ir.types import DType, TensorType
from dlc.runtime.system.counts import whole_number
from dlc.text.source import Source, Span

__all__ = [
    "PLACEHOLDER", "UNKNOWN", "Argument", "Arguments", "Builtin", "Callee", "Datum", "Hole", "Items",
    "Marker", "Number", "Parameter", "Partial", "Range", "Record", "Stored", "Thing", "describe",
    "is_number", "size_of",
]  # fmt: skip

Number: TypeAlias = int | float


class Thing:
    """A value of a kind that other files define; `called` is what a message calls it."""

    __slots__ = ()

    @property
    def called(self) -> str:
        """Its name in messages: `the function poly`."""
        raise NotImplementedError


class Callee(Thing):
    """Anything that an expression can call."""

    __slots__ = ()

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The names of its parameters, where they are known."""
        return ()


class Marker:
    """A value that stands for something else: equal only to itself."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class Hole:
    """A size written `_`, which the first use of the module decides. `what` is what it is a size of."""

    __slots__ = ("size", "what")

    def __init__(self, what: str) -> None:
        self.what = what
        self.size: Size | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Stored(Thing):
    """A tensor of a file under a name of the text; `type` is None until the file is looked into."""

    name: str
    file: str
    key: str | None
    type: TensorType | None
    place: SourceLocation

    @property
    def called(self) -> str:
        return f"the stored tensor {self.name}"


PLACEHOLDER = Marker("_")
"""A size that is to be found out."""
UNKNOWN = Marker("what an error has left unknown")
"""The value of a name whose definition was wrong: using it reports nothing more."""


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """`[a, b, c]`: a tensor, a shape, or a list of layers, as the place asks."""

    items: tuple[Datum, ...]
    place: SourceLocation | None = None
    """Its place in the text; None for one that is computed."""
    size: int = field(init=False)
    """The number of values in it, those of nested lists and tuples included."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", size_of(self.items))


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """`(a, b)`, `(digit = a, confidence = b)`."""

    items: tuple[Datum, ...]
    names: tuple[str | None, ...]
    size: int = field(init=False)
    """The number of values in it, those of nested lists and tuples included."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", size_of(self.items))

    @classmethod
    def of(cls, items: tuple[Datum, ...]) -> Record:
        """A tuple without names."""
        return cls(items, (None,) * len(items))

    def field(self, name: str) -> Datum | None:
        """The item of that name, or that number.

        Names that are weight paths may be followed step by step: `g.enc` is the record of all `enc.…`.
        """
        if name in self.names:
            return self.items[self.names.index(name)]
        below = {
            path.removeprefix(f"{name}."): item
            for path, item in zip(self.names, self.items, strict=True)
            if path is not None and path.startswith(f"{name}.")
        }
        if below:
            return Record(tuple(below.values()), tuple(below))
        number = whole_number(name)
        return self.items[number] if number is not None and number < len(self.items) else None


@dataclass(frozen=True, slots=True)
class Range:
    """`start..stop`, without `stop`."""

    start: Size
    stop: Size


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a builtin: what kind of value it takes, and its default."""

    name: str
    kind: str
    default: Datum = None
    required: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Builtin(Callee):
    """A function that the compiler knows. `run` gets the bound arguments in order of `parameters`."""

    name: str
    parameters: tuple[Parameter, ...]
    run: Callable[..., Datum]
    signature: str
    doc: str
    example: str
    result: str
    group: str
    is_simple: bool
    """Whether all its parameters are plain, without `*`."""

    @property
    def called(self) -> str:
        return self.name

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return tuple([parameter.name.lstrip("*") for parameter in self.parameters])


class Argument(NamedTuple):
    """A value that is given in a call, and where it stands."""

    value: Datum
    span: Span


class Arguments(NamedTuple):
    """The result of a call that stands at `span` of `source`."""

    positional: tuple[Argument, ...]
    named: dict[str, Argument]
    source: Source
    span: Span

    def after(self, first: Argument) -> Arguments:
        """The same with one more argument before the others."""
        return Arguments((first, *self.positional), self.named, self.source, self.span)


@dataclass(frozen=True, slots=True, eq=False)
class Partial(Callee):
    """A layer written as a call that lacks its first argument: `avg_pool2d(2)`."""

    function: Callee
    arguments: Arguments

    @property
    def called(self) -> str:
        return self.function.called


Datum: TypeAlias = (
    bool
    | int
    | float
    | str
    | Dim
    | DType
    | Value
    | Items
    | Record
    | Range
    | Thing
    | Hole
    | Marker
    | None
)


def size_of(items: tuple[Datum, ...]) -> int:
    """The number of values in a list of these; the same list may occur in it more than once."""
    return sum([item.size if isinstance(item, Items | Record) else 1 for item in items])


def is_number(value: Datum) -> bool:
    """Whether it is a number known when compiling (a bool is none, a symbolic size is)."""
    return isinstance(value, int | float | Dim) and not isinstance(value, bool)


def part_of(value: Datum) -> str | None:
    """Help for a tuple that is given where one of its parts is expected."""
    if not isinstance(value, Record) or not value.items:
        return None
    names = [f".{name}" for name in value.names if name is not None]
    if not names:
        return "take one item: let (a, ..) = ..."
    return f"take {names[0]} of it" if len(names) == 1 else f"take one of {', '.join(names[:5])}"


def describe(value: Datum) -> str:
    """The name of a value in messages: `f32[B, 64]`, `the number 3`, `the function sum`."""
    match value:
        case Value():
            return show(value)
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case Dim():
            return f"the size {value}"
        case str():
            return f'the text "{value}"' if len(value) < 40 else "a text"
        case DType():
            return f"the dtype {value.name}"
        case Items(items):
            return f"a list of {len(items)}"
        case Record(items):
            return f"a tuple of {len(items)}"
        case Range(start, stop):
            return f"the range {start}..{stop}"
        case Thing():
            return value.called
        case Hole():
            return "a size that is not known yet"
        case Marker():
            return f"`{value}`"
        case None:
            return "nothing"
