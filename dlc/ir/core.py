"""Values, operations and blocks: the graph that every pass works on.

An operation has operands, results, attributes and regions, as in MLIR. A region of ours has exactly one
block (control flow is structured), so one object, `Block`, is both. Blocks hold their operations in a
doubly linked list and values count their uses, so that inserting, erasing and replacing take constant
time for each operation touched. A `Builder` inserts operations, an `Evaluation` runs them with NumPy.
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
from dlc.ir.ranks import Ranks
from dlc.ir.types import Type

if TYPE_CHECKING:
    from dlc.ir.needs import Need

Array: TypeAlias = NDArray[np.generic]

PENDING = UnknownLocation("not placed yet")
"""The location of an operation that no builder has inserted; the verifier refuses it."""

ORDER_STEP = 1 << 16


class Value:
    """The result of an operation or an argument of a block. `name` is its name in the source, if any."""

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

    The methods below are all that a dialect defines of an operation at its own level; its lowering is
    defined in `dlc.lowering`.
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
    """Whether it has no effect besides its results, so that it may be removed, merged and moved."""
    terminator: ClassVar[bool] = False
    """Whether it ends a block."""
    isolated: ClassVar[bool] = False
    """Whether its regions use no values from outside (MLIR: `IsolatedFromAbove`)."""
    symbol_table: ClassVar[bool] = False
    """Whether its regions define symbols, such as functions, and have no terminator."""
    commutative: ClassVar[bool] = False
    """Whether its operands may be swapped without changing a bit of the result."""
    is_product: ClassVar[bool] = False
    """Whether it multiplies and adds: what mixed precision computes in 16 bits."""
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
        self.regions: tuple[Block, ...] = regions
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

    # Defined by dialects.

    def infer(self) -> Type | tuple[Type, ...]:
        """The types of the results, from operands, attributes and regions.

        Raises `self.fail(...)` where these do not fit together, so that it is the verifier, too.
        """
        raise NotImplementedError(f"{self.name} has no infer")

    def check(self) -> None:
        """Verify what `infer` cannot see yet, such as the operations inside; raises `self.fail(...)`.

        The verifier calls it after `infer` and after the checks of all operations inside.
        """

    def check_reference(self, target: Op) -> None:
        """Verify the operation that a symbol in an attribute names; raises `self.fail(...)`.

        The verifier calls it for each symbol in the attributes.
        """

    def needs(self) -> Iterable[Need]:
        """The sizes, besides those of the results, that a call must refuse if they are negative."""
        return ()

    def fold(self) -> Value | Dense | None:
        """An existing value that equals the single result, or a constant that does; else None."""
        return None

    def decompose(self, emit: Builder) -> tuple[Value, ...] | None:
        """The same results computed by simpler operations; None for a primitive operation."""
        return None

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        """The cotangents of the operands, given those of the results; None stands for zero."""
        raise NotImplementedError(f"{self.name} has no gradient")

    def evaluate(self, at: Evaluation, *inputs: Array) -> Array | tuple[Array, ...]:
        """The results, computed with NumPy: the reference semantics of the operation."""
        raise NotImplementedError(f"{self.name} has no evaluate")

    # Structure.

    @property
    def result(self) -> Value:
        """The only result."""
        (result,) = self.results
        return result

    @property
    def equivalent(self) -> tuple[object, ...]:
        """A key that is equal for pure operations without regions that compute the same results."""
        return (type(self), self.operands, exact_items(self.attributes))

    @property
    def segments(self) -> tuple[int, ...]:
        """The number of operands of each group, for operations with several groups of operands."""
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
        """Replace all operands; the types of the results must stay the same."""
        self._forget_uses()
        self.operands = tuple(operands)
        for value in self.operands:
            value.uses[self] = value.uses.get(self, 0) + 1

    def take_regions(self) -> tuple[Block, ...]:
        """Detach the regions, for the operation that replaces this one (MLIR: `Region::takeBody`)."""
        regions, self.regions = self.regions, ()
        return regions

    def swap_regions(self, other: Op) -> None:
        """Exchange regions with another operation."""
        self.regions, other.regions = other.regions, self.regions
        for op in (self, other):
            for block in op.regions:
                block.parent = op

    def _forget_uses(self) -> None:
        for value in self.operands:
            value.uses.pop(self, None)

    def erase(self) -> None:
        """Remove it from its block and drop its uses of operands. Nothing may use its results."""
        assert self.is_unused, f"{self.name} is erased while its results are used"
        if self.parent is not None:
            self.parent.unlink(self)
        self._forget_uses()
        for block in self.regions:
            block.clear()

    def is_before(self, other: Op) -> bool:
        """Whether it comes earlier in the block that both are in."""
        assert self.parent is not None and self.parent is other.parent
        if self._order == other._order:
            self.parent.renumber()
        return self._order < other._order

    def walk(self, *, formulas: bool = True) -> Iterator[Op]:
        """This operation and all operations in its regions, in pre-order.

        With `formulas=False`, those inside operations that are not isolated are left out.
        """
        yield self
        # The contents of an operation are listed after it was yielded, so that the caller may change them.
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
        """An error about the operation, with its location, for the caller to raise."""
        return ModelError(message, code=code, help=help, place=self.location.place)

    def __repr__(self) -> str:
        types = ", ".join(str(operand.type) for operand in self.operands)
        return f"<{self.name}({types}) -> {[result.type for result in self.results]}>"


class Block:
    """The single block of a region: arguments, then operations in order, the last one a terminator."""

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
        """A new argument at an index; those from there on move up by one."""
        value = Value(type, self, index, name)
        self.arguments.insert(index, value)
        for position, argument in enumerate(self.arguments):
            argument.index = position
        return value

    def remove_argument(self, index: int) -> None:
        """Remove an argument that nothing uses; later ones move down by one."""
        assert not self.arguments[index].uses
        del self.arguments[index]
        for position, argument in enumerate(self.arguments):
            argument.index = position

    def set_arguments(self, arguments: Sequence[Value]) -> None:
        """Reorder its arguments and remove those that are left out, which nothing may use."""
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
        """Insert an operation at the end."""
        self.insert(op, None)

    def insert(self, op: Op, before: Op | None) -> None:
        """Insert an operation before another one of this block, or at the end."""
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
        # Where no number is left between the two, equal ones will do: `is_before` then renumbers.
        op._order = (low + high) // 2  # pyright: ignore[reportPrivateUsage]

    def unlink(self, op: Op) -> None:
        """Remove an operation without touching its uses."""
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
        """Move an operation of any block before an operation of this one, or to the end."""
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
        """The operations in order; the current one may be erased or replaced during the iteration."""
        op = self.first
        while op is not None:
            following = op.next
            yield op
            op = following

    def __len__(self) -> int:
        return sum(1 for _ in self)


OpClass = TypeVar("OpClass", bound=type[Op])

OPS: dict[str, type[Op]] = {}
"""Every operation class by name. Importing a dialect's module registers its operations."""


