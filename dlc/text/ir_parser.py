"""IR from text in MLIR's generic syntax; `ir_printer` says how it looks.

Operations are made through the registry, so the dialects concerned must have been imported. Each is
checked against its declaration and its own `infer`, and the types written in the text against those.
An operation that is wrong is left out, and what uses its results is not checked, so that one run
reports many mistakes; wrong punctuation ends the run.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import TypeVar

from dlc.errors import Diagnostic, Label, ModelError
from dlc.ir.attributes import Attribute
from dlc.ir.core import OPS, Block, Op, Value
from dlc.ir.location import FileLocation, Location
from dlc.ir.signature import WRONG_PARTS, signature_of
from dlc.ir.types import Type
from dlc.text.ir_attributes import Malformed, Reader
from dlc.text.ir_lexer import read_tokens
from dlc.text.suggest import suggest

__all__ = ["parse_module", "parse_op"]

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


def parse_op(text: str, file: str, kind: type[OpKind]) -> OpKind:
    """The one operation in a text, which must be of this kind, such as `Module` or `Func`."""
    parser = _Parser(text, file)
    op = parser.parse()
    if not isinstance(op, kind):
        message = f"the text is the operation {op.name}, expected {kind.name or kind.__name__}"
        raise ModelError([Diagnostic("D0161", message, op.location.place)], sources={file: text})
    return op


@dataclass(slots=True)
class _Pending:
    """An operation of which a part has been read; its regions may still be open."""

    names: list[tuple[str, int]]
    """The names of its results, each with its token."""
    start: int
    """The token that is its name."""
    kind: type[Op] | None
    operands: list[Value | None]
    """None for one that is wrong, which was reported already."""
    uses: int
    """The first token that is an operand."""
    attributes: dict[str, Attribute] = field(default_factory=dict[str, Attribute])
    regions: list[Block] = field(default_factory=list[Block])
    block: Block = field(default_factory=Block)
    """The region that is open."""
    local: list[str] = field(default_factory=list[str])
    """The names defined in it."""
    outer: tuple[dict[str, Value | None], dict[str, int]] | None = None
    """The names around an isolated operation while its regions are open."""
    wrong: bool = False
    """Whether a mistake was reported in it."""


class _Parser:
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
        self._open: list[_Pending] = []
        self._errors: list[Diagnostic] = []
        self._root: Op | None = None

    def parse(self) -> Op:
        """The operation that the text is."""
        try:
            self._operation()
            if self._tokens[self._at]:
                self._read.unexpected(self._at, "the end of the text after one operation")
        except Malformed as error:
            self._report(error.index, error.message, error.code, help=error.help)
        if self._errors:
            raise ModelError(self._errors, sources={self._file: self._text})
        assert self._root is not None
        return self._root

    def _operation(self) -> None:
        """One operation with all that is in it, without recursion."""
        tokens = self._tokens
        while True:
            if self._open and tokens[self._at] == "}":
                pending = self._open[-1]
                self._leave(pending)
                if tokens[self._at] == ",":
                    self._at += 1
                    self._enter(pending)
                    continue
                self._at = self._read.expect(self._at, ")")
                self._open.pop()
                if pending.outer is not None:
                    self._values, self._defined = pending.outer
                self._finish(pending)
            else:
                pending = self._begin()
                if tokens[self._at] == "(":
                    self._at += 1
                    self._isolate(pending)
                    self._open.append(pending)
                    self._enter(pending)
                    continue
                self._finish(pending)
            if not self._open:
                return

    # Up to the regions.

    def _begin(self) -> _Pending:
        """`%a, %b = "dialect.operation"(%x, %y) <{...}>`."""
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
        start = at
        kind = self._kinds.get(tokens[at]) or self._unknown(at)
        at = self._read.expect(at + 1, "(")
        pending = _Pending(names, start, kind, [], at)
        if tokens[at] == ")":
            at += 1
        else:
            at = self._operands(at, pending)
        if tokens[at] == "<{":
            at = self._read.attributes(at + 1, "}>", pending.attributes)
        self._at = at
        return pending

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

    def _operands(self, at: int, pending: _Pending) -> int:
        tokens = self._tokens
        operands = pending.operands
        values = self._values
        while True:
            token = tokens[at]
            if token in values:
                operands.append(values[token])
            elif token[:1] == "%":
                self._undefined(at)
                operands.append(None)
            else:
                self._read.unexpected(at, "an operand, such as %x")
            at += 2
            if tokens[at - 1] == ")":
                return at
            if tokens[at - 1] != ",":
                self._read.unexpected(at - 1, "',' or ')'")

    def _undefined(self, at: int) -> None:
        name = self._tokens[at]
        for around in reversed(self._open):
            if around.outer is not None and name in around.outer[0]:
                assert around.kind is not None
                self._report(
                    at,
                    f"{name} is defined outside of {around.kind.name}, which uses no values around it",
                    "D0153",
                    labels=(Label(self._where.place(around.outer[1][name]), "defined here"),),
                )
                return
        known = self._values if len(self._values) < MANY_NAMES else ()
        self._report(
            at, f"{name} is used, but not defined before", "D0153", help=_meant(name, known)
        )

    # Regions.

    def _isolate(self, pending: _Pending) -> None:
        if pending.kind is not None and pending.kind.isolated:
            pending.outer = self._values, self._defined
            self._values, self._defined = {}, {}

    def _enter(self, pending: _Pending) -> None:
        """`{ ^bb0(%x: type):` and open the block."""
        tokens = self._tokens
        if len(self._open) > MAX_NESTING:
            raise Malformed(self._at, f"regions are nested more than {MAX_NESTING} deep", "D0150")
        at = self._read.expect(self._at, "{")
        pending.block = Block()
        pending.local = []
        if tokens[at][:1] == "^":
            at += 1
            if tokens[at] == "(":
                at = self._arguments(at + 1, pending)
            at = self._read.expect(at, ":")
        self._at = at

    def _arguments(self, at: int, pending: _Pending) -> int:
        tokens = self._tokens
        while tokens[at] != ")":
            name = at
            if tokens[at][:1] != "%":
                self._read.unexpected(at, "an argument, such as %x")
            type, at = self._read.type(self._read.expect(at + 1, ":"))
            self._define(tokens[name], name, pending.block.add_argument(type))
            if tokens[at] == ",":
                at += 1
            elif tokens[at] != ")":
                self._read.unexpected(at, "',' or ')'")
        return at + 1

    def _leave(self, pending: _Pending) -> None:
        """`}`: close the block and forget what was defined in it."""
        self._at += 1
        block = pending.block
        pending.regions.append(block)
        for name in pending.local:
            del self._values[name], self._defined[name]
        kind = pending.kind
        if kind is None or kind.symbol_table or pending.wrong:
            return
        if block.last is None or not block.last.terminator:
            self._report(
                self._at - 1,
                f"the region of {kind.name} does not end with an operation that may end one",
                "D0160",
            )

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

    def _finish(self, pending: _Pending) -> None:
        """`{...} : (types) -> types loc(...)`, then make the operation and place it."""
        tokens = self._tokens
        read = self._read
        at = self._at
        if tokens[at] == "{":
            at = read.attributes(at + 1, "}", pending.attributes)
        types_at = at + 1
        type, at = read.function_type(read.expect(at, ":"))
        if tokens[at] == "loc":
            location, at = read.location(read.expect(at + 1, "("))
            at = read.expect(at, ")")
        else:
            place = self._where.place(pending.start)
            location = FileLocation(place.file, place.line, place.column, place.end)
        self._at = at
        op = self._made(pending, type.inputs, location, types_at)
        if op is not None and not self._fits(pending, op, type.results):
            op = None
        self._place(pending, op)

    def _place(self, pending: _Pending, op: Op | None) -> None:
        """Put the operation, unless it is wrong, into the open block and name its results."""
        if op is None:
            for name, at in pending.names:
                self._define(name, at, None)
            return
        for (name, at), result in zip(pending.names, op.results, strict=False):
            self._define(name, at, result)
        if not self._open:
            self._root = op
            return
        block = self._open[-1].block
        if block.last is not None and block.last.terminator:
            self._report(
                pending.start, f"{op.name} follows {block.last.name}, which ends the block", "D0160"
            )
            return
        block.append(op)

    def _made(
        self, pending: _Pending, inputs: tuple[Type, ...], location: Location, types_at: int
    ) -> Op | None:
        """The operation; None, with a report or after one, where it cannot be made."""
        kind = pending.kind
        operands = tuple([value for value in pending.operands if value is not None])
        if kind is None or pending.wrong or len(operands) != len(pending.operands):
            return None
        if tuple([value.type for value in operands]) != inputs:
            self._operand_types(pending, inputs, types_at)
            return None
        signature = signature_of(kind)
        attributes = signature.ordered(pending.attributes)
        misfits = signature.misfits(len(operands), len(pending.regions), attributes)
        for misfit in misfits:
            self._report(pending.start, f"{kind.name} {misfit}", "D0158")
        if misfits:
            return None
        op = object.__new__(kind)
        try:
            Op.__init__(op, operands, attributes, tuple(pending.regions), location)
        except ModelError as error:
            self._refused(pending, error.diagnostics, location)
            return None
        except WRONG_PARTS as error:
            # `infer` may rely on what its constructor was given; a text can hold anything.
            message = (
                f"{kind.name} cannot be made of these parts: {str(error) or type(error).__name__}"
            )
            self._report(pending.start, message, "D0159")
            return None
        return op

    def _operand_types(self, pending: _Pending, inputs: tuple[Type, ...], types_at: int) -> None:
        """Report how the types written for the operands differ from those of the values."""
        if len(inputs) != len(pending.operands):
            self._report(
                types_at,
                f"{len(pending.operands)} operands, but {len(inputs)} types for them are written",
                "D0155",
            )
            return
        for index, (value, written) in enumerate(zip(pending.operands, inputs, strict=True)):
            assert value is not None
            if value.type is not written:
                at = pending.uses + 2 * index
                name = self._tokens[at]
                self._report(
                    at,
                    f"{name} is {value.type}, used here as {written}",
                    "D0155",
                    labels=(Label(self._where.place(self._defined[name]), "defined here"),),
                )

    def _fits(self, pending: _Pending, op: Op, written: tuple[Type, ...]) -> bool:
        """Whether the results are of the types in the text, and as many as have names."""
        found = tuple([result.type for result in op.results])
        if found != written:
            self._report(
                pending.start,
                f"{op.name} gives {_types_text(found)}, the text says {_types_text(written)}",
                "D0155",
            )
        elif pending.names and len(pending.names) != len(found):
            self._report(
                pending.names[0][1],
                f"{len(pending.names)} names for the {len(found)} results of {op.name}",
                "D0159",
            )
        else:
            return True
        return False

    def _refused(
        self, pending: _Pending, diagnostics: tuple[Diagnostic, ...], location: Location
    ) -> None:
        """Report what `infer` says, at the place in this text."""
        place = self._where.place(pending.start)
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


def _meant(name: str, known: Collection[str]) -> str | None:
    close = suggest(name, known) if len(name) < LONG_NAME else None
    return f"did you mean {close}?" if close else None


def _types_text(types: tuple[Type, ...]) -> str:
    return f"({', '.join(map(str, types))})" if len(types) != 1 else str(types[0])
