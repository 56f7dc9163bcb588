"""The syntax tree of a model text (`.dlm`).

Every node is frozen, equal only to itself (so it may be a dictionary key), keeps its children in
tuples and has a `span` in the text of its `File.source`. `dlc.text.model.tree` walks, dumps and compares
trees.

Operators that chain to the left are flat: `a - b + c` is one `Binary` with `first` a and `rest`
(-, b), (+, c), so a sum of 100,000 terms is no deeper than a sum of two. Expressions nest at most
`dlc.text.model.parser.MAX_DEPTH` deep, whatever the text, so a visitor may recurse.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, TypeAlias, TypeVar, dataclass_transform

from dlc.text.source import Source, Span

T = TypeVar("T")


@dataclass_transform(eq_default=False, frozen_default=True)
def node(kind: type[T]) -> type[T]:
    """A class of nodes, frozen for the type checker: freezing it at run time makes a node take three times
    as long, and a text has thousands."""
    return dataclass(slots=True, eq=False)(kind)


@node
class Node:
    """Anything with a place in the text."""

    span: Span


@node
class Named(Node):
    """A node that gives something a name."""

    name: str
    name_span: Span


@node
class Documented(Named):
    """A named node that `##` lines may stand before; `docs` is their text, "" without any."""

    docs: str


# Expressions ------------------------------------------------------------------------------------


@node
class Name(Node):
    """A name that is used: `x`."""

    name: str


@node
class Number(Node):
    """`28`, `0xff`, `1e-5`; the value is an int or a float as written, `text` its spelling."""

    value: int | float
    text: str


@node
class Size(Node):
    """A number of bytes, `512MiB`; only as the value of a `limit`."""

    bytes: int
    text: str


@node
class String(Node):
    """`"same"`; `value` has its escapes replaced."""

    value: str


@node
class Bool(Node):
    """`true` or `false`."""

    value: bool


@node
class Placeholder(Node):
    """`_`: a size to be found out."""


@node
class Dots(Node):
    """`..` among the dims of a type or the items of an index: any number of axes."""


@node
class NewAxis(Node):
    """`new` among the items of an index: an axis of size 1."""


@node
class Slice(Node):
    """`start:stop:step` among the items of an index, each part optional."""

    start: Expr | None
    stop: Expr | None
    step: Expr | None


@node
class Unary(Node):
    """`-x`, `not x`."""

    op: Literal["-", "not"]
    operand: Expr


@node
class Term(Node):
    """One more operand of a `Binary`; the span is the operator's."""

    op: str
    operand: Expr


@node
class Binary(Node):
    """Operators of one precedence, applied from left to right.

    The levels are `or`; `and`; `+ -`; `* / // % @`; `**`. There is at least one term, and exactly
    one where the operator is `**`, which chains to the right.
    """

    first: Expr
    rest: tuple[Term, ...]


@node
class Compare(Node):
    """`left op right` with `==`, `!=`, `<`, `<=`, `>` or `>=`; comparisons do not chain."""

    op: str
    op_span: Span
    left: Expr
    right: Expr


@node
class Stage(Node):
    """`|> function`; the span is the operator's."""

    function: Expr


@node
class Pipe(Node):
    """`first |> f |> g(a)` means `g(f(first), a)`; there is at least one stage."""

    first: Expr
    stages: tuple[Stage, ...]


@node
class Argument(Node):
    """`value` or `name = value`, in a call or a tuple; the name, if any, begins the span."""

    name: str | None
    value: Expr


@node
class Call(Node):
    """`function(a, b, name=c)`."""

    function: Expr
    arguments: tuple[Argument, ...]


@node
class Index(Node):
    """`value[0, 1:T, .., new]`."""

    value: Expr
    items: tuple[IndexItem, ...]


@node
class Attribute(Named):
    """`value.name`; `chain(...)` numbers its layers, so a name may be `0`."""

    value: Expr


@node
class List(Node):
    """`[[1, 2], [3, 4]]`, `[B, _]`: a tensor, a shape or a list of layers, as the place asks."""

    items: tuple[Expr, ...]


@node
class IndexList(Node):
    """`[0, 1:T, ..]` behind `at=`: a place in a tensor, written like an index."""

    items: tuple[IndexItem, ...]


@node
class Comprehension(Node):
    """`[for pattern in source: body]`."""

    pattern: Pattern
    source: Expr
    body: Expr


@node
class Tuple(Node):
    """`(a, b)`, `(digit = a, confidence = b)`; one item without a name is written `(a,)`."""

    items: tuple[Argument, ...]