class Builder:
    """Inserts operations into a block, before a given operation or at the end.

    Calling it with a new operation inserts that and returns its single result:
    `y = emit(array.MatMul(x, w))`. Kernel code is written with operators instead, by expressions that
    hold a builder (`dlc.dialects.expr`): `row * 4 + column`.
    """

    __slots__ = ("before", "block", "location")

    def __init__(self, block: Block, location: Location, before: Op | None = None) -> None:
        self.block = block
        self.location = location
        self.before = before

    @classmethod
    def before_op(cls, op: Op, location: Location | None = None) -> Builder:
        """A builder that inserts just before an operation, by default with the location of that."""
        assert op.parent is not None
        return cls(op.parent, location or op.location, op)

    def place(self, op: Op) -> Op:
        """Insert the operation at the insertion point, which stays behind it."""
        op.location = self.location
        self.block.insert(op, self.before)
        return op

    def __call__(self, op: Op, name: str | None = None) -> Value:
        """Insert an operation that has one result; returns the result, which may be given a name."""
        self.place(op)
        (result,) = op.results
        if name is not None:
            result.name = name
        return result

    def all(self, op: Op) -> tuple[Value, ...]:
        """Insert an operation; returns all its results."""
        return self.place(op).results

    def at(self, location: Location) -> Builder:
        """A builder at the same insertion point that gives operations another location."""
        return Builder(self.block, location, self.before)

    @contextmanager
    def into(self, block: Block) -> Generator[None]:
        """Insert at the end of another block within the `with` statement."""
        outer = self.block, self.before
        self.block, self.before = block, None
        yield
        self.block, self.before = outer


