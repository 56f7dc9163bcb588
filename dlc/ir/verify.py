"""The verifier: what every pass may rely on and has to leave behind.

Checked are: the parts that each operation's class declares, its own `infer` and the types of its
results; that values are defined before they are used, in the same block or one around it, and not
around an isolated operation; that blocks end with a terminator and have none before; that symbols are
unique and are in modules, and references to them resolve; that every operation has a location; and that
the links of the graph (parents, neighbours, owners, uses) agree with each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from dlc.errors import Diagnostic, ModelError
from dlc.ir.attributes import Attribute, Symbol
from dlc.ir.core import PENDING, Block, Op, Value
from dlc.ir.signature import WRONG_PARTS, signature_of
from dlc.ir.types import Type

__all__ = ["MAX_FINDINGS", "verify"]

MAX_FINDINGS = 20
"""How many findings one error has."""
PLAIN = frozenset({bool, int, float, str})
"""Kinds of attributes that are not symbols and have none in them."""


def verify(op: Op) -> None:
    """Check an operation and all that is in it. Raises ModelError with what was found.

    Values and symbols around the operation count as defined where it may use them.
    """
    verifier = _Verifier(op)
    with suppress(_Enough):
        verifier.run()
    if verifier.findings:
        raise ModelError(verifier.findings)


class _Enough(Exception):
    """There are as many findings as one error has."""


@dataclass(slots=True)
class _Frame:
    """An operation whose regions are being checked, and how far that is."""

    op: Op
    findings: int
    """How many there were before."""
    outer: set[Value] | None
    """The values that are visible around it, if it is isolated."""
    regions: Iterator[Block]
    block: Block
    next: Op | None = None
    """The operation to check next."""
    previous: Op | None = None
    """The one before it."""
    local: list[Value] = field(default_factory=list[Value])
    """What the block has defined so far."""


class _Verifier:
    def __init__(self, root: Op) -> None:
        self.findings: list[Diagnostic] = []
        self._root = root
        self._visible: set[Value] = set()
        self._frames: list[_Frame] = []
        self._tables = [_symbols(op) for op in _enclosing(root) if op.symbol_table]
        # How many users the values in the root know of, and how many were found.
        self._known_uses = 0
        self._found_uses = 0

    def run(self) -> None:
        """Check everything, without recursion."""
        if self._root.regions:
            self._open(self._root)
        else:
            self._parts(self._root, None)
        while self._frames:
            frame = self._frames[-1]
            op = self._next_with_regions(frame)
            if op is not None:
                self._open(op)
            else:
                self._leave(frame)
                self._enter(frame)
        if self._known_uses != self._found_uses and not self.findings:
            self._strangers()

    def _next_with_regions(self, frame: _Frame) -> Op | None:
        """Check what follows in the block up to an operation with regions; None at the block's end."""
        block, previous, op = frame.block, frame.previous, frame.next
        while op is not None:
            if op.parent is not block or op.previous is not previous:
                self._report(op, "D0163", f"{op.name} and its neighbours disagree about its place")
                previous = block.last
                break
            self._operands(op)
            if op.regions:
                frame.previous, frame.next = op, op.next
                return op
            self._parts(op, frame)
            previous, op = op, op.next
        frame.previous, frame.next = previous, None
        return None

    # Regions.

    def _open(self, op: Op) -> None:
        """Begin with the regions of an operation."""
        outer = None
        if op.isolated:
            outer, self._visible = self._visible, set()
        if op.symbol_table:
            self._tables.append(_symbols(op))
            self._twins(op, self._tables[-1])
        frame = _Frame(op, len(self.findings), outer, iter(op.regions), op.regions[0])
        self._frames.append(frame)
        self._enter(frame)

    def _enter(self, frame: _Frame) -> None:
        """Begin with the next region, or end the operation."""
        block = next(frame.regions, None)
        if block is None:
            self._end(frame)
            return
        if block.parent is not frame.op:
            self._report(frame.op, "D0163", f"a region of {frame.op.name} has another owner")
        frame.block, frame.next, frame.previous = block, block.first, None
        self._define(block.arguments, block, frame)

    def _leave(self, frame: _Frame) -> None:
        """End a region."""
        last = frame.previous
        if frame.block.last is not last:
            self._report(frame.op, "D0163", f"a region of {frame.op.name} has another end")
        elif not (frame.op.symbol_table or (last is not None and last.terminator)):
            self._report(
                last or frame.op,
                "D0160",
                f"the region of {frame.op.name} does not end with an operation that may end one",
            )
        self._visible.difference_update(frame.local)
        frame.local.clear()

    def _end(self, frame: _Frame) -> None:
        """End an operation that has regions. What it is depends on them: they must be right."""
        self._frames.pop()
        if frame.op.symbol_table:
            self._tables.pop()
        if frame.outer is not None:
            self._visible = frame.outer
        around = self._frames[-1] if self._frames else None
        if len(self.findings) == frame.findings:
            self._parts(frame.op, around)
        elif around is not None:
            self._define(frame.op.results, frame.op, around)

    # Operations.

    def _parts(self, op: Op, frame: _Frame | None) -> None:
        """Check all of an operation but its operands and regions, and define its results.

        `frame` is of the operation around it, None for the root.
        """
        if op.location is PENDING:
            self._report(op, "D0163", f"{op.name} has no location")
        attributes = op.attributes
        signature = signature_of(type(op))
        operands, regions = len(op.operands), len(op.regions)
        if attributes or regions or not signature.is_bare or operands != signature.operands:
            misfits = signature.misfits(operands, regions, attributes)
            for misfit in misfits:
                self._report(op, "D0158", f"{op.name} {misfit}")
            if not misfits:
                self._infer(op)
            if signature.refers or len(attributes) > len(signature.required):
                self._check_references(op)
        else:
            self._infer(op)
        if frame is None:
            return
        self._define(op.results, op, frame)
        if signature.is_symbol and not frame.op.symbol_table:
            self._report(op, "D0162", f"{op.name} is in {frame.op.name}, which has no symbols")
        if op.terminator and op.next is not None and not frame.op.symbol_table:
            self._report(op, "D0160", f"{op.name} is not the last operation of its region")

    def _infer(self, op: Op) -> None:
        try:
            types = op.infer()
            op.check()
        except ModelError as error:
            for diagnostic in error.diagnostics:
                self._add(diagnostic)
            return
        except WRONG_PARTS as error:
            reason = str(error) or type(error).__name__
            self._report(op, "D0159", f"{op.name} cannot be made of these parts: {reason}")
            return
        results = op.results
        if len(results) == 1 and results[0].type is types:
            return
        types_of_results = tuple([result.type for result in results])
        inferred = (types,) if isinstance(types, Type) else types
        if types_of_results != inferred:
            self._report(
                op,
                "D0155",
                f"{op.name} gives {list(inferred)}, its results are {list(types_of_results)}",
            )

    def _define(self, values: Sequence[Value], owner: Op | Block, frame: _Frame) -> None:
        """Make results or arguments visible."""
        if len(values) == 1:
            (value,) = values
            if value.owner is owner and value.index == 0:
                self._visible.add(value)
                frame.local.append(value)
                self._known_uses += len(value.uses)
                return
        visible, local = self._visible, frame.local
        uses = 0
        for index, value in enumerate(values):
            if value.owner is not owner or value.index != index:
                self._report(frame.op, "D0163", f"{_named(value)} does not know its place")
            visible.add(value)
            uses += len(value.uses)
        local += values
        self._known_uses += uses

    # Uses.

    def _operands(self, op: Op) -> None:
        """Check that the operands are visible and know that they are used here."""
        operands, visible = op.operands, self._visible
        count = len(operands)
        if count == 2:
            twice = operands[0] is operands[1]
        else:
            twice = count > 2 and len(set(operands)) < count
        if not twice:
            for value in operands:
                if value not in visible or value.uses.get(op) != 1:
                    break
            else:
                self._found_uses += count
                return
        counts = Counter(operands)
        for value, count in counts.items():
            if value in visible:
                self._found_uses += 1
            elif not self._is_around(value):
                self._report(op, "D0153", self._hidden(op, value))
            if value.uses.get(op) != count:
                self._report(op, "D0163", f"{_named(value)} does not know that {op.name} uses it")

    def _is_around(self, value: Value) -> bool:
        """Whether a value from outside of the root may be used here."""
        if any(frame.outer is not None for frame in self._frames):
            return False
        user = self._root
        for owner in _enclosing(self._root):
            if user.parent is value.block:
                return value.op is None or value.op.is_before(user)
            if owner.isolated:
                return False
            user = owner
        return user.parent is not None and user.parent is value.block

    def _hidden(self, op: Op, value: Value) -> str:
        """Why an operation cannot use a value."""
        uses = f"{op.name} uses {_named(value)}"
        if value.block is None:
            return f"{uses}, whose operation is in no block"
        for frame in reversed(self._frames):
            if frame.outer is not None and value in frame.outer:
                return f"{uses} from outside of {frame.op.name}, which uses no values around it"
        if any(value.block is frame.block for frame in self._frames):
            return f"{uses} before it is defined"
        return f"{uses}, which is defined in another region"

    def _strangers(self) -> None:
        """Report the users that values know of, but that are not in the root or no users."""
        inside = set(self._root.walk())
        for op in inside:
            arguments = [argument for block in op.regions for argument in block.arguments]
            results = () if op is self._root else op.results
            for value in (*arguments, *results):
                for user in value.uses:
                    if user not in inside or value not in user.operands:
                        self._report(
                            op,
                            "D0163",
                            f"{_named(value)} knows of a use by {user.name} that is none",
                        )

    # Symbols.

    def _twins(self, op: Op, table: dict[str, Op]) -> None:
        """Report symbols that bear the name of an earlier one."""
        for child in (child for block in op.regions for child in block):
            name = child.attributes.get("sym_name")
            if isinstance(name, str) and table[name] is not child:
                self._report(child, "D0162", f"there are two symbols @{name}")

    def _check_references(self, op: Op) -> None:
        for value in op.attributes.values():
            if isinstance(value, Symbol) or (isinstance(value, tuple) and _may_refer(value)):
                self._references(op, value)

    def _references(self, op: Op, value: Attribute) -> None:
        """Check the symbols in an attribute, where it is known which there are."""
        pending = [value]
        while pending and self._tables:
            item = pending.pop()
            if isinstance(item, tuple):
                pending.extend(item)
            elif isinstance(item, Symbol):
                self._reference(op, item)

    def _reference(self, op: Op, symbol: Symbol) -> None:
        name = symbol.name
        target = next((table[name] for table in reversed(self._tables) if name in table), None)
        if target is None:
            message = f"{op.name} refers to {symbol}, which the module does not have"
            self._report(op, "D0162", message)
            return
        try:
            op.check_reference(target)
        except ModelError as error:
            for diagnostic in error.diagnostics:
                self._add(diagnostic)

    # Findings.

    def _report(self, op: Op, code: str, message: str) -> None:
        self._add(Diagnostic(code, message, op.location.place))

    def _add(self, diagnostic: Diagnostic) -> None:
        self.findings.append(diagnostic)
        if len(self.findings) >= MAX_FINDINGS:
            raise _Enough


def _enclosing(op: Op) -> Iterator[Op]:
    """The operations around one, inner before outer."""
    block = op.parent
    while block is not None and block.parent is not None:
        yield block.parent
        block = block.parent.parent


def _may_refer(value: tuple[Attribute, ...]) -> bool:
    return not PLAIN.issuperset(map(type, value))


def _symbols(op: Op) -> dict[str, Op]:
    """The operations in an operation's regions that have names."""
    table: dict[str, Op] = {}
    for child in (child for block in op.regions for child in block):
        name = child.attributes.get("sym_name")
        if isinstance(name, str):
            table.setdefault(name, child)
    return table


def _named(value: Value) -> str:
    """How a message calls a value."""
    if value.name:
        return f"%{value.name}"
    if isinstance(value.owner, Op):
        return f"result {value.index} of {value.owner.name}"
    return f"argument {value.index} of a region"