@node
class Range(Node):
    """`start..stop` as the source of a scan or a comprehension; `stop` is exclusive."""

    start: Expr
    stop: Expr


@node
class If(Node):
    """`if condition then chosen else otherwise`."""

    condition: Expr
    chosen: Expr
    otherwise: Expr


@node
class Carry(Named):
    """`name = value` after `with`: what a loop hands from step to step, and its first value."""

    value: Expr


@node
class Scan(Node):
    """`scan pattern in reverse source along axis with carries { body }`."""

    pattern: Pattern
    source: Expr
    along: Expr | None
    reverse: bool
    carries: tuple[Carry, ...]
    body: Block


@node
class While(Node):
    """`while condition with carries limit N { body }`."""

    condition: Expr
    carries: tuple[Carry, ...]
    limit: Expr | None
    body: Block


@node
class Block(Node):
    """`{ statements }`: a loop's body, or an expression whose value its `return` gives."""

    statements: tuple[Statement, ...]


STAGE = "stage"
"""The kind of a device that is a stage of a pipeline of ranks."""


@node
class Device(Node):
    """`cpu`, `cuda:0`; with the kind `stage`, the stage of a pipeline of ranks: `stage 0`."""

    kind: str
    index: int | None

    @property
    def called(self) -> str:
        """Its name in full: `cpu` is `cpu:0`."""
        return f"{self.kind}:{self.index or 0}"

    @property
    def is_stage(self) -> bool:
        """Whether it is a stage of a pipeline rather than a device of one machine."""
        return self.kind == STAGE


@node
class On(Node):
    """`on device { body }`; the body is a Block if statements are in the braces."""

    device: Device
    body: Expr


# Patterns and types -----------------------------------------------------------------------------


@node
class NamePattern(Node):
    """A name that is given."""

    name: str


@node
class IgnorePattern(Node):
    """`_`: one value that is not used."""


@node
class RestPattern(Node):
    """`..` in a tuple pattern: any number of values that are not used."""


@node
class TuplePattern(Node):
    """`(q, k, v)`, `(.., y)`; at most one item is a RestPattern."""

    items: tuple[Pattern, ...]


@node
class TensorType(Node):
    """`f32[B, 64]`; `f32` has no dims. `dtype` may name a dtype parameter and begins the span.

    A dim is an expression over dims, `_`, or `..`.
    """

    dtype: str
    dims: tuple[Expr, ...]


@node
class TypeField(Node):
    """`type` or `name: type` in a tuple type; the name, if any, begins the span."""

    name: str | None
    type: Type


@node
class TupleType(Node):
    """`(f32[B], i32[B])`, `(digit: i32[B], confidence: f32[B])`."""

    fields: tuple[TypeField, ...]


@node
class FnType(Node):
    """`fn`, the type of a parameter that takes a function."""


@node
class DtypeType(Node):
    """`dtype`, the type of a module parameter that takes a dtype."""


@node
class Parameter(Documented):
    """`name: type = default` of a function or a module; both parts are optional.

    An entry point changes the arrays that are passed for its `inout` parameters.
    """

    type: Type | None
    default: Expr | None
    inout: bool = False


# Statements -------------------------------------------------------------------------------------


@node
class Let(Node):
    """`let pattern: type = value`, in a block or at file level (where it may have docs)."""

    docs: str
    pattern: Pattern
    type: Type | None
    value: Expr


@node
class Return(Node):
    """`return value`."""

    value: Expr


@node
class Next(Named):
    """`next name = value`: a carry's value in the next step."""

    value: Expr


@node
class Yield(Node):
    """`yield value`: one row of a scan's result."""

    value: Expr


@node
class Set(Named):
    """`set name = value`: what a state is after a training step, an `inout` parameter after a call."""

    value: Expr


@node
class Require(Node):
    """`require condition, message`, in a block or a module."""

    condition: Expr
    message: Expr | None


@node
class Debug(Node):
    """`debug value`: print it under `--values`."""

    value: Expr


# Members of a module ----------------------------------------------------------------------------


@node
class SplitAxis(Node):
    """What splits an axis of a weight: an axis of the mesh by name, or `none`."""

    mesh_axis: str


@node
class Split(Node):
    """`split (none, model)`: for each axis of a weight the axis of the mesh that splits it, or `none`."""

    axes: tuple[SplitAxis, ...]


@node
class Param(Documented):
    """`param name: type split (none, model) = init key "..."`: trained weights."""

    type: Type
    split: Split | None
    init: Expr | None
    key: str | None


@node
class State(Documented):
    """`state name: type split (model) = init key "..."`: weights that are kept but not trained."""

    type: Type
    split: Split | None
    init: Expr | None
    key: str | None


