"""The layout of statements, members and items, and of the lines that they make.

The author decides about blank lines (at most one is kept), about statements side by side in one line, and
about braces in one line; all of it as far as it fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dlc.text.layout import (
    HARD,
    NOTHING,
    Braces,
    Concat,
    Doc,
    Group,
    Line,
    Nest,
    SpaceOrLine,
    Text,
    concat,
    joined,
)
from dlc.text.model import ast, literals
from dlc.text.model.fmt_comments import documentation, spelled
from dlc.text.model.fmt_expressions import ExpressionFormatter
from dlc.text.model.lexer import Comment
from dlc.text.source import Span

__all__ = ["StatementFormatter"]

T = TypeVar("T", bound=ast.Node)


@dataclass(slots=True)
class _Line:
    """What becomes one line, or several if it does not fit, and the text that it came from."""

    docs: list[Doc]
    span: Span
    blank_before: bool
    behind: list[str]

    def doc(self) -> Doc:
        """The statements side by side if they fit."""
        statements = Group(Concat(joined(self.docs, Line("  "))))
        return concat(statements, *(f"  {comment}" for comment in self.behind))


class StatementFormatter(ExpressionFormatter):
    """Makes documents of everything in a file."""

    # Lines --------------------------------------------------------------------------------------

    def lines(
        self, nodes: Sequence[T], build: Callable[[T], Doc], begin: int, limit: int
    ) -> tuple[list[_Line], list[str]]:
        """The lines of a list between two offsets, and the comments behind what opens it."""
        lines = [_Line([], Span(begin, begin), False, [])]
        previous: T | None = None
        for node in nodes:
            self._comments_before(lines, node.span.start)
            doc = build(node)
            misfits = self.comments.take(node.span.end)
            for comment in misfits:
                self._add_comment(lines, comment, Span(node.span.start, node.span.start))
            beside = (
                not misfits and previous is not None and self._beside(lines[-1], previous, node)
            )
            if beside and not doc.forced and not lines[-1].docs[-1].forced:
                lines[-1].docs.append(doc)
            else:
                blank = self._blank(lines[-1].span.end, node.span.start, previous, node)
                for words in self._documentation(node):
                    lines.append(_Line([Text(words)], node.span, blank, []))
                    blank = False
                lines.append(_Line([doc], node.span, blank, []))
            lines[-1].span = Span(lines[-1].span.start, node.span.end)
            for comment in self.comments.take_behind(node.span.end):
                self._add_behind(lines[-1], comment)
            previous = node
        self._comments_before(lines, limit)
        return lines[1:], lines[0].behind

    def _comments_before(self, lines: list[_Line], limit: int) -> None:
        for comment in self.comments.take(limit):
            if comment.alone:
                span = Span(comment.start, comment.start + len(comment.text))
                self._add_comment(lines, comment, span)
            else:
                self._add_behind(lines[-1], comment)

    def _add_comment(self, lines: list[_Line], comment: Comment, span: Span) -> None:
        blank = self._blank(lines[-1].span.end, span.start, None, None)
        lines.append(_Line([Text(spelled(comment))], span, blank, []))

    def _add_behind(self, line: _Line, comment: Comment) -> None:
        line.behind.append(spelled(comment))
        line.span = Span(line.span.start, comment.start + len(comment.text))

    def _beside(self, line: _Line, previous: ast.Node, node: ast.Node) -> bool:
        """Whether the author put `node` into the line of `previous`, which `line` ends with."""
        source = self.comments.source
        if source is None or line.behind or line.span.end != previous.span.end:
            return False
        return "\n" not in source.text[previous.span.end : node.span.start]

    def _blank(
        self, end: int, start: int, previous: ast.Node | None, node: ast.Node | None
    ) -> bool:
        """Whether a blank line stands between two offsets, or should where there is no text."""
        source = self.comments.source
        if source is not None:
            return source.text.count("\n", end, start) > 1
        return previous is not None and node is not None and _kept_apart(previous, node)

    def _documentation(self, node: ast.Node) -> list[str]:
        """The `##` lines of a node where there is no text, in which they would be comments."""
        if self.comments.source is not None:
            return []
        return documentation(_docs(node))

    def braces(
        self, nodes: Sequence[T], build: Callable[[T], Doc], span: Span, *, short: bool
    ) -> Doc:
        """The lines in the braces that `span` ends with."""
        source = self.comments.source
        close = span.end - 1
        begin = span.start
        if source is not None:
            first = nodes[0].span.start if nodes else close
            begin = source.text.rfind("{", span.start, first) + 1
            short = "\n" not in source.text[begin:close] and not self.comments.wait_before(close)
        lines, opening = self.lines(nodes, build, begin, close)
        if not lines and not opening:
            return Text("{}")
        if lines:
            lines[0].blank_before = False
        behind = [f"  {comment}" for comment in opening]
        if short and len(lines) == 1 and not behind and not lines[0].behind:
            return Braces(concat("{", Nest(concat(Line(), lines[0].doc())), Line(), "}"))
        return concat("{", *behind, Nest(Concat(_separated(lines))), HARD, "}")

    # Statements ---------------------------------------------------------------------------------

    def block(self, block: ast.Block, *, short: bool) -> Doc:
        """Statements in braces; without a text to follow, in one line if `short`."""
        short = short and len(block.statements) == 1
        return self.braces(block.statements, self.statement, block.span, short=short)

    def statement(self, node: ast.Statement) -> Doc:
        """A statement of a block."""
        match node:
            case ast.Let():
                return concat(
                    "let ", self.pattern(node.pattern), self._typed(node.type, node.value)
                )
            case ast.Return():
                return concat("return ", self.expression(node.value))
            case ast.Yield():
                return concat("yield ", self.expression(node.value))
            case ast.Debug():
                return concat("debug ", self.expression(node.value))
            case ast.Next():
                return concat(f"next {node.name} = ", self.expression(node.value))
            case ast.Set():
                return concat(f"set {node.name} = ", self.expression(node.value))
            case ast.Require():
                condition = self.expression(node.condition)
                why = [", ", self.expression(node.message)] if node.message else []
                return concat("require ", condition, *why)

    def _typed(self, kind: ast.Type | None, value: ast.Expr | None) -> Doc:
        """`: type = value`, as far as there is."""
        return concat(
            *([": ", self.type(kind)] if kind else []),
            *([" = ", self.expression(value)] if value else []),
        )

    def _weight(self, node: ast.Param | ast.State) -> Doc:
        """`: type split (...) = value key "..."`, as far as there is."""
        axes = ", ".join(axis.mesh_axis for axis in node.split.axes) if node.split else ""
        return concat(
            ": ",
            self.type(node.type),
            f" split ({axes})" if node.split else NOTHING,
            *([" = ", self.expression(node.init)] if node.init else []),
            _key(node.key),
        )

    # Members ------------------------------------------------------------------------------------

    def member(self, node: ast.Member) -> Doc:
        """A member of a module."""
        match node:
            case ast.Param():
                return concat(f"param {node.name}", self._weight(node))
            case ast.State():
                return concat(f"state {node.name}", self._weight(node))
            case ast.Const():
                return concat(f"const {node.name}", self._typed(node.type, node.value))
            case ast.Use():
                device = concat(" ", self.device(node.device)) if node.device else NOTHING
                return concat(f"use {node.name} = ", self.expression(node.value), device)
            case ast.Fn():
                return self._fn(node)
            case ast.Require():
                return self.statement(node)
            case ast.Names():
                entries = self.braces(node.entries, self._name_entry, node.span, short=False)
                return concat("names ", entries)

    def _fn(self, node: ast.Fn) -> Doc:
        head: list[Doc | str] = [
            f"{'export ' if node.exported else ''}fn {node.name}",
            self.parameters(node.parameters),
            self._result(node.result),
        ]
        if node.device:
            head += [" ", self.device(node.device)]
        body = self._body(node.body)
        if node.vjp is None:
            return concat(*head, body)
        rule = concat("with vjp", self.parameters(node.vjp.parameters), self._body(node.vjp.body))
        if isinstance(node.body, ast.Block):
            return concat(*head, body, " ", rule)
        return Group(concat(*head, body, Nest(concat(Line(), rule))))

    def _result(self, kind: ast.Type | None) -> Doc:
        return concat(" -> ", self.type(kind)) if kind else NOTHING

    def _body(self, body: ast.Expr) -> Doc:
        if isinstance(body, ast.Block):
            return concat(" ", self.block(body, short=False))
        return concat(" =", SpaceOrLine(self.expression(body)))

    def _name_entry(self, node: ast.NameEntry) -> Doc:
        return concat(self.expression(node.key), " = ", self.expression(node.target))

    # Items --------------------------------------------------------------------------------------

    def item(self, node: ast.Item) -> Doc:
        """An item of a file."""
        match node:
            case ast.Import():
                return self._import(node)
            case ast.Dims():
                return concat("dim ", *joined(map(self._dim_entry, node.entries), ", "))
            case ast.Module():
                return self._module(node)
            case ast.Fn() | ast.Const() | ast.Names():
                return self.member(node)
            case ast.Let():
                return self.statement(node)
            case ast.Train():
                entries = self.braces(node.entries, self._entry, node.span, short=False)
                block = f"{node.block} for " if node.block else ""
                return concat(f"train {block}{node.name} ", entries)
            case ast.Mesh():
                return concat("mesh ", *joined(map(self._mesh_entry, node.axes), ", "))
            case ast.Limit():
                match node.value:
                    case None:
                        return Text(f"limit {node.name}")
                    case ast.Size():
                        return Text(f"limit {node.name} = {node.value.text}")
                    case value:
                        return concat(f"limit {node.name} = ", self.expression(value))

    def _import(self, node: ast.Import) -> Doc:
        source = literals.quote(node.source) if node.is_file else node.source
        alias = f" as {node.alias}" if node.alias else ""
        if node.names is None:
            return Text(f"import {source}{alias}")
        return concat(f"import {source} ", self.enclosed("(", node.names, self._import_name, ")"))

    def _import_name(self, node: ast.ImportName) -> Doc:
        return Text(f"{node.name} as {node.alias}" if node.alias else node.name)

    def _dim_entry(self, node: ast.DimEntry) -> Doc:
        if node.low is None:
            return Text(node.name)
        return concat(f"{node.name} = ", self.range(node.low, node.high))

    def _mesh_entry(self, node: ast.MeshEntry) -> Doc:
        return concat(f"{node.name} = ", self.expression(node.ranks))

    def _module(self, node: ast.Module) -> Doc:
        head: list[Doc | str] = [f"module {node.name}"]
        if node.parameters:
            head.append(self.parameters(node.parameters))
        if node.weights:
            head += [" from ", self.expression(node.weights)]
        return concat(*head, " ", self.braces(node.members, self.member, node.span, short=False))

    def _entry(self, node: ast.TrainEntry) -> Doc:
        match node:
            case ast.Setting():
                parts = self.enclosed("(", node.parts, self.expression, ")")
                head = concat(node.name, parts if node.parts else NOTHING, " = ")
                return concat(head, self.expression(node.value))
            case ast.Loss():
                parameters = self.parameters(node.parameters)
                return concat("loss", parameters, self._result(node.result), self._body(node.body))
            case ast.Metric():
                given = node.parameters is not None
                parameters = self.parameters(node.parameters or ()) if given else NOTHING
                return concat(f"metric {node.name}", parameters, self._body(node.body))

    def file(self, node: ast.File) -> Doc:
        """The whole text."""
        first = [
            concat(spelled(comment), HARD)
            for comment in self.comments.take(node.edition_span.start)
        ]
        end = node.edition_span.end
        lines, behind = self.lines(node.items, self.item, end, node.span.end + 1)
        notes = [f"  {comment}" for comment in behind]
        docs: list[Doc] = []
        if self.comments.source is None:
            docs = [concat(HARD, words) for words in documentation(node.docs)]
        if docs and node.items and not isinstance(node.items[0], ast.Import):
            docs.append(HARD)
        return concat(*first, f"dlc {node.edition}", *notes, *docs, *_separated(lines), HARD)


def _separated(lines: Sequence[_Line]) -> list[Doc]:
    """The lines, each on a new line, with the blank lines between."""
    docs: list[Doc] = []
    for line in lines:
        docs += [HARD, HARD] if line.blank_before else [HARD]
        docs.append(line.doc())
    return docs


def _key(key: str | None) -> Doc:
    return NOTHING if key is None else Text(f" key {literals.quote(key)}")


def _docs(node: ast.Node) -> str:
    match node:
        case ast.Documented() | ast.Let() | ast.Dims():
            return node.docs
        case _:
            return ""


def _kept_apart(one: ast.Node, other: ast.Node) -> bool:
    """Whether a blank line goes between two elements: between kinds, and around what is large."""
    return (
        _family(one) != _family(other) or bool(_docs(other)) or _is_large(one) or _is_large(other)
    )


def _is_large(node: ast.Node) -> bool:
    match node:
        case ast.Module() | ast.Train() | ast.Names():
            return True
        case ast.Fn():
            return isinstance(node.body, ast.Block)
        case _:
            return False


def _family(node: ast.Node) -> str:
    match node:
        case ast.Import() | ast.Dims() | ast.Limit() | ast.Mesh():
            return "head"
        case ast.Param() | ast.State() | ast.Const() | ast.Use() | ast.Require():
            return "member"
        case ast.Let() | ast.Return() | ast.Next() | ast.Yield() | ast.Set() | ast.Debug():
            return "member"
        case ast.Setting() | ast.Loss() | ast.Metric():
            return "entry"
        case _:
            return "large"
