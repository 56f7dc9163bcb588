"""From text to tokens: one regular expression, one pass, no exceptions.

A character that begins no token is reported and left out; where another language's spelling has an
obvious meaning (`&&`, `'text'`), it is reported and read as that, so one slip is one error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from dlc.errors import Diagnostic, SourceLocation
from dlc.text.source import MAX_BYTES, Source, Span, too_long

__all__ = [
    "END",
    "MAX_ERRORS",
    "MAX_TOKENS",
    "NAME",
    "NUMBER",
    "OPERATOR",
    "STRING",
    "Comment",
    "Tokens",
    "tokenize",
]

MAX_ERRORS: Final = 50
"""After as many errors the rest of a text is not read."""

MAX_TOKENS: Final = 1_000_000
"""More tokens than this in one text are refused."""

# Kinds of token: the groups of TOKEN, and END after the last.
END, NAME, OPERATOR, NUMBER, STRING, COMMENT, QUOTED, ASSIGNING, FOREIGN, OTHER = range(10)

TOKEN: Final = re.compile(
    r"""[ \t\r\n]*+(?:
    ([A-Za-z_][A-Za-z0-9_]*+)                                           # NAME
  | (\*\*(?!=) | \|> | -> | //(?!=) | \.\. | [<>=!]=
     | [=(){}\[\],:.] | [-+*/%@](?!=) | <(?!<) | >(?!>))                # OPERATOR
  | ([0-9][0-9_]*+(?:\.[0-9][0-9_]*+)?(?:[eE][+-]?[0-9]++)?[A-Za-z0-9_]*+)  # NUMBER
  | ("[^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*+"?)                              # STRING, perhaps not closed
  | (\#[^\n]*+)                                                         # COMMENT
  | ('[^'\\\n]*+(?:\\[^\n][^'\\\n]*+)*+'?)                              # QUOTED
  | ((?:\*\*|//|[-+*/%@])=)                                             # ASSIGNING
  | (&& | \|\| | << | >> | [\x21-\x7e])                                 # FOREIGN
  | ([^\x00-\x7f]++)                                                    # OTHER
    )""",
    re.VERBOSE,
)

# Control characters that no text needs, halves of surrogate pairs, and the marks that reorder a
# line on the screen so that it reads other than it parses.
HIDDEN: Final = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\u202a-\u202e\u2066-\u2069]|\r(?!\n)"
)

# What a foreign operator is read as ("": left out), and the way out.
FOREIGN_OPERATORS: Final = {
    "&&": ("and", "write `and`"),
    "&": ("and", "write `and` for bools, bit_and(a, b) for integers"),
    "||": ("or", "write `or`"),
    "|": ("or", "write `or` for bools, bit_or(a, b) for integers, `|>` to hand a value on"),
    "!": ("not", "write `not`"),
    "~": ("not", "write `not` for bools"),
    "^": ("**", "a power is written `**`, of the bits of integers bit_xor(a, b)"),
    "<<": ("*", "write shift_left(a, b)"),
    ">>": ("//", "write shift_right(a, b)"),
    ";": ("", "a statement ends where the next keyword begins; leave the `;` out"),
    "?": ("", "a choice is written `if c then a else b`"),
}

LOOKALIKES: Final = {
    "×": "*",
    "·": "*",
    "⋅": "*",
    "∗": "*",
    "÷": "/",
    "−": "-",
    "–": "-",
    "—": "-",
    "≤": "<=",
    "≥": ">=",
    "≠": "!=",
    "→": "->",
    "…": "..",
    "∞": "inf",
    "（": "(",
    "）": ")",
    "，": ",",
    "：": ":",
}
SPACES: Final = "\u00a0\u2002\u2003\u2009\u200b\u202f\u3000\ufeff"
QUOTES: Final = "“”„‘’«»"


@dataclass(frozen=True, slots=True)
class Comment:
    """A `#` line. `token` is the index of the token after it.

    It is `alone` if no token is before it in its line; a `##` may stand behind the edition.
    """

    start: int
    text: str
    token: int
    alone: bool

    @property
    def is_doc(self) -> bool:
        """Whether it documents what follows: `##`, but not a rule such as `####`."""
        return self.text.startswith("##") and not self.text.startswith("###")


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a text in parallel lists, the last one END with empty text; comments apart.

    `faults` are the offsets of spellings that are not ours, for each of which there is a problem. A
    text that is too large is `refused`: there is the END only, and the reason.
    """

    kinds: list[int] = field(default_factory=list[int])
    texts: list[str] = field(default_factory=list[str])
    starts: list[int] = field(default_factory=list[int])
    ends: list[int] = field(default_factory=list[int])
    comments: list[Comment] = field(default_factory=list[Comment])
    problems: list[Diagnostic] = field(default_factory=list[Diagnostic])
    faults: list[int] = field(default_factory=list[int])
    refused: bool = False

    def add(self, kind: int, text: str, start: int, end: int) -> None:
        """One more token, read as `text` whatever stands there."""
        self.kinds.append(kind)
        self.texts.append(text)
        self.starts.append(start)
        self.ends.append(end)


@dataclass(slots=True)
class _Slip:
    """A spelling that is not ours, reported at its first place only: it is often a habit."""

    message: str
    place: SourceLocation
    help: str
    last: SourceLocation
    count: int = 1

    def diagnostic(self) -> Diagnostic:
        """The report, with the other place or the number of places."""
        more = ""
        if self.count > 2:
            more = f", here and in {self.count - 1} more places"
        elif self.count == 2:
            same = self.last.line == self.place.line
            more = ", twice in this line" if same else f", here and in line {self.last.line}"
        return Diagnostic("D0101", self.message + more, self.place, help=self.help)


def tokenize(source: Source) -> Tokens:
    """All tokens of `source`; what cannot be read is in `problems` and left out."""
    if len(source.text) > MAX_BYTES:
        return _refused(too_long(source.name))
    tokens = Tokens()
    text = _without_hidden(source, tokens)
    slips: dict[str, _Slip] = {}
    kinds, texts, starts, ends = tokens.kinds, tokens.texts, tokens.starts, tokens.ends
    matches = TOKEN.finditer(text, 1 if text.startswith("\ufeff") else 0)
    for match in islice(matches, MAX_TOKENS):
        kind = match.lastindex
        assert kind is not None
        if kind <= STRING:
            kinds.append(kind)
            texts.append(match[kind])
            start, end = match.span(kind)
            starts.append(start)
            ends.append(end)
        elif kind == COMMENT:
            tokens.comments.append(_comment(text, match.start(kind), match[kind], tokens))
        else:
            _foreign(kind, match[kind], match.start(kind), source, tokens, slips)
            if len(slips) >= MAX_ERRORS:
                break
    if len(kinds) + len(tokens.comments) >= MAX_TOKENS:
        return _refused(_too_many(source))
    end = len(text.rstrip())
    tokens.add(END, "", end, end)
    tokens.problems.extend(slip.diagnostic() for slip in slips.values())
    return tokens


def _without_hidden(source: Source, tokens: Tokens) -> str:
    """The text with each hidden character reported (one error per kind) and blanked."""
    text = source.text
    seen: set[str] = set()
    for match in HIDDEN.finditer(text):
        character = match.group()
        if character in seen:
            continue
        seen.add(character)
        what, help = _describe_hidden(character)
        place = source.place(Span(match.start(), match.end()))
        tokens.problems.append(Diagnostic("D0102", what, place, help=help))
    if not seen:
        return text
    return HIDDEN.sub(lambda match: "\n" if match.group() == "\r" else " ", text)


def _describe_hidden(character: str) -> tuple[str, str]:
    if character == "\0":
        return "a null byte in the text", "this is perhaps not a model text but a binary file"
    if character == "\r":
        return "a carriage return without a line feed", "end lines with \\n or \\r\\n"
    return (
        f"the invisible character U+{ord(character):04X} in the text",
        "remove it; in a string write it as \\u{...}",
    )


def _comment(text: str, start: int, comment: str, tokens: Tokens) -> Comment:
    behind_edition = len(tokens.texts) == 2 and tokens.texts[0] == "dlc" and comment[:2] == "##"
    begins = not tokens.texts or text.rfind("\n", tokens.ends[-1], start) >= 0
    return Comment(start, comment.rstrip(), len(tokens.texts), begins or behind_edition)


def _foreign(
    kind: int, text: str, start: int, source: Source, tokens: Tokens, slips: dict[str, _Slip]
) -> None:
    """Report a spelling that is not ours, and add the token that it stands for, if any."""
    if kind == QUOTED:
        reading, message = f'"{text[1:].rstrip(chr(39))}"', "a string in single quotes"
        help = 'strings are written in double quotes: "..."'
    elif kind == ASSIGNING:
        reading, message = text[:-1], f"`{text}` is not an operator of this language"
        help = f"values do not change: write let y = x {reading} ..."
    elif kind == FOREIGN:
        message = f"`{text}` is not an operator of this language"
        reading, help = FOREIGN_OPERATORS.get(text, ("", "leave it out"))
    else:
        reading, message, help = _other(text)
    if reading:
        tokens.add(_kind_of(reading), reading, start, start + len(text))
    tokens.faults.append(start)
    place = source.place(Span(start, start + len(text)))
    slip = slips.get(message)
    if slip is None:
        slips[message] = _Slip(message, place, help, place)
    else:
        slip.last = place
        slip.count += 1


def _other(text: str) -> tuple[str, str, str]:
    """What to read a run of non-ASCII characters as, what is wrong, and the way out."""
    first = text[0]
    code = f"U+{ord(first):04X}"
    shown = f"`{first}` ({code})" if first.isprintable() else code
    message = f"the character {shown} has no meaning here"
    if first in LOOKALIKES:
        reading = LOOKALIKES[first]
        return reading, message, f"did you mean `{reading}`?"
    if first in SPACES:
        return "", message, "use an ordinary space"
    if first in QUOTES:
        return "", message, 'strings are written in double quotes: "..."'
    if first.isalpha():
        help = "names are made of a-z, A-Z, 0-9 and _; put other letters into strings and comments"
        return "", message, help
    return "", message, "leave it out, or put it into a string or a comment"


def _kind_of(reading: str) -> int:
    if reading.isalpha():
        return NAME
    return STRING if reading.startswith('"') else OPERATOR


def _refused(reason: Diagnostic) -> Tokens:
    return Tokens([END], [""], [0], [0], problems=[reason], refused=True)


def _too_many(source: Source) -> Diagnostic:
    return Diagnostic(
        "D0106",
        f"{source.name} has more than {MAX_TOKENS:,} words, signs and comments",
        help="keep numbers in a weight file and read them with file(...) or npz(...)",
    )