@node
class Const(Documented):
    """`const name: type = value`, in a module or at file level."""

    type: Type | None
    value: Expr


@node
class Use(Documented):
    """`use name = value on device`: a submodule."""

    value: Expr
    device: Device | None


@node
class VjpRule(Node):
    """`with vjp(x, dy) = body`: a function's own gradient."""

    parameters: tuple[Parameter, ...]
    body: Expr


@node
class Fn(Documented):
    """`export fn name(parameters) -> result on device = body with vjp(...) = ...`.

    The body is a Block if it was written in braces.
    """

    exported: bool
    parameters: tuple[Parameter, ...]
    result: Type | None
    device: Device | None
    body: Expr
    vjp: VjpRule | None


# Items of a file --------------------------------------------------------------------------------


@node
class ImportName(Named):
    """`name` or `name as alias` in an import."""

    alias: str | None


@node
class Import(Node):
    """`import nn (Linear, Conv2d)`, `import "other.dlm" as other`.

    `names` is None without parentheses: then the whole is called `alias`, or by its own name.
    """

    source: str
    source_span: Span
    is_file: bool
    alias: str | None
    names: tuple[ImportName, ...] | None

    @property
    def called(self) -> str:
        """The name of the whole, where it has one."""
        return self.alias or PurePosixPath(self.source).stem


@node
class DimEntry(Named):
    """`B = 1..1024`; without bounds `low` and `high` are None, and `2..` has no `high`."""

    low: Expr | None
    high: Expr | None


@node
class Dims(Node):
    """`dim A, B = 1..1024`; the bounds include both ends."""

    docs: str
    entries: tuple[DimEntry, ...]


@node
class Module(Documented):
    """`module name(parameters) from "weights" { members }`."""

    parameters: tuple[Parameter, ...]
    weights: String | None
    members: tuple[Member, ...]


@node
class NameEntry(Node):
    """`"foreign.{i}.weight" = blocks[i].w.T`."""

    key: String
    target: Expr


@node
class Names(Node):
    """`names { ... }`: how a foreign weight file calls the parameters."""

    entries: tuple[NameEntry, ...]


@node
class Limit(Named):
    """`limit memory = 512MiB`, `limit exact`."""

    value: Expr | Size | None


@node
class MeshEntry(Named):
    """`data = 2`: an axis of the mesh, and its number of ranks."""

    ranks: Expr


@node
class Mesh(Node):
    """`mesh data = 2, model = 2`: the ranks that train together, the last axis varying fastest."""

    axes: tuple[MeshEntry, ...]


@node
class Setting(Documented):
    """`name = value` in a `train` block, or `name(parts) = value` for some parts of the module."""

    value: Expr
    parts: tuple[Expr, ...] = ()


@node
class Loss(Documented):
    """`loss(parameters) -> result = body` in a `train` block; its name is `loss`."""

    parameters: tuple[Parameter, ...]
    result: Type | None
    body: Expr


@node
class Metric(Documented):
    """`metric name(parameters) = body`; without parameters (None) it sees those of the loss."""

    parameters: tuple[Parameter, ...] | None
    body: Expr


@node
class Train(Documented):
    """`train name { entries }` or `train block for name { entries }`; the name is the module's.

    A block without a name of its own is called "", at the place of the module's.
    """

    block: str
    block_span: Span
    entries: tuple[TrainEntry, ...]


@node
class File(Node):
    """A whole text. `docs` are the `##` lines that speak of the file, not of an item."""

    source: Source
    edition: int
    edition_span: Span
    docs: str
    items: tuple[Item, ...]


Expr: TypeAlias = (
    Name
    | Number
    | String
    | Bool
    | Placeholder
    | Unary
    | Binary
    | Compare
    | Pipe
    | Call
    | Index
    | Attribute
    | List
    | IndexList
    | Comprehension
    | Tuple
    | Range
    | If
    | Scan
    | While
    | Block
    | On
    | Dots
)
"""`Range` occurs only as a source, `Dots` as a dim, `IndexList` behind `at=`; the parser sees to it."""

IndexItem: TypeAlias = Expr | Slice | NewAxis
Pattern: TypeAlias = NamePattern | IgnorePattern | RestPattern | TuplePattern
Type: TypeAlias = TensorType | TupleType | FnType | DtypeType
Statement: TypeAlias = Let | Return | Next | Yield | Set | Require | Debug
Member: TypeAlias = Param | State | Const | Use | Fn | Require | Names
Item: TypeAlias = Import | Dims | Module | Fn | Const | Let | Train | Names | Limit | Mesh
TrainEntry: TypeAlias = Setting | Loss | Metric
