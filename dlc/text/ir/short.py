"""IR in a short spelling, for people and for tests: what can be inferred is left out.

    func @f(%x: f32[B, 4], %w: f32[4, 2]) {
      %y = array.matmul %x, %w
      %z = array.transpose %y {axes=[1, 0]}
      return %z
    }

It says the same as the generic spelling (`dlc.text.ir.printer`) but for locations, by the declared fields
of an operation alone:

- types of operands and results are left out (`infer` knows the latter), and so is the module;
- arrays are `f32[B, 4]` as in the language, sizes `B` or `<3*B + 1>`, numbers have no type;
- all attributes are in one `{name=value}`, without those that have their default;
- where there are several groups of operands, `|` is between them: `kernel.generic %x, %y | %out`;
- a symbol's name follows its operation: `weight.source @w {type=f32[4]}`;
- a region is its arguments and its operations, `(%i: index) { ... }`, and may stand on one line;
- `func`, `return` and `module` need no dialect, and the type of a function is left out where its body
  says it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlc.ir.attributes import Attribute, Dense, exactly
from dlc.ir.core import OPS, Block, Op, Value
from dlc.ir.dims import Dim
from dlc.ir.signature import SEGMENTS, Signature, signature_of
from dlc.ir.types import DType, FunctionType, TensorType, Type
from dlc.text.ir.attributes import Malformed, Reader
from dlc.text.ir.dense import float_text
from dlc.text.ir.parser import Head, Open, Parser
from dlc.text.ir.printer import Close, Printer
from dlc.text.ir.spelling import WORD, attribute_text, integer_bits, key_text
from dlc.text.ir.types import read_array_type, read_size

__all__ = ["is_short", "parse_short", "print_short"]

SHORT_NAMES = {"func.func": "func", "func.return": "return", "builtin.module": "module"}
"""Operations that are spelt without their dialect."""
BEGIN = re.compile(r"(?:\s|//.*)*+[A-Za-z]")
RESERVED = frozenset({"true", "false", *DType.named, *DType.spelled})
"""Words that are not sizes."""
SYMBOL = "sym_name"
FUNCTION_TYPE = "function_type"


def is_short(text: str) -> bool:
    """Whether a text begins as the short spelling does: with a word, not with a name in quotes."""
    return BEGIN.match(text) is not None


def parse_short(text: str, file: str) -> list[Op]:
    """The operations of a text: a module, or some that would be in one.

    `file` is what diagnostics call the text. Raises ModelError with all that was found.
    """
    return _ShortParser(text, file).parse_all()


def print_short(op: Op) -> str:
    """The text of an operation and all that is in it, with a line break at the end."""
    return "".join(["".join(_ShortPrinter().pieces(root)) for root in _roots(op)])


def _roots(op: Op) -> list[Op]:
    """What is printed of an operation: of a module that says nothing itself, what is in it."""
    if op.name == "builtin.module" and not op.attributes and op.regions[0].first is not None:
        return list(op.regions[0])
    return [op]


@dataclass(frozen=True, slots=True)
class Listing:
    """A text, and the first and the last line, counted from 1, of each operation in it."""

    text: str
    lines: Mapping[Op, tuple[int, int]]


def list_short(op: Op) -> Listing:
    """What `print_short` gives, with the lines of each operation."""
    pieces: list[str] = []
    firsts: dict[Op, int] = {}
    line = 1
    for root in _roots(op):
        printer = _ShortPrinter()
        for piece in printer.pieces(root):
            firsts.update(dict.fromkeys(printer.begun, line))
            printer.begun.clear()
            pieces.append(piece)
            line += piece.count("\n")
    lines: dict[Op, tuple[int, int]] = {}
    for each in reversed(firsts):
        last = firsts[each]
        for region in each.regions:
            # The line that closes a region is that after its last operation; the next one opens there.
            last = (lines[region.last][1] if region.last is not None else last) + 1
        lines[each] = firsts[each], last
    return Listing("".join(pieces), lines)


# Writing ----------------------------------------------------------------------------------------


class _ShortPrinter(Printer):
    def __init__(self) -> None:
        super().__init__(locations=False)
        self.begun: list[Op] = []
        """The operations whose first piece has been made since the list was cleared."""

    def _regions(self, op: Op) -> list[Op | Block | str]:
        todo: list[Op | Block | str] = []
        for block in reversed(op.regions):
            todo += (Close("} " if todo else "}"), *reversed(list(block)), block)
        return todo

    def _open(self, block: Block) -> str:
        arguments = ", ".join(f"{self._name(a)}: {self._type(a.type)}" for a in block.arguments)
        self._indent += "  "
        return f"({arguments}) {{\n" if arguments else "{\n"

    def _head(self, op: Op, properties: str) -> str:
        self.begun.append(op)
        self._forget_names(op)
        results = ", ".join([self._name(value) for value in op.results])
        parts = [SHORT_NAMES.get(op.name, op.name)]
        signature = signature_of(type(op))
        attributes = _needed(op, signature)
        if signature.is_symbol and SYMBOL in attributes:
            parts.append(f"@{key_text(str(attributes.pop(SYMBOL)))}")
        if op.operands:
            parts.append(self._operand_groups(op, signature))
        if attributes:
            entries = [f"{key_text(key)}={_text(value)}" for key, value in attributes.items()]
            parts.append(f"{{{', '.join(entries)}}}")
        equals = " = " if results else ""
        # `func @f(%x: ...)`, but a space where something else stands before the parenthesis.
        tight = parts[-1][:1] == "@" and op.regions and op.regions[0].arguments
        space = " " if op.regions and not tight else ""
        return f"{self._indent}{results}{equals}{' '.join(parts)}{space}"

    def _operand_groups(self, op: Op, signature: Signature) -> str:
        names = [self._name(value) for value in op.operands]
        if signature.groups < 2:
            return ", ".join(names)
        start = signature.operands + op.segments[0]
        groups = [names[:start]]
        for size in op.segments[1:]:
            groups.append(names[start : start + size])
            start += size
        while not groups[-1]:
            groups.pop()
        return " | ".join([", ".join(group) for group in groups]).replace("|  |", "| |").lstrip()

    def _tail(self, op: Op, dictionary: str) -> str:
        return "\n"

    def _type(self, type: Type) -> str:
        return _type_text(type)


def _needed(op: Op, signature: Signature) -> dict[str, Attribute]:
    """The attributes that a reader cannot know, declared ones first."""
    needed: dict[str, Attribute] = {}
    for key in (*signature.attributes, *op.attributes):
        value = op.attributes.get(key)
        if value is None or key in needed or (key == SEGMENTS and signature.groups > 1):
            continue
        kind = signature.attributes.get(key)
        if kind is not None and kind.default is not None and _same(kind.default, value):
            continue
        if key == FUNCTION_TYPE and value is _function_type(op.regions):
            continue
        needed[key] = value
    return needed


def _same(one: Attribute, other: Attribute) -> bool:
    return type(one) is type(other) and exactly(one) == exactly(other)


def _function_type(regions: Sequence[Block]) -> FunctionType | None:
    """The type that a body says: of its arguments and of what its last operation takes."""
    if not regions or regions[0].last is None:
        return None
    inputs = tuple([argument.type for argument in regions[0].arguments])
    return FunctionType(inputs, tuple([value.type for value in regions[0].last.operands]))


def _text(value: Attribute) -> str:
    match value:
        case bool() | str():
            return attribute_text(value)
        case int() if integer_bits(value) == 64:
            return str(value)
        case float() if math.isfinite(value):
            return float_text(repr(value))
        case tuple():
            return f"[{', '.join(map(_text, value))}]"
        case Dim():
            return str(value) if _is_bare(str(value)) else f"<{value}>"
        case Dense():
            return attribute_text(value).removesuffix(str(value.type)) + _type_text(value.type)
        case Type():
            return _type_text(value)
        case _:
            return attribute_text(value)


def _type_text(type: Type) -> str:
    match type:
        case DType():
            return type.name
        case TensorType(dtype, shape):
            return f"{dtype.name}[{', '.join(map(str, shape))}]"
        case FunctionType(inputs, results):
            return f"({_types_text(inputs)}) -> ({_types_text(results)})"
        case _:
            return str(type)


def _types_text(types: Sequence[Type]) -> str:
    return ", ".join(map(_type_text, types))


def _is_bare(word: str) -> bool:
    """Whether a word is a size and nothing else."""
    return word not in RESERVED and WORD.fullmatch(word) is not None


# Reading ----------------------------------------------------------------------------------------


class _ShortReader(Reader):
    def type(self, at: int, depth: int = 0) -> tuple[Type, int]:
        token = self.tokens[at]
        if token in DType.named:
            return DType.named[token], at + 1
        if token[-1:] != "]" or token == "]":
            return super().type(at, depth)
        try:
            return read_array_type(token), at + 1
        except ValueError as error:
            raise Malformed(at, str(error), "D0156") from None

    def attribute(self, at: int, depth: int = 0) -> tuple[Attribute, int]:
        token = self.tokens[at]
        if token[:1] != "<" and not _is_bare(token):
            return super().attribute(at, depth)
        try:
            return read_size(token.removeprefix("<").removesuffix(">")), at + 1
        except ValueError as error:
            raise Malformed(at, str(error), "D0156") from None


class _ShortParser(Parser):
    def __init__(self, text: str, file: str) -> None:
        super().__init__(text, file)
        self._read = _ShortReader(self._tokens)
        self._kinds = {SHORT_NAMES.get(name, name): kind for name, kind in OPS.items()}

    def _head(self) -> Head:
        """`%a, %b = dialect.operation @symbol %x, %y | %z {...}`."""
        tokens = self._tokens
        names, start = self._result_names()
        kind = self._kinds.get(tokens[start]) or self._unknown(start)
        head = Head(names, start, kind, [], start + 1, {})
        at = start + 1
        if tokens[at][:1] == "@":
            head.attributes[SYMBOL] = self._read.symbol(at).name
            at += 1
        if tokens[at] == "|" or (tokens[at][:1] == "%" and not self._names_results(at)):
            at = self._operand_groups(at, head)
        elif kind is not None and signature_of(kind).groups > 1:
            head.attributes[SEGMENTS] = (0,) * signature_of(kind).groups
        if tokens[at] == "{" and tokens[at + 1][:1] != "%" and tokens[at + 2] == "=":
            at = self._read.attributes(at + 1, "}", head.attributes)
        self._at = at
        return head

    def _unknown(self, at: int) -> None:
        if not WORD.fullmatch(self._tokens[at]):
            self._read.unexpected(at, "an operation")
        self._report(at, f"there is no operation {self._tokens[at]}", "D0152")

    def _names_results(self, at: int) -> bool:
        """Whether the values from here on are the results of the next operation."""
        tokens = self._tokens
        while tokens[at][:1] == "%" and tokens[at + 1] == ",":
            at += 2
        return tokens[at][:1] == "%" and tokens[at + 1] == "="

    def _operand_groups(self, at: int, head: Head) -> int:
        """`%x, %y | %z`; single operands stand with the first group."""
        tokens = self._tokens
        ends: list[int] = []
        while True:
            while tokens[at][:1] == "%":
                head.operands.append(self._operand(at))
                at += 1
                if tokens[at] != ",":
                    break
                at += 1
                if tokens[at][:1] != "%":
                    self._read.unexpected(at, "an operand, such as %x")
            if tokens[at] != "|":
                break
            ends.append(len(head.operands))
            at += 1
        if head.kind is not None:
            self._set_segments(at, head, signature_of(head.kind), ends)
        return at

    def _set_segments(self, at: int, head: Head, signature: Signature, ends: list[int]) -> None:
        """Note how many operands each group has, from how many there are before each `|`."""
        if len(ends) >= max(signature.groups, 1):
            self._read.unexpected(at, f"no more than {signature.groups} groups of operands")
        if signature.groups > 1:
            ends += [len(head.operands)] * (signature.groups - len(ends))
            starts = (signature.operands, *ends)
            head.attributes[SEGMENTS] = tuple(
                [end - start for start, end in zip(starts, ends, strict=False)]
            )

    def _has_region(self, head: Head) -> bool:
        return self._tokens[self._at] in ("(", "{")

    def _has_another_region(self, owner: Open) -> bool:
        kind = owner.head.kind
        wanted = signature_of(kind).regions if kind is not None else 0
        return len(owner.done) < wanted and self._tokens[self._at] in ("(", "{")

    def _enter(self, owner: Open) -> None:
        owner.block = Block()
        if self._tokens[self._at] == "(":
            self._at = self._arguments(self._at + 1, owner.block)
        self._at = self._read.expect(self._at, "{")

    def _finish(self, head: Head, regions: Open | None = None) -> None:
        op = None
        blocks = regions.done if regions else []
        if None not in head.operands and not (regions and regions.wrong):
            if head.kind is not None and FUNCTION_TYPE in signature_of(head.kind).attributes:
                type = _function_type(blocks)
                if type is not None:
                    head.attributes.setdefault(FUNCTION_TYPE, type)
            op = self._made(head, blocks, self._where.location(head.start))
        if op is not None and not self._fit_results(head, op, _types(op.results)):
            op = None
        self._place(head, op)


def _types(values: Sequence[Value]) -> tuple[Type, ...]:
    return tuple([value.type for value in values])