class Evaluation:
    """One run of IR with NumPy: the sizes of its dims, its weights, and an observer of its values.

    `observe(value, array)` is called for every value computed. `known(op)` gives the results of an
    operation that is not to be evaluated, and None for all others. The IR must not change during the run.
    """

    __slots__ = ("_blocks", "_given", "_observe", "_scopes", "dims", "ranks", "weights")

    def __init__(
        self,
        dims: Mapping[str, int] | None = None,
        weights: Mapping[str, Array] | None = None,
        observe: Callable[[Value, Array], None] | None = None,
        ranks: Ranks | None = None,
        known: Callable[[Op], tuple[Array, ...] | None] | None = None,
    ) -> None:
        self.dims: dict[str, int] = dict(dims or {})
        self.ranks = ranks
        self.weights = weights or {}
        self._observe = observe
        self._given = known
        self._blocks: dict[Op, Block] = {}
        self._scopes: list[dict[Value, Array]] = []

    def ranks_of(self, op: Op) -> Ranks:
        """The ranks among which a collective runs. Raises D0380 where there are none."""
        if self.ranks is None:
            raise op.fail(
                f"{op.name} needs the ranks of a mesh, and this runs alone",
                code="D0380",
                help="start it with --ranks N, or give dlc.load a communicator",
            )
        return self.ranks

    def size(self, size: Size) -> int:
        """A size as a number, in this run."""
        return size if isinstance(size, int) else evaluate(size, self.dims)

    def shape(self, shape: Shape) -> tuple[int, ...]:
        return tuple([self.size(size) for size in shape])

    def run(
        self,
        block: Block,
        arguments: Sequence[Array],
        lift: Callable[[Value, Array], Array] | None = None,
    ) -> tuple[Array, ...]:
        """The operands of the block's terminator, computed from arrays for its arguments.

        A block of an operation that is not isolated also sees the values of the enclosing block, each
        through `lift` where that is given.
        """
        op = block.parent
        inherits = op is not None and not op.isolated and bool(self._scopes)
        arrays: dict[Value, Array] = dict(self._scopes[-1]) if inherits else {}
        if lift is not None:
            arrays = {value: lift(value, array) for value, array in arrays.items()}
        for argument, array in zip(block.arguments, arguments, strict=True):
            arrays[argument] = array
            self.see(argument, array)
        return self.run_ops(block, arrays)

    def run_ops(self, ops: Iterable[Op], arrays: dict[Value, Array]) -> tuple[Array, ...]:
        """The operands of the terminator that ends these operations of one block.

        `arrays` holds the values that they use from outside, and receives what they compute.
        """
        self._scopes.append(arrays)
        try:
            return self._steps(ops, arrays)
        finally:
            self._scopes.pop()

    def _steps(self, ops: Iterable[Op], arrays: dict[Value, Array]) -> tuple[Array, ...]:
        for op in ops:
            if op.terminator:
                return tuple([arrays[operand] for operand in op.operands])
            results = None if self._given is None else self._given(op)
            if results is None:
                found = op.evaluate(self, *[arrays[operand] for operand in op.operands])
                results = found if isinstance(found, tuple) else (found,)
            for value, array in zip(op.results, results, strict=True):
                arrays[value] = array
                self.see(value, array)
        raise AssertionError("no terminator ends the operations")

    def once(self, op: Op, build: Callable[[Op], Block]) -> Block:
        """The block that an operation is evaluated by, built when that runs for the first time."""
        if op not in self._blocks:
            self._blocks[op] = build(op)
        return self._blocks[op]

    def value(self, value: Value) -> Array:
        """The array of a value that is visible in the innermost block."""
        return self._scopes[-1][value]

    def constant(self, value: Value, array: Array) -> Array:
        """The array of a value that derivatives treat as constant; overridden where one is taken."""
        return array

    def see(self, value: Value, array: Array) -> None:
        """Pass a computed value to the observer."""
        if self._observe is not None:
            self._observe(value, array)
