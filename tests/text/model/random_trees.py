"""Random syntax trees, every construct among them, that a text could have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from dlc.text.model import ast
from dlc.text.source import Source, Span

__all__ = ["random_file"]

T = TypeVar("T")

HERE = Span(0, 0)

NAMES = [
    "x",
    "y",
    "h2",
    "emb",
    "training",
    "new",
    "vjp",
    "dtype",
    "a_long_name_that_takes_its_room",
]
KEYWORDS = [
    "state set next use on reverse limit yield key names along with lambda module train loss metric",
    "data as debug require import const dim",
]
WORDS = [*NAMES, *" ".join(KEYWORDS).split()]
NUMBERS = [(0, "0"), (3, "3"), (1000, "1_000"), (255, "0xff"), (1e-5, "1e-5"), (0.25, "0.25")]
STRINGS = [
    "same",
    "",
    'a "quoted" word',
    "tab\tand\nline",
    "α",
    "b t (n h d) -> n b h t d",
    "\u200b",
]


def random_file(random: Random) -> ast.File:
    """A file of a few items."""
    return _Trees(random).file()


class _Trees:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.room = 100
        self.depth = 0

    def pick(self, *makers: Callable[[], T]) -> T:
        return self.random.choice(makers)()

    def some(self, make: Callable[[], T], least: int = 0, most: int = 3) -> tuple[T, ...]:
        return tuple(make() for _ in range(self.random.randint(least, most)))

    def perhaps(self, make: Callable[[], T]) -> T | None:
        return make() if self.random.random() < 0.5 else None

    def flip(self) -> bool:
        return self.random.random() < 0.5

    def name(self) -> str:
        """A name that is given, behind a keyword."""
        return self.random.choice(NAMES)

    def word(self) -> str:
        """A name that is used, which may look like a keyword."""
        return self.random.choice(WORDS)

    def docs(self) -> str:
        return self.random.choice(["", "", "What it is.", "Two\n  lines"])

    # Expressions

    def expr(self) -> ast.Expr:
        self.room -= 1
        if self.room < 0 or self.depth > 7 or self.random.random() < 0.25:
            return self.leaf()
        self.depth += 1
        made = self.pick(
            self.leaf,
            self.unary,
            self.chain,
            self.chain,
            self.power,
            self.compare,
            self.pipe,
            self.call,
            self.call,
            self.index,
            self.attribute,
            self.list,
            self.comprehension,
            self.tuple,
            self.choice,
            self.scan,
            self.loop,
            self.on,
            self.block,
        )
        self.depth -= 1
        return made

    def leaf(self) -> ast.Expr:
        return self.pick(
            lambda: ast.Name(HERE, self.word()),
            lambda: ast.Number(HERE, *self.random.choice(NUMBERS)),
            self.string,
            lambda: ast.Bool(HERE, self.flip()),
            lambda: ast.Placeholder(HERE),
        )

    def string(self) -> ast.String:
        return ast.String(HERE, self.random.choice(STRINGS))

    def unary(self) -> ast.Expr:
        return ast.Unary(HERE, "-" if self.flip() else "not", self.expr())

    def chain(self) -> ast.Expr:
        ops = self.random.choice([["or"], ["and"], ["+", "-"], ["*", "/", "//", "%", "@"]])
        first = self.expr()
        if isinstance(first, ast.Binary) and first.rest[0].op in ops:
            first = self.leaf()  # a chain does not begin with a chain of its own level
        return ast.Binary(HERE, first, self.some(lambda: self.term(ops), 1))

    def term(self, ops: Sequence[str]) -> ast.Term:
        return ast.Term(HERE, self.random.choice(ops), self.expr())

    def power(self) -> ast.Expr:
        return ast.Binary(HERE, self.expr(), (self.term(["**"]),))

    def compare(self) -> ast.Expr:
        op = self.random.choice(["==", "!=", "<", "<=", ">", ">="])
        return ast.Compare(HERE, op, HERE, self.expr(), self.expr())

    def pipe(self) -> ast.Expr:
        first = self.expr()
        if isinstance(first, ast.Pipe):
            first = self.leaf()
        return ast.Pipe(HERE, first, self.some(lambda: ast.Stage(HERE, self.expr()), 1))

    def call(self) -> ast.Expr:
        arguments = [ast.Argument(HERE, None, value) for value in self.some(self.expr)]
        arguments += self.some(lambda: ast.Argument(HERE, self.name(), self.expr()), 0, 2)
        if self.random.random() < 0.1:
            place = ast.IndexList(HERE, (*self.some(self.index_item), ast.Dots(HERE)))
            arguments.append(ast.Argument(HERE, "at", place))
        return ast.Call(HERE, self.expr(), tuple(arguments))

    def index(self) -> ast.Expr:
        return ast.Index(HERE, self.expr(), self.some(self.index_item))

    def index_item(self) -> ast.IndexItem:
        return self.pick(
            self.expr,
            lambda: ast.Dots(HERE),
            lambda: ast.NewAxis(HERE),
            lambda: ast.Slice(HERE, *(self.perhaps(self.expr) for _ in range(3))),
        )

    def attribute(self) -> ast.Expr:
        name = self.random.choice([*WORDS, "T", "0", "12", "if", "fn"])
        return ast.Attribute(HERE, name, HERE, self.expr())

    def list(self) -> ast.Expr:
        return ast.List(HERE, self.some(self.expr, 0, 12))

    def comprehension(self) -> ast.Expr:
        return ast.Comprehension(HERE, self.pattern(), self.source(), self.expr())

    def source(self) -> ast.Expr:
        return ast.Range(HERE, self.expr(), self.expr()) if self.flip() else self.expr()

    def tuple(self) -> ast.Expr:
        return ast.Tuple(
            HERE,
            self.some(lambda: ast.Argument(HERE, self.perhaps(self.name), self.expr()), 1),
        )

    def choice(self) -> ast.Expr:
        return ast.If(HERE, self.expr(), self.expr(), self.expr())

    def carries(self) -> tuple[ast.Carry, ...]:
        return self.some(lambda: ast.Carry(HERE, self.name(), HERE, self.expr()))

    def scan(self) -> ast.Expr:
        along = self.perhaps(self.expr)
        pattern, source = self.pattern(), self.source()
        return ast.Scan(HERE, pattern, source, along, self.flip(), self.carries(), self.block())

    def loop(self) -> ast.Expr:
        return ast.While(HERE, self.expr(), self.carries(), self.perhaps(self.expr), self.block())

    def device(self) -> ast.Device:
        return ast.Device(HERE, self.random.choice(["cpu", "cuda"]), self.perhaps(lambda: 1))

    def on(self) -> ast.Expr:
        return ast.On(HERE, self.device(), self.expr())

    def block(self) -> ast.Block:
        return ast.Block(HERE, self.some(self.statement))

    # Patterns and types

    def pattern(self) -> ast.Pattern:
        self.room -= 1
        if self.room < 0 or self.flip():
            return ast.NamePattern(HERE, self.name())
        items = list(self.some(self.pattern, 0, 2))
        if self.flip() or not items:
            items.insert(self.random.randint(0, len(items)), ast.RestPattern(HERE))
        return self.pick(
            lambda: ast.IgnorePattern(HERE), lambda: ast.TuplePattern(HERE, tuple(items))
        )

    def type(self) -> ast.Type:
        self.room -= 1
        return self.pick(
            lambda: ast.FnType(HERE),
            lambda: ast.DtypeType(HERE),
            lambda: ast.TensorType(HERE, "f32", self.some(self.dim)),
            lambda: ast.TensorType(HERE, "F", self.some(self.dim)),
            self.tuple_type if self.room > 0 else lambda: ast.TensorType(HERE, "i8", ()),
        )

    def dim(self) -> ast.Expr:
        return self.pick(self.expr, lambda: ast.Dots(HERE), lambda: ast.Placeholder(HERE))

    def tuple_type(self) -> ast.Type:
        return ast.TupleType(
            HERE, self.some(lambda: ast.TypeField(HERE, self.perhaps(self.name), self.type()), 1)
        )

    def parameter(self) -> ast.Parameter:
        kind, default = self.perhaps(self.type), self.perhaps(self.expr)
        inout = self.random.random() < 0.2
        return ast.Parameter(HERE, self.name(), HERE, self.docs(), kind, default, inout)

    # Statements, members, items

    def statement(self) -> ast.Statement:
        return self.pick(
            lambda: self.let(""),
            lambda: ast.Return(HERE, self.expr()),
            lambda: ast.Yield(HERE, self.expr()),
            lambda: ast.Debug(HERE, self.expr()),
            lambda: ast.Next(HERE, self.name(), HERE, self.expr()),
            lambda: ast.Set(HERE, self.name(), HERE, self.expr()),
            self.require,
        )

    def let(self, docs: str) -> ast.Let:
        return ast.Let(HERE, docs, self.pattern(), self.perhaps(self.type), self.expr())

    def require(self) -> ast.Require:
        return ast.Require(HERE, self.expr(), self.perhaps(self.expr))

    def fn(self) -> ast.Fn:
        result = self.perhaps(self.type)
        return ast.Fn(
            HERE,
            self.name(),
            HERE,
            self.docs(),
            self.flip(),
            self.some(self.parameter),
            result,
            self.perhaps(self.device) if result else None,
            self.expr(),
            self.perhaps(lambda: ast.VjpRule(HERE, self.some(self.parameter), self.expr())),
        )

    def const(self) -> ast.Const:
        kind = self.perhaps(self.type)
        return ast.Const(HERE, self.name(), HERE, self.docs(), kind, self.expr())

    def names(self) -> ast.Names:
        return ast.Names(HERE, self.some(lambda: ast.NameEntry(HERE, self.string(), self.expr())))

    def member(self) -> ast.Member:
        kind, split, init = self.type(), self.perhaps(self.split), self.perhaps(self.expr)
        weights = (HERE, self.name(), HERE, self.docs(), kind, split, init)
        key = self.perhaps(lambda: self.random.choice(STRINGS))
        return self.pick(
            lambda: ast.Param(*weights, key),
            lambda: ast.State(*weights, key),
            lambda: ast.Use(
                HERE, self.name(), HERE, self.docs(), self.expr(), self.perhaps(self.device)
            ),
            self.const,
            self.fn,
            self.require,
            self.names,
        )

    def item(self) -> ast.Item:
        self.room = max(self.room, 40)
        return self.pick(
            self.imported,
            lambda: ast.Dims(HERE, self.docs(), self.some(self.dim_entry, 1)),
            self.module,
            self.fn,
            self.const,
            lambda: self.let(self.docs()),
            self.train,
            self.names,
            self.limit,
            lambda: ast.Mesh(HERE, self.some(self.mesh_entry, 1)),
        )

    def split(self) -> ast.Split:
        return ast.Split(HERE, self.some(lambda: ast.SplitAxis(HERE, self.name())))

    def mesh_entry(self) -> ast.MeshEntry:
        return ast.MeshEntry(HERE, self.name(), HERE, self.expr())

    def imported(self) -> ast.Import:
        names = self.perhaps(
            lambda: self.some(
                lambda: ast.ImportName(HERE, self.name(), HERE, self.perhaps(self.name))
            )
        )
        alias = self.perhaps(self.name) if names is None else None
        is_file = self.flip()
        source = self.random.choice(STRINGS) if is_file else self.name()
        return ast.Import(HERE, source, HERE, is_file, alias, names)

    def dim_entry(self) -> ast.DimEntry:
        low = self.perhaps(self.expr)
        high = self.perhaps(self.expr) if low else None
        return ast.DimEntry(HERE, self.name(), HERE, low, high)

    def module(self) -> ast.Module:
        parameters = self.some(self.parameter)
        weights = self.perhaps(self.string)
        members = self.some(self.member, 0, 6)
        return ast.Module(HERE, self.name(), HERE, self.docs(), parameters, weights, members)

    def limit(self) -> ast.Limit:
        value = self.pick(lambda: None, lambda: ast.Size(HERE, 1 << 29, "512MiB"), self.expr)
        return ast.Limit(HERE, self.name(), HERE, value)

    def train(self) -> ast.Train:
        block = self.perhaps(self.name) or ""
        entries = self.some(self.entry, 0, 5)
        return ast.Train(HERE, self.name(), HERE, self.docs(), block, HERE, entries)

    def entry(self) -> ast.TrainEntry:
        parameters, result = self.some(self.parameter), self.perhaps(self.type)
        return self.pick(
            lambda: ast.Setting(HERE, self.name(), HERE, self.docs(), self.expr()),
            self.group,
            lambda: ast.Loss(HERE, "loss", HERE, self.docs(), parameters, result, self.expr()),
            lambda: ast.Metric(
                HERE, self.name(), HERE, self.docs(), self.perhaps(lambda: parameters), self.expr()
            ),
        )

    def group(self) -> ast.Setting:
        parts = self.some(self.expr, 1, 3)
        return ast.Setting(HERE, "optimizer", HERE, self.docs(), self.expr(), parts)

    def file(self) -> ast.File:
        items = self.some(self.item, 1, 6)
        docs = self.docs() if isinstance(items[0], ast.Import) else ""
        return ast.File(HERE, Source("random.dlm", ""), 1, HERE, docs, items)
