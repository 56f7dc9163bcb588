"""Values, operations and blocks: the graph that every pass works on.

An operation has operands, results, attributes and regions, as in MLIR. A region of ours has exactly one
block (control flow is structured), so one object, `Block`, is both. Blocks hold their operations in a
doubly linked list and values count their uses, so that inserting, erasing and replacing take constant
time for each operation touched. A `Builder` places operations, an `Evaluation` runs them with NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, TypeAlias, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import NDArray

from dlc.errors import ModelError
from dlc.ir.attributes import Attribute, Dense, exact_items
from dlc.ir.dims import Shape, Size, evaluate
from dlc.ir.fields import attribute, operand, operands, region
from dlc.ir.location import Location, UnknownLocation
from dlc.ir.types import Type

if TYPE_CHECKING:
    from dlc.ir.needs import Need

Array: TypeAlias = NDArray[np.generic]

PENDING = UnknownLocation("not placed yet")
"""The location of an operation that no builder has placed; the verifier refuses it."""

ORDER_STEP = 1 << 16


class Value:
    """The result of an operation or an argument of a block. `name` is what the user calls it."""

    __slots__ = ("index", "name", "owner", "type", "uses")

    def __init__(self, type: Type, owner: Op | Block, index: int, name: str | None = None) -> None:
        self.type = type
        self.owner = owner
        self.index = index
        self.name = name
        # Users with how many of their operands this is: a dict, to keep the order of use.
        self.uses: dict[Op, int] = {}

    @property
    def op(self) -> Op | None:
        """The operation that computes it; None for a block argument."""
        return self.owner if isinstance(self.owner, Op) else None

    @property
    def block(self) -> Block | None:
        """The block it is defined in."""
        return self.owner if isinstance(self.owner, Block) else self.owner.parent

    def replace_by(self, other: Value) -> None:
        """Make every user use `other`. Passes call `Rewriter.replace`, which keeps the value map."""
        if other is self:
            return
        for user in list(self.uses):
            user.replace_operand(self, other)

    def __repr__(self) -> str:
        return f"<Value {self.name or '?'}: {self.type}>"


@dataclass_transform(field_specifiers=(operand, operands, region, attribute), eq_default=False)
class Op:
    """One operation. Dialects derive from it; `dlc.ir.define` makes constructors and properties.

    The class methods below are all a dialect says about an operation at its own level; how it becomes
    a lower level is written where that lowering lives.
    """

    __slots__ = (
        "_order",
        "attributes",
        "location",
        "next",
        "operands",
        "parent",
        "previous",
        "regions",
        "results",
    )

    name: ClassVar[str] = ""
    """`dialect.operation`, as in text."""
    pure: ClassVar[bool] = True
    """No effect but its results: it may be removed, merged and moved."""
    terminator: ClassVar[bool] = False
    """It ends a block."""
    isolated: ClassVar[bool] = False
    """Its regions use no values from outside."""
    symbol_table: ClassVar[bool] = False
    """Its regions hold symbols rather than steps: they have no terminator."""
    commutative: ClassVar[bool] = False
    """Its operands may be swapped without changing a bit of the result."""
    not_differentiable: ClassVar[str] = ""
    """Why it has no gradient, where it has none."""

    def __init__(
        self,
        operands: tuple[Value, ...],
        attributes: dict[str, Attribute],
        regions: tuple[Block, ...] = (),
        location: Location = PENDING,
    ) -> None:
        self.operands = operands
        self.attributes = attributes
        self.regions = regions
        self.location = location
        self.parent: Block | None = None
        self.previous: Op | None = None
        self.next: Op | None = None
        self._order = 0
        self.results: tuple[Value, ...] = ()
        for block in regions:
            block.parent = self
        types = self.infer()
        if isinstance(types, Type):
            self.results = (Value(types, self, 0),)
        else:
            self.results = tuple([Value(type, self, i) for i, type in enumerate(types)])
        for value in operands:
            uses = value.uses
            uses[self] = uses.get(self, 0) + 1

    # What a dialect says about the operation.

    def infer(self) -> Type | tuple[Type, ...]:
        """The types of the results, from operands, attributes and regions.

        Raises `self.fail(...)` where these do not fit together: this is the verifier, too.
        """
        raise NotImplementedError(f"{self.name} has no infer")

    def check(self) -> None:
        """Raise `self.fail(...)` where an operation that is complete says what cannot be.

        The verifier asks it, after `infer` and all operations inside.
        """

    def check_reference(self, found: Op) -> None:
        """Raise `self.fail(...)` where one of the symbols in an attribute is not what it should be.

        The verifier asks it for each of them, with the operation that has the name.
        """

    def needs(self) -> Iterable[Need]:
        """The sizes that must not be below 0 in a call, besides those of the results."""
        return ()

    def fold(self) -> Value | Dense | None:
        """Something that already exists and equals the single result, or a constant; else None."""
        return None

    def decompose(self, emit: Builder) -> tuple[Value, ...] | None:
        """The same results from simpler operations, or None for a primitive."""
        return None

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        """For each operand what it receives when the results receive the cotangents; None for 0."""
        raise NotImplementedError(f"{self.name} has no gradient")

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array | tuple[Array, ...]:
        """The results in NumPy: the meaning of the operation."""
        raise NotImplementedError(f"{self.name} has no evaluate")

    # Structure.

    @property
    def result(self) -> Value:
        """The only result."""
        (result,) = self.results
        return result

    @property
    def equivalent(self) -> tuple[object, ...]:
        """A key that is equal for two pure operations without regions that compute the same."""
        return (type(self), self.operands, exact_items(self.attributes))

    @property
    def segments(self) -> tuple[int, ...]:
        """How many operands each group has, where there are several groups."""
        sizes = self.attributes["segments"]
        assert isinstance(sizes, tuple)
        return tuple([size for size in sizes if isinstance(size, int)])

    @property
    def is_unused(self) -> bool:
        """Whether nothing uses its results."""
        results = self.results
        if len(results) == 1:  # nearly always, and asked very often
            return not results[0].uses
        return not any(result.uses for result in results)

    def replace_operand(self, old: Value, new: Value) -> None:
        """Use `new` wherever `old` is an operand."""
        count = old.uses.pop(self)
        self.operands = tuple([new if operand is old else operand for operand in self.operands])
        new.uses[self] = new.uses.get(self, 0) + count

    def set_operands(self, operands: Sequence[Value]) -> None:
        """Take these operands instead; the types of the results must not change by it."""
        self._forget_uses()
        self.operands = tuple(operands)
        for value in self.operands:
            value.uses[self] = value.uses.get(self, 0) + 1

    def swap_regions(self, other: Op) -> None:
        """Have the regions of another operation, and give it these."""
        self.regions, other.regions = other.regions, self.regions
        for op in (self, other):
            for block in op.regions:
                block.parent = op

    def _forget_uses(self) -> None:
        for value in self.operands:
            value.uses.pop(self, None)

    def erase(self) -> None:
        """Take it out of its block and drop its uses. Nothing may use its results."""
        assert self.is_unused, f"{self.name} is erased while its results are used"
        if self.parent is not None:
            self.parent.unlink(self)
        self._forget_uses()
        for block in self.regions:
            block.clear()

    def is_before(self, other: Op) -> bool:
        """Whether it stands earlier in the block that both are in."""
        assert self.parent is not None and self.parent is other.parent
        if self._order == other._order:
            self.parent.renumber()
        return self._order < other._order

    def walk(self, *, formulas: bool = True) -> Iterator[Op]:
        """This operation and all in its regions, outer before inner, in order of text.

        Without `formulas` nothing in operations that are not isolated, such as kernels.
        """
        yield self
        # What is in an operation is listed when its turn comes, so that it may be changed meanwhile.
        pending = [iter([child for region in self.regions for child in region])]
        while pending:
            for op in pending[-1]:
                yield op
                if op.regions and (formulas or op.isolated):
                    pending.append(iter([child for region in op.regions for child in region]))
                    break
            else:
                pending.pop()

    def fail(self, message: str, *, code: str = "D0301", help: str | None = None) -> ModelError:
        """The error to raise when the operation is wrong; whoever knows the place adds it."""
        return ModelError(message, code=code, help=help, place=self.location.place)

    def __repr__(self) -> str:
        types = ", ".join(str(operand.type) for operand in self.operands)
        return f"<{self.name}({types}) -> {[result.type for result in self.results]}>"


class Block:
    """The single block of a region: arguments, then operations in order, the last a terminator."""

    __slots__ = ("arguments", "first", "last", "parent")

    def __init__(self, types: Iterable[Type] = (), names: Sequence[str | None] = ()) -> None:
        self.arguments: list[Value] = []
        self.first: Op | None = None
        self.last: Op | None = None
        self.parent: Op | None = None
        for index, type in enumerate(types):
            self.add_argument(type, names[index] if index < len(names) else None)

    def add_argument(self, type: Type, name: str | None = None) -> Value:
        """A new last argument."""
        value = Value(type, self, len(self.arguments), name)
        self.arguments.append(value)
        return value

    def insert_argument(self, index: int, type: Type, name: str | None = None) -> Value:
        """A new argument at a place; those from there on move down."""
        value = Value(type, self, index, name)
        self.arguments.insert(index, value)
        for position, argument in enumerate(self.arguments):
            argument.index = position
        return value

    def remove_argument(self, index: int) -> None:
        """Take away an argument that nothing uses; later ones move up."""
        assert not self.arguments[index].uses
        del self.arguments[index]
        for position, argument in enumerate(self.arguments):
            argument.index = position

    def set_arguments(self, arguments: Sequence[Value]) -> None:
        """Put its arguments in this order, without those that are left out, which nothing may use."""
        kept = set(arguments)
        assert kept <= set(self.arguments)
        assert not any(argument.uses for argument in self.arguments if argument not in kept)
        self.arguments = list(arguments)
        for position, argument in enumerate(self.arguments):
            argument.index = position

    @property
    def terminator(self) -> Op:
        """The last operation, which must be a terminator."""
        assert self.last is not None and self.last.terminator
        return self.last

    def append(self, op: Op) -> None:
        """Put an operation at the end."""
        self.insert(op, None)

    def insert(self, op: Op, before: Op | None) -> None:
        """Put an operation before another one of this block, or at the end."""
        assert op.parent is None and op is not before
        after = self.last if before is None else before.previous
        op.parent, op.previous, op.next = self, after, before
        if after is None:
            self.first = op
        else:
            after.next = op
        if before is None:
            self.last = op
        else:
            before.previous = op
        low = 0 if after is None else after._order  # pyright: ignore[reportPrivateUsage]
        high = low + 2 * ORDER_STEP if before is None else before._order  # pyright: ignore[reportPrivateUsage]
        # Where no number is left between two, equal ones will do: `is_before` then renumbers.
        op._order = (low + high) // 2  # pyright: ignore[reportPrivateUsage]

    def unlink(self, op: Op) -> None:
        """Take an operation out without touching its uses."""
        assert op.parent is self
        if op.previous is None:
            self.first = op.next
        else:
            op.previous.next = op.next
        if op.next is None:
            self.last = op.previous
        else:
            op.next.previous = op.previous
        op.parent = op.previous = op.next = None

    def move(self, op: Op, before: Op | None) -> None:
        """Move an operation of any block to a place in this one."""
        if op.parent is not None:
            op.parent.unlink(op)
        self.insert(op, before)

    def clear(self) -> None:
        """Drop all operations, last first."""
        op = self.last
        while op is not None:
            previous = op.previous
            op.erase()
            op = previous

    def renumber(self) -> None:
        """Give the operations fresh order numbers, far apart."""
        for position, op in enumerate(self, 1):
            op._order = position * ORDER_STEP  # pyright: ignore[reportPrivateUsage]

    def __iter__(self) -> Iterator[Op]:
        """The operations in order; the current one may be erased or replaced meanwhile."""
        op = self.first
        while op is not None:
            following = op.next
            yield op
            op = following

    def __len__(self) -> int:
        return sum(1 for _ in self)


OpClass = TypeVar("OpClass", bound=type[Op])

OPS: dict[str, type[Op]] = {}
"""Every operation known, by name. Importing a dialect's module fills it."""


