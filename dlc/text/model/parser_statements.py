"""Lists of statements, how a fault in one leaves the others whole, and the statements of a block."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Final, TypeVar

from dlc.errors.suggest import suggest
from dlc.text.model import ast
from dlc.text.model.lexer import END, NAME, NUMBER, STRING
from dlc.text.model.parser_cursor import VALUE_HINTS, Context, Failure
from dlc.text.model.parser_types import TypeParser
from dlc.text.model.words import FOREIGN_WORDS, OPENERS, STATEMENT_WORDS, describe, home
from dlc.text.source import Span

__all__ = ["StatementParser"]

BLOCK: Final = Context("statement", "in a block", STATEMENT_WORDS)

T = TypeVar("T")


class StatementParser(TypeParser):
    """Reads blocks."""

    _misplaced_before: bool = False
    _discarding: bool = False

    @abstractmethod
    def discard(self) -> None:
        """Read whatever kind of statement, member or item begins here."""

    # Lists of statements ------------------------------------------------------------------------

    def elements(
        self, context: Context, read: Callable[[], T | None], opener: int | None
    ) -> tuple[T, ...]:
        """What `read` gives, up to the `}` of `opener` or, without one, the end of the text.

        After a fault it goes on with the next keyword; `read` gives None for what it gave up.
        """
        elements: list[T] = []
        braces = 0  # opened in what was skipped
        self._misplaced_before = self._discarding
        while self.kinds[self.at] != END:
            if self.text == "}":
                if not braces and opener is not None:
                    break
                if not braces:
                    self.error("D0112", "`}` closes nothing", help="leave it out")
                braces = max(0, braces - 1)
                self.advance()
            elif opener is not None and not braces and self._begins_outside(context, opener):
                break
            else:
                begin, depth, brackets = self.at, self.depth, len(self.brackets)
                try:
                    element = read()
                except Failure:
                    braces += self._recover(context, begin, depth, brackets)
                else:
                    if element is not None:
                        elements.append(element)
                        self._misplaced_before = False
        return tuple(elements)

    def braced(self, context: Context, read: Callable[[], T | None]) -> tuple[T, ...]:
        """The elements in braces, from the current `{` on."""
        if self.text != "{":
            self.unexpected("`{`")
        opener = self.open()
        outer, self.context = self.context, context
        elements = self.elements(context, read, opener)
        self.context = outer
        if not self.accept("}"):
            self.missing(opener)
        self.brackets.pop()
        self.depth -= 1
        return elements

    def _recover(self, context: Context, begin: int, depth: int, brackets: int) -> int:
        """Skip what is left of the element that began at token `begin`; returns the open braces."""
        unclosed = [self.texts[at] for at in self.brackets[brackets:]]
        del self.brackets[brackets:]
        self.depth = self.reach = depth
        self._misplaced_before = True  # what follows may be a part of it
        if self.at == begin and self.text not in ("}", "{"):
            self.advance()
        braces = unclosed.count("{")
        return braces + self.resume(context, len(unclosed) - braces)

    def _begins_outside(self, context: Context, opener: int) -> bool:
        """Whether the brace `opener` should have been closed before this keyword.

        A keyword that belongs elsewhere says so if it is indented no deeper than the line of the
        brace; indented deeper, it is itself in the wrong place.
        """
        if self.text in context.words or not self.opens_statement(self.at):
            return False
        return self.begins_line(self.at) and (
            self.column_of_line(self.at) <= self.column_of_line(opener)
        )

    def _loop_meant(self) -> str | None:
        """The suggestion where two names follow each other, as after `scan` and `while`."""
        if self.at == 0 or self.kinds[self.at - 1] != NAME or self.kinds[self.at] != NAME:
            return None
        meant = suggest(self.texts[self.at - 1], ("scan", "while"))
        return meant and f"did you mean `{meant}`?"

    def _let_meant(self, context: Context) -> str | None:
        """The suggestion where a name is given a value as in other languages, `{ y = x`."""
        is_given = self.kinds[self.at] == NAME and self.peek() == "="
        if context.kind != "statement" or not is_given:
            return None
        return f"to name a value write let {self.text} = ..."

    def not_an_element(self, context: Context, read: Callable[[], T | None]) -> T | None:
        """Say why no element of `context` begins here; read it if it is plain what was meant."""
        text = self.text
        if text in OPENERS:
            self._misplaced(context)
            return None
        if text in (")", "]"):
            self.fail("D0112", f"`{text}` closes nothing", help="leave it out")
        is_name = self.kinds[self.at] == NAME
        meant = suggest(text, context.words) if is_name else None
        is_misspelt = meant is not None and self._fits(meant)
        if not self.begins_line(self.at) and text not in FOREIGN_WORDS and not is_misspelt:
            help = VALUE_HINTS.get(text) or self._loop_meant() or self._let_meant(context)
            self.unexpected(f"an operator or the next {context.kind}", help=help)
        if not is_name:
            self.unexpected(context.what, apart=True)
        if meant is not None and is_misspelt:
            message, help = f"no {context.kind} begins with `{text}`", f"did you mean `{meant}`?"
            self.error("D0113", message, help=help)
            self.repaired += 1
            self.texts[self.at] = self.text = meant
            return read()
        message = f"no {context.kind} begins with {describe(text)}"
        return self.fail("D0113", message, help=self._way_to_begin(context))

    def _way_to_begin(self, context: Context) -> str:
        text, follower = self.text, self.peek()
        if text in FOREIGN_WORDS:
            return FOREIGN_WORDS[text]
        if follower in ("=", ":", ",") and "let" in context.words:
            return f"to name a value write let {describe(text)[1:-1]} = ..."
        if follower == "=" and "use" in context.words:
            return f"to name a submodule write use {text} = ..., a weight param {text}: ..."
        return f"allowed {context.where}: {', '.join(sorted(context.words))}"

    def _fits(self, keyword: str) -> bool:
        """Whether what follows the current word could follow the keyword."""
        kind, follower = self.kinds[self.at + 1], self.peek()
        if keyword in ("return", "yield", "require", "debug"):
            return kind in (NAME, NUMBER, STRING) or follower in ("(", "[", "-")
        return kind == NAME or (keyword == "let" and follower == "(")

    def _misplaced(self, context: Context) -> None:
        """Report a keyword that belongs elsewhere, several in a row once, and read over it."""
        if not self._misplaced_before:
            message = f"`{self.text}` is not allowed {context.where}"
            self.error("D0114", message, help=f"it belongs {home(self.text)}")
        outer, self._discarding = self._discarding, True
        try:
            self.discard()
        finally:
            self._discarding = outer
            self._misplaced_before = True

    # Statements ---------------------------------------------------------------------------------

    def block(self) -> ast.Block:
        """Statements in braces."""
        start = self.starts[self.at]
        statements = self.braced(BLOCK, self.statement)
        return ast.Block(self.span_from(start), statements)

    def statement(self) -> ast.Statement | None:
        """One statement of a block."""
        start = self.starts[self.at]
        match self.text:
            case "let":
                return self.let("")
            case "return":
                return self._return()
            case "yield":
                self.advance()
                value = self.expression()
                return ast.Yield(self.span_from(start), value)
            case "debug":
                self.advance()
                value = self.expression()
                return ast.Debug(self.span_from(start), value)
            case "next":
                name, span, value = self._assignment("a carry")
                return ast.Next(self.span_from(start), name, span, value)
            case "set":
                name, span, value = self._assignment("a state")
                return ast.Set(self.span_from(start), name, span, value)
            case "require":
                return self.require()
            case _:
                return self.not_an_element(BLOCK, self.statement)

    def _return(self) -> ast.Return:
        start = self.starts[self.at]
        self.advance()
        value = self.expression()
        if self.text == ",":
            several = "several results are a tuple: return (a, b)"
            self.unexpected("the end of the result", help=several)
        return ast.Return(self.span_from(start), value)

    def let(self, docs: str) -> ast.Let:
        """`let pattern: type = value`."""
        start = self.starts[self.at]
        self.advance()
        pattern = self.pattern()
        kind = self.type() if self.accept(":") else None
        self.expect("=", "`=` and a value")
        value = self.expression()
        return ast.Let(self.span_from(start), docs, pattern, kind, value)

    def _assignment(self, what: str) -> tuple[str, Span, ast.Expr]:
        self.advance()
        name, span = self.name(what)
        self.expect("=", "`=` and a value")
        return name, span, self.expression()

    def require(self) -> ast.Require:
        """`require condition, message`."""
        start = self.starts[self.at]
        self.advance()
        condition = self.expression()
        if self.kinds[self.at] == STRING:
            self.unexpected("`,` before the message")
        message = self.expression() if self.accept(",") else None
        return ast.Require(self.span_from(start), condition, message)
