"""The parser's position in the tokens: taking them, opening and closing brackets, reporting, resuming.

A fault is recorded at once. What cannot be continued from there raises `Failure`, which the nearest list
of statements catches: it skips to the next keyword that begins a statement and goes on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn, TypeVar

from dlc.errors import Diagnostic, Label
from dlc.errors.suggest import suggest
from dlc.text.model.lexer import END, MAX_ERRORS, NAME, STRING, Tokens
from dlc.text.model.words import (
    AFTER_NAME,
    EXPRESSION_WORDS,
    FOLLOWING_WORDS,
    NEVER_NAMES,
    OPENERS,
    TRAIN_WORDS,
    describe,
)
from dlc.text.source import Source, Span

__all__ = [
    "MAX_DEPTH",
    "NEVER_FOLLOW",
    "VALUE_HINTS",
    "Context",
    "Cursor",
    "Failure",
    "TooManyErrors",
]

MAX_DEPTH: Final = 64
"""How deep blocks and expressions nest at most; a flat chain of operators is one level."""

NEVER_FOLLOW: Final = OPENERS | EXPRESSION_WORDS | NEVER_NAMES
"""Words that tell nothing about the keyword before them, which may be a name."""

VALUE_HINTS: Final = {
    "=": "two values are compared with `==`",
    "..": "ranges are written after `in` and in `dim`; a slice is written a:b",
    "if": "a choice is written if c then a else b",
    "in": "whether a tensor holds a value is any(x == value)",
}
"""What to say about a token that cannot follow a complete value."""

CLOSERS: Final = {"(": ")", "[": "]", "{": "}"}

T = TypeVar("T")


class Failure(Exception):
    """What is being read cannot be continued; the reason has been recorded."""


class TooManyErrors(Exception):
    """`MAX_ERRORS` have been recorded: the rest of the text is not read."""


@dataclass(frozen=True, slots=True)
class Context:
    """What may be in a list: the `kind` of element, `where` it is, the `words` that begin one.

    In the braces of `train` and `names` an element begins with any name or string before `=`.
    """

    kind: str
    where: str
    words: frozenset[str]
    pairs: bool = False

    @property
    def what(self) -> str:
        """One element, as a message calls it."""
        return f"{'an' if self.kind[0] in 'aeiou' else 'a'} {self.kind}"


class Cursor:
    """The tokens of one text and the place reached in them."""

    def __init__(self, source: Source, tokens: Tokens) -> None:
        self.source = source
        self.kinds = tokens.kinds
        self.texts = tokens.texts
        self.starts = tokens.starts
        self.ends = tokens.ends
        self.faults = tokens.faults
        self.at: int = 0
        self.last = len(tokens.texts) - 1
        self.text: str = self.texts[0]
        self.depth: int = 0
        self.reach: int = 0
        self.brackets: list[int] = []
        self.diagnostics = list(tokens.problems)
        self.repaired: int = 0
        """How many errors are misspelt keywords that were read as what was meant."""
        self.context = Context("declaration", "at file level", frozenset())
        self._silent_at: int = -1

    # Taking tokens ------------------------------------------------------------------------------

    def advance(self) -> None:
        """Take the current token; the END stays."""
        if self.at < self.last:
            self.at += 1
            self.text = self.texts[self.at]

    def accept(self, text: str) -> bool:
        """Take the token `text` if it is the current one."""
        if self.text != text:
            return False
        self.advance()
        return True

    def expect(self, text: str, wanted: str | None = None, *, help: str | None = None) -> None:
        """Take the token `text`, or fail: `wanted` says what was expected, if more than the token."""
        if self.text != text:
            self.unexpected(wanted or f"`{text}`", (text,), help=help)
        self.advance()

    def peek(self) -> str:
        """The text of the token after the current one."""
        return self.texts[min(self.at + 1, self.last)]

    def span_here(self) -> Span:
        """The current token."""
        return Span(self.starts[self.at], self.ends[self.at])

    def span_from(self, start: int) -> Span:
        """From `start` to the end of the last token taken."""
        return Span(start, self.ends[self.at - 1])

    def name(self, what: str, *, help: str | None = None) -> tuple[str, Span]:
        """Take a name that is being given to `what`, such as "a parameter"; `help` if there is none."""
        text, span = self.text, self.span_here()
        if self.kinds[self.at] != NAME:
            self.unexpected(f"a name for {what}", help=help)
        if text in NEVER_NAMES:
            help = "choose another name"
            self.fail("D0118", f"`{text}` is a word of the language, not a name", help=help)
        self.advance()
        return text, span

    # Brackets and depth -------------------------------------------------------------------------

    def deeper(self) -> None:
        """Enter one level; the caller lowers `depth` again."""
        self.depth += 1
        self.reach_to(self.depth)

    def reach_to(self, depth: int) -> None:
        """Record that the expression being read is `depth` deep somewhere.

        A chain of calls `f(a)(b)(c)` grows around what was read first, so its depth is known only
        at its end: `reach` is the greatest depth so far, `depth` that of the current token.
        """
        if depth > self.reach:
            self.reach = depth
            if depth > MAX_DEPTH:
                self._too_deep()

    def _too_deep(self) -> NoReturn:
        """Once per text: what follows is too deep as well."""
        if any(found.code == "D0107" for found in self.diagnostics):
            raise Failure
        help = "name the parts with `let`, or make a function of them"
        self.fail("D0107", f"nested more than {MAX_DEPTH} levels deep", help=help)

    def open(self) -> int:
        """Take an opening bracket; returns its token."""
        opener = self.at
        self.brackets.append(opener)
        self.deeper()
        self.advance()
        return opener

    def close(self, opener: int) -> None:
        """Take the bracket that closes `opener`; a missing one is reported and taken as there."""
        closer = CLOSERS[self.texts[opener]]
        if self.text == closer:
            self.advance()
        elif self.text in (")", "]") and not self._closes_outer(self.text):
            self.error(
                "D0112",
                f"`{self.text}` does not close the `{self.texts[opener]}`",
                labels=(self.label(opener, f"`{self.texts[opener]}` opened here"),),
                help=f"write `{closer}`",
            )
            self.advance()
        elif self._ends_element():
            self.missing(opener)
        else:
            self._not_separated(opener, closer)
        self.brackets.pop()
        self.depth -= 1

    def missing(self, opener: int) -> None:
        """Report that `opener` is not closed, at the end of the previous token."""
        bracket = self.texts[opener]
        end = self.ends[self.at - 1]
        self.error(
            "D0111",
            f"missing `{CLOSERS[bracket]}`",
            Span(end, end),
            labels=(self.label(opener, f"`{bracket}` opened here"),),
            help=f"put `{CLOSERS[bracket]}` where the {'block' if bracket == '{' else 'list'} ends",
        )

    def _closes_outer(self, closer: str) -> bool:
        return any(CLOSERS[self.texts[at]] == closer for at in self.brackets[:-1])

    def _ends_element(self) -> bool:
        """Whether the current token can only stand after the bracket."""
        text = self.text
        return (
            text in FOLLOWING_WORDS
            or text in ("}", "{", ")", "]", "=", "->", "")
            or self.opens_statement(self.at)
            or self._opens_entry()
            or self._resembles_keyword()
        )

    def _resembles_keyword(self) -> bool:
        """Whether a line begins with a misspelt keyword, or a name that looks like one."""
        if self.kinds[self.at] != NAME or not self.begins_line(self.at):
            return False
        follows = self.kinds[self.at + 1] == NAME and self.texts[self.at - 1] != ","
        return follows and suggest(self.text, self.context.words) is not None

    def _not_separated(self, opener: int, closer: str) -> NoReturn:
        here = f"`,` or `{closer}`"
        first, last = self.starts[opener], self.starts[self.at]
        same_line = self.source.line_of(first) == self.source.line_of(last)
        labels = () if same_line else (self.label(opener, f"`{self.texts[opener]}` opened here"),)
        self.unexpected(here, labels=labels, help=VALUE_HINTS.get(self.text))

    def listed(self, closer: str, element: Callable[[], T]) -> tuple[list[T], bool]:
        """The elements in brackets from the current token on, and whether a comma ended them."""
        opener = self.open()
        elements: list[T] = []
        comma = True
        while comma and self.text != closer:
            elements.append(element())
            comma = self.accept(",")
        self.close(opener)
        return elements, comma

    # Statements ---------------------------------------------------------------------------------

    def opens_statement(self, at: int, ahead: int = 3) -> bool:
        """Whether a statement seems to begin at token `at`: asked where something is wrong.

        It does if a name follows the keyword, unless that is itself the keyword of a statement.
        """
        word = self.texts[at]
        if word not in OPENERS:
            return False
        if word in NEVER_NAMES:
            return True
        follower = self.texts[at + 1]
        if self.kinds[at + 1] == NAME:
            if follower in EXPRESSION_WORDS:
                return False
            return follower == "fn" or not (ahead and self.opens_statement(at + 1, ahead - 1))
        return (word, follower) == ("names", "{") or (
            word == "import" and self.kinds[at + 1] == STRING
        )

    def stands_for_statement(self) -> bool:
        """Whether a keyword where a value is expected cannot be a name: a statement follows.

        In `let a = next let b = 1` the `next` is a name, in `let a = next h = 1` the value is missing.
        """
        word = self.text
        if word in NEVER_NAMES:
            return True
        if word not in OPENERS or self.context.pairs or self.kinds[self.at + 1] != NAME:
            return False
        follower, third = self.texts[self.at + 1 : self.at + 3]
        if follower in NEVER_FOLLOW:
            return (word, follower) == ("export", "fn")
        return word not in AFTER_NAME or third in AFTER_NAME[word]

    def resume(self, context: Context, unclosed: int) -> int:
        """Skip to what may begin the next element, or to the `}` that ends the list.

        `unclosed` is how many round or square brackets are open. Returns how many braces were
        opened on the way, each of which has its `}` still to come.
        """
        braces = 0
        while self.kinds[self.at] != END:
            text = self.text
            if text == "{":
                braces += 1
            elif text == "}":
                if not braces:
                    break
                braces -= 1
            elif text in ("(", "["):
                unclosed += 1
            elif text in (")", "]"):
                unclosed = max(0, unclosed - 1)
            elif self.opens_statement(self.at) or self._opens_pair(context, unclosed):
                break
            self.advance()
        return braces

    def _opens_pair(self, context: Context, unclosed: int) -> bool:
        """Whether an entry of `train` or `names` begins here: not an argument, which looks like one."""
        if not context.pairs:
            return False
        if self._opens_entry():
            return True
        return not unclosed and self.kinds[self.at] in (NAME, STRING) and self.peek() == "="

    def _opens_entry(self) -> bool:
        """Whether one of the usual entries of `train` begins here."""
        if self.text not in TRAIN_WORDS:
            return False
        follower, kind = self.peek(), self.kinds[self.at + 1]
        return (
            follower == "="
            or (self.text, follower) in (("loss", "("), ("optimizer", "("))
            or (self.text == "metric" and kind == NAME)
        )

    def column_of_line(self, token: int) -> int:
        """The column of the first character of the line that `token` is in."""
        text = self.source.text
        line_start = text.rfind("\n", 0, self.starts[token]) + 1
        indented = text[line_start : self.starts[token]]
        return len(indented) - len(indented.lstrip()) + 1

    def begins_line(self, token: int) -> bool:
        """Whether nothing stands before `token` in its line."""
        _, column = self.source.line_and_column(self.starts[token])
        return column == self.column_of_line(token)

    # Reporting ----------------------------------------------------------------------------------

    def error(
        self,
        code: str,
        message: str,
        span: Span | None = None,
        *,
        labels: tuple[Label, ...] = (),
        help: str | None = None,
    ) -> None:
        """Record a fault at `span` (default: the current token), unless one is recorded there."""
        if self.at == self._silent_at or self._beside_fault():
            return
        self._silent_at = self.at
        place = self.source.place(span or self.span_here())
        self.diagnostics.append(Diagnostic(code, message, place, labels, help))
        if len(self.diagnostics) >= MAX_ERRORS:
            raise TooManyErrors

    def fail(
        self,
        code: str,
        message: str,
        span: Span | None = None,
        *,
        labels: tuple[Label, ...] = (),
        help: str | None = None,
    ) -> NoReturn:
        """Record a fault and give up what is being read."""
        self.error(code, message, span, labels=labels, help=help)
        raise Failure

    def silence_next(self) -> None:
        """Report nothing at the token after the current one: it suffers from a fault of this one."""
        self._silent_at = self.at + 1

    def unexpected(
        self,
        wanted: str,
        words: tuple[str, ...] = (),
        *,
        help: str | None = None,
        labels: tuple[Label, ...] = (),
        apart: bool = False,
    ) -> NoReturn:
        """Fail with what was expected and what was found; `words` would have been right.

        What was found in a later line is not where the fault is: then the place is before it,
        unless what was expected stands `apart` from what is before it.
        """
        found = describe(self.text)
        if help is None and self.kinds[self.at] == NAME:
            meant = suggest(self.text, [word for word in words if word.isalpha()])
            help = meant and f"did you mean `{meant}`?"
        end = self.ends[self.at - 1] if self.at else 0
        if apart or (self.text and "\n" not in self.source.text[end : self.starts[self.at]]):
            self.fail("D0110", f"expected {wanted}, found {found}", labels=labels, help=help)
        message = f"expected {wanted} before {found}"
        self.fail("D0110", message, Span(end, end), labels=labels, help=help)

    def label(self, token: int, text: str) -> Label:
        """A remark at a token."""
        return Label(self.source.place(Span(self.starts[token], self.ends[token])), text)

    def _beside_fault(self) -> bool:
        """Whether a spelling that is not ours was met between the tokens before and after this one."""
        if not self.faults:
            return False
        before = self.starts[self.at - 1] if self.at else 0
        index = bisect_left(self.faults, before)
        after = self.starts[min(self.at + 1, self.last)]
        return index < len(self.faults) and self.faults[index] <= after
