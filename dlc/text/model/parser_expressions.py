"""Expressions, and the patterns that loops and `let` bind: precedence climbing over flat chains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, NoReturn

from dlc.text.model import ast, literals
from dlc.text.model.lexer import NAME, NUMBER, STRING, Tokens
from dlc.text.model.parser_cursor import NEVER_FOLLOW, VALUE_HINTS, Cursor
from dlc.text.model.words import FOREIGN_WORDS, OPENERS, STATEMENT_WORDS
from dlc.text.source import Source, Span

__all__ = ["LEVELS", "MAX_ITEMS", "NOT_LEVEL", "PIPE", "PRODUCT", "SUM", "ExpressionParser"]

# One level each, loosest first; `not` stands between `and` and the comparisons.
PIPE, OR, AND, NOT_LEVEL, COMPARE, SUM, PRODUCT = range(1, 8)

LEVELS: Final = {
    "|>": PIPE,
    "or": OR,
    "and": AND,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), COMPARE),
    **dict.fromkeys(("+", "-"), SUM),
    **dict.fromkeys(("*", "/", "//", "%", "@"), PRODUCT),
}

MAX_ITEMS: Final = 1 << 16
"""The most items in one list literal."""

# Words at which an operand is not simply a name.
SPECIAL_WORDS: Final = OPENERS | {
    "_", "true", "false", "not", "if", "scan", "while", "on", "lambda",
    "then", "else", "for", "in", "and", "or",
}  # fmt: skip

# Signs that an operand cannot begin with but that tell what was meant.
OPERAND_HINTS: Final = {
    "+": "leave the `+` out",
    "*": "there is no `*` in front of a value; give the arguments one by one",
    "**": "there is no `**` in front of a value; give the arguments one by one",
    "=": "two values are compared with `==`",
    "..": "ranges are written after `in` and in `dim`; x[..] and f32[..] mean any number of axes",
    ".": "a number begins with a digit: 0.5",
    ":": "a type or a slice is not allowed here",
    "->": "a result type follows the parameters of a function",
}


class ExpressionParser(Cursor, ABC):
    """Reads expressions and patterns.

    `parens` are the spans that stood in parentheses of their own, `devices` what stands behind `on`.
    """

    def __init__(self, source: Source, tokens: Tokens) -> None:
        super().__init__(source, tokens)
        self.parens: set[Span] = set()
        self.devices: list[ast.Device] = []
        self._place = -1
        """The token behind the last `at=`: a list that begins there may be a place."""

    @abstractmethod
    def block(self) -> ast.Block:
        """Statements in braces."""

    def expression(self) -> ast.Expr:
        """Any expression."""
        return self.operators(PIPE)

    def operators(self, level: int) -> ast.Expr:
        """An expression whose operators bind at least as tightly as `level`."""
        outer = self.reach
        self.reach = self.depth
        start = self.starts[self.at]
        left = self.operand(level)
        precedence = LEVELS.get(self.text, 0)
        while precedence >= level:
            left = self._chain(start, left, precedence)
            precedence = LEVELS.get(self.text, 0)
        if outer > self.reach:
            self.reach = outer
        return left

    def _chain(self, start: int, first: ast.Expr, level: int) -> ast.Expr:
        """`first` and the operators of `level` that follow it, as one flat node."""
        if level == COMPARE:
            return self._compare(start, first)
        self.reach_to(self.reach + 1)
        self.deeper()
        terms: list[ast.Term] = []
        stages: list[ast.Stage] = []
        while LEVELS.get(self.text) == level:
            op, op_span = self.text, self.span_here()
            self.advance()
            operand = self.operators(level + 1)
            if level == PIPE:
                stages.append(ast.Stage(op_span, operand))
            else:
                terms.append(ast.Term(op_span, op, operand))
        self.depth -= 1
        span = self.span_from(start)
        if level == PIPE:
            return ast.Pipe(span, first, tuple(stages))
        return ast.Binary(span, first, tuple(terms))

    def _compare(self, start: int, left: ast.Expr) -> ast.Expr:
        self.reach_to(self.reach + 1)
        self.deeper()
        op, op_span = self.text, self.span_here()
        self.advance()
        right = self.operators(SUM)
        self.depth -= 1
        comparison = ast.Compare(self.span_from(start), op, op_span, left, right)
        while LEVELS.get(self.text) == COMPARE:
            help = "write a < b and b < c"
            self.error("D0115", "comparisons do not chain", help=help)
            self.advance()
            self.operators(SUM)
        return comparison

    # Operands -----------------------------------------------------------------------------------

    def operand(self, level: int = PRODUCT + 1) -> ast.Expr:
        """A value with its signs, calls, indices and power."""
        text = self.text
        start = self.starts[self.at]
        if text == "-":
            return self._negative(start)
        if text == "not":
            return self._not(start, level)
        value = self._primary(start)
        if self.text in ("(", "[", "."):
            value = self._suffixes(start, value)
        if self.text == "**":
            value = self._power(start, value)
        return value

    def _negative(self, start: int) -> ast.Expr:
        self.deeper()
        self.advance()
        operand = self.operand()
        self.depth -= 1
        return ast.Unary(self.span_from(start), "-", operand)

    def _not(self, start: int, level: int) -> ast.Expr:
        if level > NOT_LEVEL:
            help = "put parentheses around it: (not x)"
            self.error("D0110", "`not` binds more loosely than the operator before it", help=help)
        self.deeper()
        self.advance()
        operand = self.operators(NOT_LEVEL)
        self.depth -= 1
        return ast.Unary(self.span_from(start), "not", operand)

    def _power(self, start: int, base: ast.Expr) -> ast.Expr:
        self.reach_to(self.reach + 1)
        self.deeper()
        op_span = self.span_here()
        self.advance()
        exponent = self.operand()
        self.depth -= 1
        term = ast.Term(op_span, "**", exponent)
        return ast.Binary(self.span_from(start), base, (term,))

    def _primary(self, start: int) -> ast.Expr:
        text, kind = self.text, self.kinds[self.at]
        if kind == NAME:
            if text in SPECIAL_WORDS:
                return self._word(start)
            span = Span(start, self.ends[self.at])
            self.advance()
            return ast.Name(span, text)
        if kind == NUMBER:
            return self.number()
        if kind == STRING:
            return self.string()
        if text == "(":
            return self._group(start)
        if text == "[":
            return self._list(start)
        if text == "{":
            return self.block()
        return self._no_operand()

    def _no_operand(self) -> NoReturn:
        self.unexpected("an expression", help=OPERAND_HINTS.get(self.text))

    def _word(self, start: int) -> ast.Expr:
        """An operand that begins with a word of the language, or a name that looks like one."""
        text, span = self.text, self.span_here()
        if text == "if":
            return self._if(start)
        if text == "scan":
            return self._scan(start)
        if text == "while":
            return self._while(start)
        if text == "on" and self._device_follows():
            return self._on(start)
        follower = self.kinds[self.at + 1]
        if text == "lambda" and follower == NAME and self.texts[self.at + 2] in (":", ","):
            self.unexpected("an expression", help=FOREIGN_WORDS["lambda"])
        if text in ("true", "false"):
            self.advance()
            return ast.Bool(span, text == "true")
        if self.stands_for_statement():
            self._no_operand()
        self.advance()
        return ast.Placeholder(span) if text == "_" else ast.Name(span, text)

    def number(self) -> ast.Number:
        """A number as written, without sign."""
        text, span = self.text, self.span_here()
        value: int | float = 0
        try:
            value = literals.number(text)
        except literals.LiteralError as fault:
            self._literal_error(fault)
        self.advance()
        return ast.Number(span, value, text)

    def string(self) -> ast.String:
        """A string literal."""
        span = self.span_here()
        value = ""
        try:
            value = literals.string(self.text)
        except literals.LiteralError as fault:
            self._literal_error(fault)
        self.advance()
        return ast.String(span, value)

    def _literal_error(self, fault: literals.LiteralError) -> None:
        """Report it and go on: a literal is a literal. One without end has swallowed what follows."""
        start, end = self.span_here()
        if fault.span:
            start, end = start + fault.span[0], start + fault.span[1]
        self.error(fault.code, fault.message, Span(start, end), help=fault.help)
        if fault.code == "D0104" and not fault.span:
            self.silence_next()

    # Brackets -----------------------------------------------------------------------------------

    def _group(self, start: int) -> ast.Expr:
        items, comma = self.listed(")", self.argument)
        if not items:
            span = self.span_from(start)
            self.fail("D0110", "nothing between the parentheses", span, help="put a value there")
        if len(items) == 1 and not comma and items[0].name is None:
            inner = items[0].value
            self.parens.add(inner.span)
            return inner
        return ast.Tuple(self.span_from(start), tuple(items))

    def _list(self, start: int) -> ast.Expr:
        if self.peek() == "for":
            return self._comprehension(start)
        items, _ = self.listed("]", self._index_item if self.at == self._place else self.expression)
        span = self.span_from(start)
        if len(items) > MAX_ITEMS:
            help = "keep numbers in a weight file and read them with file(...) or npz(...)"
            self.error("D0106", f"a list of {len(items):,} items", span, help=help)
        values = [i for i in items if not isinstance(i, ast.Slice | ast.NewAxis | ast.Dots)]
        if len(values) < len(items):
            return ast.IndexList(span, tuple(items))
        return ast.List(span, tuple(values))

    def _comprehension(self, start: int) -> ast.Expr:
        opener = self.open()
        self.advance()
        pattern = self.pattern()
        self.expect("in")
        source = self.source_expression()
        self.expect(":", "`:` and what to make of each")
        body = self.expression()
        self.close(opener)
        return ast.Comprehension(self.span_from(start), pattern, source, body)

    def argument(self) -> ast.Argument:
        """`value` or `name = value`; behind `at=` a list may be a place, written like an index."""
        start = self.starts[self.at]
        name: str | None = None
        if self.peek() == "=" and self.kinds[self.at] == NAME:
            name = self.text
            self.advance()
            self.advance()
            if name == "at":
                self._place = self.at
        value = self.expression()
        return ast.Argument(self.span_from(start), name, value)

    def _suffixes(self, start: int, value: ast.Expr) -> ast.Expr:
        """Calls, indices and attributes of `value`."""
        while True:
            match self.text:
                case "(":
                    self.reach_to(self.reach + 1)
                    arguments = self._arguments()
                    value = ast.Call(self.span_from(start), value, arguments)
                case "[":
                    self.reach_to(self.reach + 1)
                    items, _ = self.listed("]", self._index_item)
                    value = ast.Index(self.span_from(start), value, tuple(items))
                case ".":
                    self.reach_to(self.reach + 1)
                    value = self._attribute(start, value)
                case _:
                    return value

    def _arguments(self) -> tuple[ast.Argument, ...]:
        arguments, _ = self.listed(")", self.argument)
        named = False
        for argument in arguments:
            if named and argument.name is None:
                message = "a value without a name after one with a name"
                self.error("D0116", message, argument.span, help="give it a name, or put it first")
            named = named or argument.name not in (None, "at")
        return tuple(arguments)

    def _index_item(self) -> ast.IndexItem:
        start = self.starts[self.at]
        if self.text == "..":
            self.advance()
            return ast.Dots(self.span_from(start))
        if self.text == "new" and self.peek() in (",", "]"):
            self.advance()
            return ast.NewAxis(self.span_from(start))
        first = None if self.text == ":" else self.expression()
        if self.text == "..":
            self.unexpected("`,` or `]`", help="a slice is written a:b")
        if first is not None and self.text != ":":
            return first
        self.advance()
        stop = self._slice_part()
        step = self._slice_part() if self.accept(":") else None
        return ast.Slice(self.span_from(start), first, stop, step)

    def _slice_part(self) -> ast.Expr | None:
        return None if self.text in (":", ",", "]") else self.expression()

    def _attribute(self, start: int, value: ast.Expr) -> ast.Expr:
        self.advance()
        text, span = self.text, self.span_here()
        kind = self.kinds[self.at]
        if kind == NUMBER and text.replace(".", "").isdigit():
            return self._numbered(start, value)
        if kind != NAME:
            number = isinstance(value, ast.Number)
            help = f"write {value.text}.0" if number else None
            self.unexpected("a name after `.`", help=help)
        self.advance()
        return ast.Attribute(self.span_from(start), text, span, value)

    def _numbered(self, start: int, value: ast.Expr) -> ast.Expr:
        """`features.0`, and `features.0.1`, whose `0.1` the lexer takes for a float."""
        at = self.starts[self.at]
        for part in self.text.split("."):
            span = Span(at, at + len(part))
            value = ast.Attribute(Span(start, span.end), part, span, value)
            at = span.end + 1
        self.advance()
        return value

    # Control flow -------------------------------------------------------------------------------

    def _if(self, start: int) -> ast.Expr:
        self.deeper()
        self.advance()
        condition = self.expression()
        help = "a choice is written if c then a else b" if self.text in ("{", ":") else None
        self.expect("then", help=help or VALUE_HINTS.get(self.text))
        chosen = self.expression()
        help = None if self._like_else() else "`if` gives a value: say which one otherwise"
        self.expect("else", help=help)
        otherwise = self.expression()
        self.depth -= 1
        return ast.If(self.span_from(start), condition, chosen, otherwise)

    def _like_else(self) -> bool:
        return self.kinds[self.at] == NAME and not self.opens_statement(self.at)

    def _scan(self, start: int) -> ast.Expr:
        self.deeper()
        self.advance()
        pattern = self.pattern()
        self.expect("in")
        reverse = self._accept_reverse()
        source = self.source_expression()
        along = self.operators(SUM) if self.accept("along") else None
        carries = self._carries()
        if self.text != "{":
            words = (",",) if carries else ("with",) if along else ("along", "with")
            self.unexpected(" or ".join(f"`{word}`" for word in (*words, "{")), words)
        body = self.block()
        self.depth -= 1
        span = self.span_from(start)
        return ast.Scan(span, pattern, source, along, reverse, carries, body)

    def _accept_reverse(self) -> bool:
        """`reverse` before a source; a name if nothing follows that a source may begin with."""
        follower = self.peek()
        kind = self.kinds[min(self.at + 1, self.last)]
        begins = follower in ("(", "[") or kind in (NAME, NUMBER, STRING)
        ends = follower in ("along", "with") or follower in LEVELS
        return begins and not ends and self.accept("reverse")

    def source_expression(self) -> ast.Expr:
        """What a loop runs over: a value or `start..stop`."""
        start = self.starts[self.at]
        first = self.expression()
        if not self.accept(".."):
            return first
        stop = self.operators(SUM)
        return ast.Range(self.span_from(start), first, stop)

    def _while(self, start: int) -> ast.Expr:
        self.deeper()
        self.advance()
        condition = self.expression()
        carries = self._carries()
        limit = self.operators(SUM) if self.accept("limit") else None
        if self.text != "{":
            words = () if limit else ("limit",) if carries else ("with", "limit")
            self.unexpected(" or ".join(f"`{word}`" for word in (*words, "{")), words)
        body = self.block()
        self.depth -= 1
        return ast.While(self.span_from(start), condition, carries, limit, body)

    def _carries(self) -> tuple[ast.Carry, ...]:
        carries: list[ast.Carry] = []
        more = self.accept("with")
        while more:
            start = self.starts[self.at]
            name, span = self.name("what is carried from step to step")
            self.expect("=", f"`=` and the first value of `{name}`")
            value = self.expression()
            carries.append(ast.Carry(self.span_from(start), name, span, value))
            more = self.accept(",")
        return tuple(carries)

    def _device_follows(self) -> bool:
        if self.kinds[self.at + 1] != NAME or self.peek() in NEVER_FOLLOW:
            return False
        follower = self.texts[self.at + 2]
        return follower in ("{", ":") or (self.peek() == ast.STAGE and follower.isdigit())

    def _on(self, start: int) -> ast.Expr:
        self.deeper()
        device = self.device()
        body = self.block() if self._statements_follow() else self._braced()
        self.depth -= 1
        return ast.On(self.span_from(start), device, body)

    def _statements_follow(self) -> bool:
        """Whether the braces from here hold statements rather than one expression."""
        return self.peek() in STATEMENT_WORDS or self.peek() == "}"

    def _braced(self) -> ast.Expr:
        if self.text != "{":
            self.unexpected("`{`", ("{",))
        opener = self.open()
        value = self.expression()
        self.close(opener)
        return value

    def device(self) -> ast.Device:
        """`on cuda:0` or `on stage 0`, from the `on`."""
        self.advance()
        start = self.starts[self.at]
        kind, _ = self.name("a device")
        index: int | None = None
        if kind == ast.STAGE:
            if not self.text.isdigit():
                self.unexpected("the number of a stage")
            index = int(self.number().value)
        elif self.accept(":"):
            if not self.text.isdigit():
                self.unexpected("the number of a device")
            index = int(self.number().value)
        device = ast.Device(self.span_from(start), kind, index)
        self.devices.append(device)
        return device

    # Patterns -----------------------------------------------------------------------------------

    def pattern(self) -> ast.Pattern:
        """A name, `_`, or a tuple of patterns, in which `..` may stand."""
        start = self.starts[self.at]
        match self.text:
            case "(":
                return self._tuple_pattern(start)
            case "_":
                self.advance()
                return ast.IgnorePattern(self.span_from(start))
            case _:
                name, span = self.name("a value")
                return ast.NamePattern(span, name)

    def _tuple_pattern(self, start: int) -> ast.Pattern:
        items, comma = self.listed(")", self._pattern_item)
        if len(items) == 1 and not comma and not isinstance(items[0], ast.RestPattern):
            return items[0]
        span = self.span_from(start)
        if not items:
            self.fail("D0110", "nothing between the parentheses", span, help="put a name there")
        rests = [item for item in items if isinstance(item, ast.RestPattern)]
        if len(rests) > 1:
            message = "more than one `..` in a pattern"
            self.error("D0110", message, rests[1].span, help="skip single values with `_`")
        return ast.TuplePattern(span, tuple(items))

    def _pattern_item(self) -> ast.Pattern:
        if self.text == "..":
            span = self.span_here()
            self.advance()
            return ast.RestPattern(span)
        return self.pattern()