class Builder:
    """Puts operations into a block, before a given one or at the end.

    Calling it with a new operation places that and gives back its single result, so that expressions
    read as mathematics: `emit(Add(emit(Multiply(x, y)), z))`.
    """

    __slots__ = ("before", "block", "location")

    def __init__(self, block: Block, location: Location, before: Op | None = None) -> None:
        self.block = block
        self.location = location
        self.before = before

    @classmethod
    def before_op(cls, op: Op, location: Location | None = None) -> Builder:
        """A builder that places just before an operation, by default with its location."""
        assert op.parent is not None
        return cls(op.parent, location or op.location, op)

    def place(self, op: Op) -> Op:
        """Put the operation at the point; later ones follow it."""
        op.location = self.location
        self.block.insert(op, self.before)
        return op

    def __call__(self, op: Op, name: str | None = None) -> Value:
        """Place an operation that has one result, perhaps name the result, and give it back."""
        self.place(op)
        (result,) = op.results
        if name is not None:
            result.name = name
        return result

    def all(self, op: Op) -> tuple[Value, ...]:
        """Place an operation and give back all its results."""
        return self.place(op).results

    def at(self, location: Location) -> Builder:
        """The same point with another location."""
        return Builder(self.block, location, self.before)

    @contextmanager
    def into(self, block: Block) -> Generator[None]:
        """Stand at the end of another block for a while, which thus gets a body."""
        outer = self.block, self.before
        self.block, self.before = block, None
        yield
        self.block, self.before = outer


