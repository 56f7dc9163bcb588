"""The words and signs of the language, by where they mean something.

Keywords are contextual: a word of OPENERS begins a statement where one may begin and is a name elsewhere.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "AFTER_NAME",
    "EXPRESSION_WORDS",
    "FOLLOWING_WORDS",
    "FOREIGN_LIBRARIES",
    "FOREIGN_WORDS",
    "ITEM_WORDS",
    "MEMBER_WORDS",
    "NEVER_NAMES",
    "OPENERS",
    "STATEMENT_WORDS",
    "TRAIN_WORDS",
    "describe",
    "home",
]

STATEMENT_WORDS: Final = frozenset(
    ["let", "return", "next", "yield", "set", "require", "debug"],
)
MEMBER_WORDS: Final = frozenset(
    ["param", "state", "const", "use", "fn", "export", "require", "names"],
)
ITEM_WORDS: Final = frozenset(
    ["import", "dim", "module", "fn", "export", "const", "let", "train", "names", "limit", "mesh"],
)
TRAIN_WORDS: Final = frozenset(
    [
        "data",
        "loss",
        "metric",
        "optimizer",
        "freeze",
        "eval",
        "batch",
        "accumulate",
        "average",
        "epochs",
        "seed",
        "checkpoint",
        "stop",
        "keep",
        "precision",
        "loss_scale",
        "rate",
    ],
)

OPENERS: Final = STATEMENT_WORDS | MEMBER_WORDS | ITEM_WORDS

FOLLOWING_WORDS: Final = frozenset(["then", "else", "with", "along", "key", "from"])
"""Words that follow a complete expression."""

EXPRESSION_WORDS: Final = FOLLOWING_WORDS | {"and", "or", "in", "for", "on", "limit", "as"}
"""Words that may follow a name."""

# Where a value is missing, `let`, `return` and `fn` tell better than any name what comes next.
NEVER_NAMES: Final = frozenset(["let", "return", "fn"]) | {
    "if", "then", "else", "scan", "while", "for", "in", "and", "or", "not", "true", "false",
}  # fmt: skip
"""Words that are never names."""

AFTER_NAME: Final = {
    "param": (":",),
    "state": (":",),
    "const": ("=", ":"),
    "set": ("=",),
    "next": ("=",),
    "use": ("=",),
    "dim": ("=", ","),
    "limit": ("=",),
    "mesh": ("=",),
    "module": ("(", "{", "from"),
    "train": ("{",),
    "import": ("(",),
}
"""What follows the name that these keywords give."""

FOREIGN_LIBRARIES: Final = frozenset(["torch", "tensorflow", "keras", "jax", "flax"])
"""Libraries of other languages, whose layers are in the library `nn` here."""
FOREIGN_WORDS: Final = {
    "def": "a function is written fn f(x) = ...",
    "function": "a function is written fn f(x) = ...",
    "func": "a function is written fn f(x) = ...",
    "lambda": "functions have names: write fn f(x) = ... and pass f",
    "class": "a layer or network is written module M(...) { ... }",
    "struct": "a layer or network is written module M(...) { ... }",
    "var": "a value is named with let x = ...",
    "val": "a value is named with let x = ...",
    "for": "a loop is an expression: scan x in xs with h = h0 { next h = ... }",
    "repeat": "a loop is an expression: scan x in xs with h = h0 { next h = ... }",
    "elif": "a further choice is written else if c then a else b",
    "assert": 'a condition that must hold is written require c, "why"',
    "print": "a value is printed with debug x",
    "from": "a name is imported with import nn (Linear)",
    "include": 'a file is imported with import "other.dlm" (A)',
    "if": "`if` is an expression: let y = if c then a else b",
    "scan": "`scan` is an expression: let h = scan x in xs with h = h0 { ... }",
    "while": "`while` is an expression: let x = while c with x = x0 { ... }",
    "on": "`on` is an expression: let y = on cuda:0 { ... }",
    "with": "`with` belongs to the scan, while or fn before it",
    "pass": "an empty block needs no word",
    "break": "a loop ends by the condition of its `while`",
    "continue": "a step ends with its block",
}
"""What people write who come from elsewhere, and what to write here."""


def describe(text: str) -> str:
    """How a message calls a token.

    >>> describe("let"), describe("")
    ('`let`', 'the end of the text')
    """
    if not text:
        return "the end of the text"
    return f"`{text}`" if len(text) <= 32 else f"`{text[:28]}...`"


def home(word: str) -> str:
    """Where a keyword may stand.

    >>> home("param"), home("fn")
    ('in a module', 'at file level or in a module')
    """
    places = [
        (ITEM_WORDS, "at file level"),
        (MEMBER_WORDS, "in a module"),
        (STATEMENT_WORDS, "in a block"),
    ]
    return " or ".join(place for words, place in places if word in words)
