"""IR from text in MLIR's generic syntax, as `dlc.text.ir.printer` prints it.

Operations are made through the registry, so the dialects concerned must have been imported. Each is
checked against its declaration and its own `infer`, and the types written in the text against those.
An operation that is wrong is left out, and what uses its results is not checked, so that one run
reports many mistakes; wrong punctuation ends the run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from dlc.errors import Diagnostic, Label, ModelError
from dlc.errors.suggest import did_you_mean
from dlc.ir.attributes import Attribute
from dlc.ir.core import OPS, Block, Op, Value
from dlc.ir.location import Location
from dlc.ir.signature import WRONG_PARTS, signature_of
from dlc.ir.types import Type
from dlc.text.ir.attributes import Malformed, Reader
from dlc.text.ir.lexer import read_tokens

__all__ = ["Head", "Open", "Parser", "parse_module", "parse_op", "parse_ops"]

MAX_NESTING = 200
"""How deep regions may be nested."""
MAX_RESULTS = 10_000
"""How many results an operation may have."""
MANY_NAMES = 500
LONG_NAME = 100
"""From where on looking for a name that is alike would take too long."""
MAX_ERRORS = 20
"""How many mistakes one run reports."""

OpKind = TypeVar("OpKind", bound=Op)


def parse_module(text: str, file: str) -> Op:
    """The `builtin.module` in a text; `file` is what diagnostics call the text.

    Operations without `loc(...)` are located in the text. Raises ModelError with all that was found.
    """
    return parse_op(text, file, OPS["builtin.module"])


def parse_ops(text: str, file: str) -> list[Op]:
    """The operations of a text, which follow each other: a module, or some that would be in one."""
    return Parser(text, file).parse_all()


def parse_op(text: str, file: str, kind: type[OpKind]) -> OpKind:
    """The one operation in a text, which must be of this kind, such as `Module` or `Func`."""
    parser = Parser(text, file)
    op = parser.parse()
    if not isinstance(op, kind):
        message = f"the text is the operation {op.name}, expected {kind.name or kind.__name__}"
        raise ModelError([Diagnostic("D0161", message, op.location.place)], sources={file: text})
    return op


@dataclass(slots=True)
class Head:
    """The part of an operation before its regions."""

    names: list[tuple[str, int]]
    """The names of its results, each with its token."""
    start: int
    """The token that is its name."""
    kind: type[Op] | None
    operands: list[Value | None]
    """None for one that is wrong, which was reported already."""
    uses: int
    """The first token that is an operand."""
    attributes: dict[str, Attribute]


@dataclass(slots=True)
class Open:
    """An operation whose regions are being read."""

    head: Head
    outer: tuple[dict[str, Value | None], dict[str, int]] | None
    """The names around it, if it is isolated."""
    done: list[Block] = field(default_factory=list[Block])
    block: Block = field(default_factory=Block)
    """The region that is open."""
    local: list[str] = field(default_factory=list[str])
    """The names defined in it."""
    wrong: bool = False
    """Whether a mistake was reported in a region."""


class Parser:
    """Reads operations; `ir_short` overrides how their parts are punctuated."""

    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._text = text
        self._where = read_tokens(text, file)
        self._tokens = self._where.texts
        self._read = Reader(self._tokens)
        self._at = 0
        self._kinds = {f'"{name}"': kind for name, kind in OPS.items()}
        self._values: dict[str, Value | None] = {}
        self._defined: dict[str, int] = {}
        self._open: list[Open] = []
        self._errors: list[Diagnostic] = []
        self._roots: list[Op] = []

    def parse(self) -> Op:
        """The operation that the text is."""
        (op,) = self._parsed(only=True)
        return op

    def parse_all(self) -> list[Op]:
        """The operations that the text is."""
        return self._parsed(only=False)

    def _parsed(self, *, only: bool) -> list[Op]:
        """One operation, or all that follow each other."""
        try:
            self._operation()
            while self._tokens[self._at]:
                if only:
                    self._read.unexpected(self._at, "the end of the text after one operation")
                self._operation()
        except Malformed as error:
            self._report(error.index, error.message, error.code, help=error.help)
        if self._errors:
            raise ModelError(self._errors, sources={self._file: self._text})
        return self._roots

    def _operation(self) -> None:
        """One operation with all that is in it, without recursion."""
        tokens = self._tokens
        while True:
            if self._open and tokens[self._at] == "}":
                self._leave(self._open[-1])
            else:
                head = self._head()
                if self._has_region(head):
                    self._enter(self._opened(head))
                else:
                    self._finish(head)
            if not self._open:
                return

    # Up to the regions.

    def _head(self) -> Head:
        """`%a, %b = "dialect.operation"(%x, %y) <{...}>`."""
        tokens = self._tokens
        names, at = self._result_names()
        start = at
        kind = self._kinds.get(tokens[at]) or self._unknown(at)
        at = self._read.expect(at + 1, "(")
        head = Head(names, start, kind, [], at, {})
        if tokens[at] == ")":
            at += 1
        else:
            at = self._operands(at, head.operands)
        if tokens[at] == "<{":
            at = self._read.attributes(at + 1, "}>", head.attributes)
        self._at = at
        return head

    def _result_names(self) -> tuple[list[tuple[str, int]], int]:
        """`%a, %b =`, if the operation has results, and the index after it."""
        tokens = self._tokens
        at = self._at
        names: list[tuple[str, int]] = []
        while tokens[at][:1] == "%":
            if tokens[at + 1] == ":":
                count = self._read.count(at + 2)
                names += [(f"{tokens[at]}#{index}", at) for index in range(min(count, MAX_RESULTS))]
                at += 2
            else:
                names.append((tokens[at], at))
            at += 2
            if tokens[at - 1] == "=":
                break
            if tokens[at - 1] != "," or tokens[at][:1] != "%":
                self._read.unexpected(at - 1, "'=' after the names of the results")
        return names, at

    def _unknown(self, at: int) -> None:
        """Report an operation that nobody declares; what follows it is still read."""
        token = self._tokens[at]
        if token[:1] != '"':
            in_words = token in OPS
            self._read.unexpected(
                at, f'the operation in quotes, "{token}"' if in_words else "an operation"
            )
        name = self._read.string(at)
        self._report(at, f"there is no operation {name}", "D0152", help=_meant(name, OPS))

    def _operands(self, at: int, operands: list[Value | None]) -> int:
        tokens = self._tokens
        while True:
            operands.append(self._operand(at))
            at += 2
            if tokens[at - 1] == ")":
                return at
            if tokens[at - 1] != ",":
                self._read.unexpected(at - 1, "',' or ')'")

    def _operand(self, at: int) -> Value | None:
        """The value that a token names; None, with a report, where there is none."""
        token = self._tokens[at]
        if token in self._values:
            return self._values[token]
        if token[:1] != "%":
            self._read.unexpected(at, "an operand, such as %x")
        self._undefined(at)
        return None

    def _undefined(self, at: int) -> None:
        name = self._tokens[at]
        for around in reversed(self._open):
            if around.outer is not None and name in around.outer[0]:
                assert around.head.kind is not None
                owner = around.head.kind.name
                self._report(
                    at,
                    f"{name} is defined outside of {owner}, which uses no values around it",
                    "D0153",
                    labels=(Label(self._where.place(around.outer[1][name]), "defined here"),),
                )
                return
        candidates = self._values if len(self._values) < MANY_NAMES else ()
        self._report(
            at, f"{name} is used, but not defined before", "D0153", help=_meant(name, candidates)
        )

    # Regions.

    def _has_region(self, head: Head) -> bool:
        """Whether regions follow; `(` before the first is left behind."""
        opens = self._tokens[self._at] == "("
        self._at += opens
        return opens

    def _has_another_region(self, owner: Open) -> bool:
        """Whether another region follows; `,` before it, or `)` after all, is left behind."""
        if self._tokens[self._at] == ",":
            self._at += 1
            return True
        self._at = self._read.expect(self._at, ")")
        return False

    def _opened(self, head: Head) -> Open:
        """Begin with the regions of an operation."""
        if len(self._open) == MAX_NESTING:
            raise Malformed(self._at, f"regions are nested more than {MAX_NESTING} deep", "D0150")
        outer = None
        if head.kind is not None and head.kind.isolated:
            outer = self._values, self._defined
            self._values, self._defined = {}, {}
        self._open.append(Open(head, outer))
        return self._open[-1]

    def _enter(self, owner: Open) -> None:
        """`{ ^bb0(%x: type):` and open the block."""
        tokens = self._tokens
        at = self._read.expect(self._at, "{")
        owner.block = Block()
        if tokens[at][:1] == "^":
            at += 1
            if tokens[at] == "(":
                at = self._arguments(at + 1, owner.block)
            at = self._read.expect(at, ":")
        self._at = at

    def _arguments(self, at: int, block: Block) -> int:
        tokens = self._tokens
        while tokens[at] != ")":
            name = at
            if tokens[at][:1] != "%":
                self._read.unexpected(at, "an argument, such as %x")
            type, at = self._read.type(self._read.expect(at + 1, ":"))
            self._define(tokens[name], name, block.add_argument(type))
            if tokens[at] == ",":
                at += 1
            elif tokens[at] != ")":
                self._read.unexpected(at, "',' or ')'")
        return at + 1

    def _leave(self, owner: Open) -> None:
        """`}`: close the block; then `, {` opens the next one, or `)` ends them."""
        self._check_end(owner)
        owner.done.append(owner.block)
        for name in owner.local:
            del self._values[name], self._defined[name]
        owner.local.clear()
        self._at += 1
        if self._has_another_region(owner):
            self._enter(owner)
            return
        self._open.pop()
        if owner.outer is not None:
            self._values, self._defined = owner.outer
        self._finish(owner.head, owner)

    def _check_end(self, owner: Open) -> None:
        kind, last = owner.head.kind, owner.block.last
        if kind is None or kind.symbol_table or owner.wrong:
            return
        if last is None or not last.terminator:
            message = f"the region of {kind.name} does not end with an operation that may end one"
            self._report(self._at, message, "D0160")

    def _define(self, name: str, at: int, value: Value | None) -> None:
        """Give a name to a value, or to one that is wrong."""
        if name in self._defined:
            first = self._where.place(self._defined[name])
            self._report(
                at, f"{name} is defined twice", "D0154", labels=(Label(first, "first here"),)
            )
            return
        self._values[name] = value
        self._defined[name] = at
        if self._open:
            self._open[-1].local.append(name)
        if value is not None:
            called = name[1:].partition("#")[0]
            value.name = None if called.isdecimal() else called

    # After the regions.

    def _finish(self, head: Head, regions: Open | None = None) -> None:
        """`{...} : (types) -> types loc(...)`, then make the operation and place it."""
        tokens = self._tokens
        read = self._read
        at = self._at
        if tokens[at] == "{":
            at = read.attributes(at + 1, "}", head.attributes)
        types_at = at + 1
        type, at = read.function_type(read.expect(at, ":"))
        if tokens[at] == "loc":
            location, at = read.location(read.expect(at + 1, "("))
            at = read.expect(at, ")")
        else:
            location = self._where.location(head.start)
        self._at = at
        op = None
        if self._fit_operands(head, type.inputs, types_at) and not (regions and regions.wrong):
            op = self._made(head, regions.done if regions else (), location)
        if op is not None and not self._fit_results(head, op, type.results):
            op = None
        self._place(head, op)

    def _place(self, head: Head, op: Op | None) -> None:
        """Put the operation, unless it is wrong, into the open block and name its results."""
        if op is None:
            for name, at in head.names:
                self._define(name, at, None)
            return
        for (name, at), result in zip(head.names, op.results, strict=False):
            self._define(name, at, result)
        if not self._open:
            self._roots.append(op)
            return
        block = self._open[-1].block
        if block.last is not None and block.last.terminator:
            self._report(
                head.start, f"{op.name} follows {block.last.name}, which ends the block", "D0160"
            )
            return
        block.append(op)

    def _made(self, head: Head, regions: Sequence[Block], location: Location) -> Op | None:
        """The operation; None, with a report, where it cannot be made."""
        kind = head.kind
        if kind is None:
            return None
        operands = tuple([value for value in head.operands if value is not None])
        signature = signature_of(kind)
        attributes = signature.ordered(head.attributes)
        misfits = signature.misfits(len(operands), len(regions), attributes)
        for misfit in misfits:
            self._report(head.start, f"{kind.name} {misfit}", "D0158")
        if misfits:
            return None
        op = object.__new__(kind)
        try:
            Op.__init__(op, operands, attributes, tuple(regions), location)
        except ModelError as error:
            self._refused(head, error.diagnostics, location)
            return None
        except WRONG_PARTS as error:
            # `infer` may rely on what its constructor was given; a text can hold anything.
            reason = str(error) or type(error).__name__
            message = f"{kind.name} cannot be made of these parts: {reason}"
            self._report(head.start, message, "D0159")
            return None
        return op

    def _fit_operands(self, head: Head, written: tuple[Type, ...], types_at: int) -> bool:
        """Whether all operands are right and of the types in the text; what is not, is reported."""
        operands = head.operands
        if None in operands:
            return False
        if len(written) != len(operands):
            message = f"{len(operands)} operands, but {len(written)} types for them are written"
            self._report(types_at, message, "D0155")
            return False
        right = True
        for index, value in enumerate(operands):
            if value is not None and value.type is not written[index]:
                self._wrong_type(head.uses + 2 * index, value.type, written[index])
                right = False
        return right

    def _wrong_type(self, at: int, type: Type, written: Type) -> None:
        name = self._tokens[at]
        self._report(
            at,
            f"{name} is {type}, used here as {written}",
            "D0155",
            labels=(Label(self._where.place(self._defined[name]), "defined here"),),
        )

    def _fit_results(self, head: Head, op: Op, written: tuple[Type, ...]) -> bool:
        """Whether the results are of the types in the text, and as many as have names."""
        inferred = tuple([result.type for result in op.results])
        if inferred != written:
            self._report(
                head.start,
                f"{op.name} gives {_types_text(inferred)}, the text says {_types_text(written)}",
                "D0155",
            )
        elif head.names and len(head.names) != len(inferred):
            self._report(
                head.names[0][1],
                f"{len(head.names)} names for the {len(inferred)} results of {op.name}",
                "D0159",
            )
        else:
            return True
        return False

    def _refused(self, head: Head, diagnostics: tuple[Diagnostic, ...], location: Location) -> None:
        """Report what `infer` says, at the place in this text."""
        place = self._where.place(head.start)
        origin = location.place
        labels: tuple[Label, ...] = ()
        if origin is not None and origin.file != self._file:
            labels = (Label(origin, "it comes from here"),)
        for diagnostic in diagnostics:
            moved = diagnostic.place is None or diagnostic.place == origin
            self._add(replace(diagnostic, place=place, labels=labels) if moved else diagnostic)

    def _report(
        self,
        index: int,
        message: str,
        code: str,
        *,
        help: str | None = None,
        labels: tuple[Label, ...] = (),
    ) -> None:
        """Note a mistake at a token."""
        self._add(Diagnostic(code, message, self._where.place(index), labels, help))

    def _add(self, diagnostic: Diagnostic) -> None:
        self._errors.append(diagnostic)
        for around in self._open:
            around.wrong = True
        if len(self._errors) >= MAX_ERRORS:
            raise ModelError(self._errors, sources={self._file: self._text})


def _meant(name: str, candidates: Collection[str]) -> str | None:
    return did_you_mean(name, candidates) if len(name) < LONG_NAME else None


def _types_text(types: tuple[Type, ...]) -> str:
    return f"({', '.join(map(str, types))})" if len(types) != 1 else str(types[0])
