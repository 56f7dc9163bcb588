"""The items of a file, the members of a module, and the entries of `train`, `names` and `dim`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from dlc.text.model import ast, literals
from dlc.text.model.lexer import END, NAME, NUMBER, STRING
from dlc.text.model.parser_cursor import Context, Failure
from dlc.text.model.parser_expressions import SUM
from dlc.text.model.parser_statements import StatementParser
from dlc.text.model.words import (
    FOREIGN_LIBRARIES,
    ITEM_WORDS,
    MEMBER_WORDS,
    STATEMENT_WORDS,
    TRAIN_WORDS,
)
from dlc.text.source import Span

__all__ = ["FILE", "DeclarationParser"]

FILE: Final = Context("declaration", "at file level", ITEM_WORDS)
MODULE: Final = Context("member", "in a module", MEMBER_WORDS)
TRAIN: Final = Context("entry", "in `train`", TRAIN_WORDS, pairs=True)
NAMES: Final = Context('entry "key" = path', "in `names`", frozenset(), pairs=True)

T = TypeVar("T")


class DeclarationParser(StatementParser):
    """Reads everything that may stand outside of blocks."""

    def discard(self) -> None:
        """Read whatever kind of statement, member or item begins here."""
        if self.text in STATEMENT_WORDS:
            self.statement()
        elif self.text in MEMBER_WORDS:
            self.member()
        else:
            self.item()

    def item(self) -> ast.Item | None:
        """One item of a file."""
        docs = self.take_docs()
        match self.text:
            case "import":
                return self._import()
            case "dim":
                return self._dims(docs)
            case "module":
                return self._module(docs)
            case "fn" | "export":
                return self._fn(docs)
            case "const":
                return self._const(docs)
            case "let":
                return self.let(docs)
            case "train":
                return self._train(docs)
            case "names":
                return self._names()
            case "limit":
                return self._limit()
            case "mesh":
                return self._mesh()
            case _:
                return self.not_an_element(FILE, self.item)

    def member(self) -> ast.Member | None:
        """One member of a module."""
        docs = self.take_docs()
        match self.text:
            case "param":
                return ast.Param(*self._weights(docs))
            case "state":
                return ast.State(*self._weights(docs))
            case "const":
                return self._const(docs)
            case "use":
                return self._use(docs)
            case "fn" | "export":
                return self._fn(docs)
            case "require":
                return self.require()
            case "names":
                return self._names()
            case _:
                return self.not_an_element(MODULE, self.member)

    # Functions and modules ----------------------------------------------------------------------

    def _fn(self, docs: str) -> ast.Fn | None:
        start = self.starts[self.at]
        exported = self.accept("export")
        self.expect("fn", help="only functions are exported: export fn f(x: f32[B]) = ...")
        unnamed = "write fn NAME(...) = ...; a function is passed on by its name"
        head = self._head(
            lambda: (*self.name("a function", help=unnamed), self.parameters(), *self._result())
        )
        body = self._body()
        vjp = self._vjp() if self.text == "with" else None
        if head is None:
            return None
        name, span, parameters, result, device = head
        return ast.Fn(
            self.span_from(start), name, span, docs, exported, parameters, result, device, body, vjp
        )

    def _head(self, read: Callable[[], T]) -> T | None:
        """What `read` gives; after a fault in it None, with its `{` reached, or else a failure."""
        depth, brackets = self.depth, len(self.brackets)
        try:
            return read()
        except Failure:
            while self.text not in ("{", "}") and not self.opens_statement(self.at):
                if self.kinds[self.at] == END:
                    raise
                self.advance()
            if self.text != "{":
                raise
            del self.brackets[brackets:]
            self.depth = self.reach = depth
            return None

    def _result(self) -> tuple[ast.Type | None, ast.Device | None]:
        if not self.accept("->"):
            return None, None
        kind = self.type()
        device = self.device() if self.text == "on" else None
        return kind, device

    def _body(self) -> ast.Expr:
        """`= expression`, or a block."""
        if self.text == "{":
            return self.block()
        help = "a result type is written -> f32[B]" if self.text == ":" else None
        self.expect("=", "a body (`=` or `{`)", help=help)
        return self.expression()

    def _vjp(self) -> ast.VjpRule:
        start = self.starts[self.at]
        self.advance()
        self.expect("vjp", "`vjp`")
        parameters = self.parameters()
        body = self._body()
        return ast.VjpRule(self.span_from(start), parameters, body)

    def _module(self, docs: str) -> ast.Module | None:
        start = self.starts[self.at]
        self.advance()
        head = self._head(self._module_head)
        members = self.braced(MODULE, self.member)
        if head is None:
            return None
        name, span, parameters, weights = head
        return ast.Module(self.span_from(start), name, span, docs, parameters, weights, members)

    def _module_head(
        self,
    ) -> tuple[str, Span, tuple[ast.Parameter, ...], ast.String | None]:
        name, span = self.name("a module")
        parameters = self.parameters() if self.text == "(" else ()
        weights: ast.String | None = None
        if self.accept("from"):
            weights = self._quoted("the weight file")
        if self.text != "{":
            self.unexpected("`{` and the members", ("from",))
        return name, span, parameters, weights

    def _quoted(self, what: str) -> ast.String:
        if self.kinds[self.at] != STRING:
            self.unexpected(f"the name of {what} in quotes")
        return self.string()

    # Members ------------------------------------------------------------------------------------

    def _weights(
        self, docs: str
    ) -> tuple[Span, str, Span, str, ast.Type, ast.Split | None, ast.Expr | None, str | None]:
        """What `param` and `state` have in common."""
        start = self.starts[self.at]
        word = self.text
        self.advance()
        name, span = self.name(f"a {word}")
        self.expect(":", f"`:` and the type of `{name}`")
        kind = self.type()
        split = self._split() if self.text == "split" else None
        init = self.expression() if self.accept("=") else None
        key = self._quoted("the weight").value if self.accept("key") else None
        return self.span_from(start), name, span, docs, kind, split, init, key

    def _split(self) -> ast.Split:
        start = self.starts[self.at]
        self.advance()
        if self.text != "(":
            self.unexpected("`(` and the axes", help="write split (none, model)")
        axes = tuple(self.listed(")", self._split_axis)[0])
        return ast.Split(self.span_from(start), axes)

    def _split_axis(self) -> ast.SplitAxis:
        name, span = self.name("an axis of the mesh, or `none`,")
        return ast.SplitAxis(span, name)

    def _const(self, docs: str) -> ast.Const:
        start = self.starts[self.at]
        self.advance()
        name, span = self.name("a constant")
        kind = self.type() if self.accept(":") else None
        self.expect("=", "`=` and a value")
        value = self.expression()
        return ast.Const(self.span_from(start), name, span, docs, kind, value)

    def _use(self, docs: str) -> ast.Use:
        start = self.starts[self.at]
        self.advance()
        name, span = self.name("a submodule")
        self.expect("=", "`=` and a module")
        value = self.expression()
        device = self.device() if self.text == "on" else None
        return ast.Use(self.span_from(start), name, span, docs, value, device)

    def _names(self) -> ast.Names:
        start = self.starts[self.at]
        self.advance()
        entries = self.braced(NAMES, self._name_entry)
        return ast.Names(self.span_from(start), entries)

    def _name_entry(self) -> ast.NameEntry | None:
        start = self.starts[self.at]
        if self.kinds[self.at] != STRING:
            if self.opens_statement(self.at):
                return self.not_an_element(NAMES, self._name_entry)
            self.unexpected(NAMES.what, apart=self.begins_line(self.at))
        key = self.string()
        self.expect("=", "`=` and the weight it is")
        target = self.expression()
        return ast.NameEntry(self.span_from(start), key, target)

    # Items --------------------------------------------------------------------------------------

    def _import(self) -> ast.Import:
        start = self.starts[self.at]
        self.advance()
        span = self.span_here()
        is_file = self.kinds[self.at] == STRING
        source = self.string().value if is_file else self.name("what is imported")[0]
        alias = self.name("the import")[0] if self.accept("as") else None
        names: tuple[ast.ImportName, ...] | None = None
        if self.text == "(" and alias is None:
            names = tuple(self.listed(")", self._import_name)[0])
        elif self._names_follow():
            shown = self.source.text[span.start : span.end]
            shown = "nn" if shown in FOREIGN_LIBRARIES else shown
            self.unexpected("`(` and the names", help=f"write import {shown} (A, B)")
        return ast.Import(self.span_from(start), source, span, is_file, alias, names)

    def _names_follow(self) -> bool:
        """Whether names were written as elsewhere: `import nn.Linear`, `import nn Linear`."""
        beside = self.kinds[self.at] == NAME and not self.begins_line(self.at)
        return self.text == "." or (beside and not self.opens_statement(self.at))

    def _import_name(self) -> ast.ImportName:
        start = self.starts[self.at]
        name, span = self.name("what is imported")
        alias = self.name("the import")[0] if self.accept("as") else None
        return ast.ImportName(self.span_from(start), name, span, alias)

    def _dims(self, docs: str) -> ast.Dims:
        start = self.starts[self.at]
        self.advance()
        entries = [self._dim_entry()]
        while self.accept(","):
            entries.append(self._dim_entry())
        return ast.Dims(self.span_from(start), docs, tuple(entries))

    def _dim_entry(self) -> ast.DimEntry:
        start = self.starts[self.at]
        name, span = self.name("a size")
        low: ast.Expr | None = None
        high: ast.Expr | None = None
        if self.accept("="):
            low = self.operators(SUM)
            help = f"bounds are written 1..1024; a fixed size is const {name} = ..."
            self.expect("..", help=help)
            high = self.operators(SUM) if self._value_follows() else None
        elif self.text in (":", "..", "<", "<=", "["):
            self.unexpected("`=`", help=f"bounds are written dim {name} = 1..1024")
        return ast.DimEntry(self.span_from(start), name, span, low, high)

    def _value_follows(self) -> bool:
        if self.kinds[self.at] == NAME:
            return not self.opens_statement(self.at)
        return self.kinds[self.at] in (NUMBER, STRING) or self.text in ("(", "[", "{", "-")

    def _limit(self) -> ast.Limit:
        start = self.starts[self.at]
        self.advance()
        name, span = self.name("a limit")
        value: ast.Expr | ast.Size | None = None
        if self.accept("="):
            value = self._size() if self._size_follows() else self.expression()
        return ast.Limit(self.span_from(start), name, span, value)

    def _mesh(self) -> ast.Mesh:
        start = self.starts[self.at]
        self.advance()
        axes = [self._mesh_entry()]
        while self.accept(","):
            axes.append(self._mesh_entry())
        return ast.Mesh(self.span_from(start), tuple(axes))

    def _mesh_entry(self) -> ast.MeshEntry:
        start = self.starts[self.at]
        name, span = self.name("an axis of the mesh")
        self.expect("=", "`=` and the number of ranks", help="write mesh data = 2, model = 2")
        ranks = self.expression()
        return ast.MeshEntry(self.span_from(start), name, span, ranks)

    def _size_follows(self) -> bool:
        has_unit = self.text[-1:].isalpha() and not self.text.startswith(("0x", "0X"))
        return has_unit and self.kinds[self.at] == NUMBER

    def _size(self) -> ast.Size:
        text, span = self.text, self.span_here()
        count = 0
        try:
            count = literals.size(text)
        except literals.LiteralError as fault:
            self.error(fault.code, fault.message, help=fault.help)
        self.advance()
        return ast.Size(span, count, text)

    # Training -----------------------------------------------------------------------------------

    def _train(self, docs: str) -> ast.Train:
        start = self.starts[self.at]
        self.advance()
        name, span = self.name("the module to train")
        block, block_span = "", span
        if self.accept("for"):
            block, block_span = name, span
            name, span = self.name("the module to train")
        entries = self.braced(TRAIN, self._entry)
        return ast.Train(self.span_from(start), name, span, docs, block, block_span, entries)

    def _entry(self) -> ast.TrainEntry | None:
        docs = self.take_docs()
        start = self.starts[self.at]
        if self.text == "loss":
            return self._loss(start, docs)
        if self.text == "metric":
            return self._metric(start, docs)
        if self.kinds[self.at] != NAME or (self.peek() != "=" and self.text not in TRAIN_WORDS):
            return self.not_an_element(TRAIN, self._entry)
        name, span = self.name("an entry")
        parts = self._parts() if name == "optimizer" and self.text == "(" else ()
        self.expect("=", "`=` and a value")
        value = self.expression()
        return ast.Setting(self.span_from(start), name, span, docs, value, parts)

    def _parts(self) -> tuple[ast.Expr, ...]:
        """The parts of a module in `optimizer(body, head) = ...`."""
        parts = tuple(self.listed(")", self.expression)[0])
        if not parts:
            self.unexpected("the parts that it updates", help="write optimizer(head) = ...")
        return parts

    def _loss(self, start: int, docs: str) -> ast.Loss:
        name, span = self.name("the loss")
        if self.text == "=":
            help = "the loss is a function of the data: loss(x: f32[B, 4]) = ..."
            self.unexpected("`(` and the parameters", help=help)
        parameters = self.parameters()
        result = self.type() if self.accept("->") else None
        body = self._body()
        return ast.Loss(self.span_from(start), name, span, docs, parameters, result, body)

    def _metric(self, start: int, docs: str) -> ast.Metric:
        self.advance()
        name, span = self.name("a metric")
        parameters = self.parameters() if self.text == "(" else None
        body = self._body()
        return ast.Metric(self.span_from(start), name, span, docs, parameters, body)
