"""Types and the parameters of functions and modules."""

from __future__ import annotations

from dlc.text.model import ast
from dlc.text.model.lexer import NAME
from dlc.text.model.parser_expressions import ExpressionParser

__all__ = ["TypeParser"]


class TypeParser(ExpressionParser):
    """Reads types and parameters; `docs` are the `##` lines before each token, until taken."""

    docs: dict[int, str]

    def take_docs(self) -> str:
        """The documentation before the current token, which is used up."""
        return self.docs.pop(self.at, "") if self.docs else ""

    def type(self) -> ast.Type:
        """`f32[B, 64]`, a tuple of types, `fn` or `dtype`."""
        start = self.starts[self.at]
        text = self.text
        if text == "(":
            return self._tuple_type(start)
        if self.kinds[self.at] != NAME or (text != "fn" and self.stands_for_statement()):
            self.unexpected("a type such as f32[B, 64]")
        self.advance()
        if text == "fn":
            return ast.FnType(self.span_from(start))
        if text == "dtype":
            return ast.DtypeType(self.span_from(start))
        dims = self.listed("]", self._dim)[0] if self.text == "[" else []
        return ast.TensorType(self.span_from(start), text, tuple(dims))

    def _tuple_type(self, start: int) -> ast.Type:
        fields, comma = self.listed(")", self._type_field)
        span = self.span_from(start)
        if not fields:
            self.fail("D0110", "nothing between the parentheses", span, help="put a type there")
        if len(fields) == 1 and not comma and fields[0].name is None:
            return fields[0].type
        return ast.TupleType(span, tuple(fields))

    def _type_field(self) -> ast.TypeField:
        start = self.starts[self.at]
        name: str | None = None
        if self.peek() == ":" and self.kinds[self.at] == NAME:
            name = self.text
            self.advance()
            self.advance()
        kind = self.type()
        return ast.TypeField(self.span_from(start), name, kind)

    def _dim(self) -> ast.Expr:
        if self.text == "..":
            span = self.span_here()
            self.advance()
            return ast.Dots(span)
        return self.expression()

    def parameters(self) -> tuple[ast.Parameter, ...]:
        """The parameters in parentheses."""
        if self.text != "(":
            self.unexpected("`(` and the parameters")
        return tuple(self.listed(")", self._parameter)[0])

    def _parameter(self) -> ast.Parameter:
        docs = self.take_docs()
        start = self.starts[self.at]
        inout = self._says_inout()
        name, span = self.name("a parameter")
        if self.text == ".":
            self.unexpected(
                "`,` or `)`", help="a parameter is one name, and a module has no base class"
            )
        kind = self.type() if self.accept(":") else None
        default = self.expression() if self.accept("=") else None
        return ast.Parameter(self.span_from(start), name, span, docs, kind, default, inout)

    def _says_inout(self) -> bool:
        """Skip the word `inout` before the name of a parameter; alone it is a name."""
        if self.text != "inout" or self.kinds[self.at + 1] != NAME:
            return False
        self.advance()
        return True