class Evaluation:
    """One run: the numbers that the dims have, the weights, and who wants to see each value.

    `observe(value, array)` is called for every value computed. The IR stays as it is while it is run.
    """

    __slots__ = ("_made", "_observe", "_scopes", "dims", "weights")

    def __init__(
        self,
        dims: Mapping[str, int] | None = None,
        weights: Mapping[str, Array] | None = None,
        observe: Callable[[Value, Array], None] | None = None,
    ) -> None:
        self.dims: dict[str, int] = dict(dims or {})
        self.weights = weights or {}
        self._observe = observe
        self._made: dict[Op, Block] = {}
        self._scopes: list[dict[Value, Array]] = []

    def size(self, size: Size) -> int:
        """The number that a size is in this run."""
        return size if isinstance(size, int) else evaluate(size, self.dims)

    def shape(self, shape: Shape) -> tuple[int, ...]:
        return tuple([self.size(size) for size in shape])

    def run(
        self,
        block: Block,
        arguments: Sequence[Array],
        lift: Callable[[Value, Array], Array] | None = None,
    ) -> tuple[Array, ...]:
        """The operands of the block's terminator, from the arrays its arguments stand for.

        A block of an operation that is not isolated also sees the values around it, each through
        `lift` where that is given.
        """
        op = block.parent
        inherits = op is not None and not op.isolated and bool(self._scopes)
        known: dict[Value, Array] = dict(self._scopes[-1]) if inherits else {}
        if lift is not None:
            known = {value: lift(value, array) for value, array in known.items()}
        for argument, array in zip(block.arguments, arguments, strict=True):
            known[argument] = array
            self.see(argument, array)
        return self.run_ops(block, known)

    def run_ops(self, ops: Iterable[Op], known: dict[Value, Array]) -> tuple[Array, ...]:
        """The operands of the terminator that ends these operations of one block.

        `known` has what they use that comes before them, and gets what they compute.
        """
        self._scopes.append(known)
        try:
            return self._steps(ops, known)
        finally:
            self._scopes.pop()

    def _steps(self, ops: Iterable[Op], known: dict[Value, Array]) -> tuple[Array, ...]:
        for op in ops:
            if op.terminator:
                return tuple([known[operand] for operand in op.operands])
            results = op.evaluate(self, *[known[operand] for operand in op.operands])
            if not isinstance(results, tuple):
                results = (results,)
            for value, array in zip(op.results, results, strict=True):
                known[value] = array
                self.see(value, array)
        raise AssertionError("no terminator ends the operations")

    def once(self, op: Op, make: Callable[[Op], Block]) -> Block:
        """The block that stands for an operation: made when that is first run, not in each round."""
        if op not in self._made:
            self._made[op] = make(op)
        return self._made[op]

    def value(self, value: Value) -> Array:
        """The array that a value of the innermost block is."""
        return self._scopes[-1][value]

    def constant(self, value: Value, array: Array) -> Array:
        """What a value is that counts as a constant for derivatives: itself, where nobody takes any."""
        return array

    def see(self, value: Value, array: Array) -> None:
        """Show a value to whoever asked for it."""
        if self._observe is not None:
            self._observe(value, array)
