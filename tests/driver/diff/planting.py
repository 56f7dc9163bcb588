"""How mistakes are planted in the compiler: wrong rules, lowerings, plans and instructions."""

# Mistakes are made inside modules, at what is private to them.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TypeAlias

import pytest

from dlc.codegen.llvm.text import WRITERS, FunctionText
from dlc.dialects import array, kernel
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.expr import Expr, Pointer
from dlc.ir.clone import changed
from dlc.ir.core import Builder, Op, Value
from dlc.ir.rewrite import EQUAL, Rewriter
from dlc.ir.types import DType
from dlc.lowering import math
from dlc.lowering.cpu import generic as cpu_generic
from dlc.lowering.gpu import elements as gpu_elements
from dlc.lowering.gpu.writer import GridWriter
from dlc.lowering.graph_to_kernel.arrays import LOWERINGS
from dlc.lowering.math.term import Term
from dlc.passes.kernel import fold_operands, fuse, inlining
from dlc.planning import buffer_assignment, kernel_to_plan
from dlc.planning.lifetimes import Lifetimes
from dlc.planning.measured_sizes import Reads
from dlc.planning.waves import Item, Origins

Patch = pytest.MonkeyPatch
Lower: TypeAlias = Callable[[Op, Builder], Sequence[Value]]
Derivative: TypeAlias = Callable[[Op, Builder, Value, Value], Value]


@dataclass(frozen=True)
class Planted:
    """A mistake, the model that shows it, and what must be named."""

    name: str
    text: str
    plant: Callable[[Patch], None]
    level: str
    pass_name: str
    op: str
    target: str = "cpu"


def model(body: str, inputs: str = "x: f32[4, 6]", extra: str = "") -> str:
    """A model with some innocent operations before and after the part that shows a mistake."""
    shape = inputs.partition(": ")[2]
    return (
        "dlc 1\n" + extra + f"export fn f({inputs}) -> {shape} = {{\n"
        "  let a = sigmoid(x) + 0.5\n"
        f"{body}"
        "  let tail = exp(y * 0.1)\n"
        "  return tail * 0.5 + 1.0\n"
        "}\n"
    )


# Graph.


def rule(
    module: ModuleType, cls: type[Op], make: Callable[[Op, Builder], Value | None]
) -> Callable[[Patch], None]:
    """A wrong rule for an operation, before the right ones."""

    def pattern(op: Op, rewriter: Rewriter) -> bool:
        """A wrong rule."""
        if op.attributes.get("planted"):
            return False
        value = make(op, rewriter.before(op))
        if value is None:
            return False
        if value.op is not None:
            value.op.attributes["planted"] = True
        rewriter.replace(op, value, relation=EQUAL)
        return True

    def plant(patch: Patch) -> None:
        patch.setitem(module.RULES, cls, [pattern, *module.RULES.get(cls, [])])

    return plant


def swapped(op: Op, emit: Builder) -> Value:
    """The same operation with its operands swapped."""
    return emit(changed(op, list(reversed(op.operands))))


def folds_to_source(cls: type[Op]) -> Callable[[Patch], None]:
    def fold(self: Op) -> Value:
        return self.operands[0]

    return lambda patch: patch.setattr(cls, "fold", fold)


def derivative(cls: type[Op], wrong: Derivative) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(cls, "derivative", wrong)


def gradient(cls: type[Op], wrong: Callable[..., object]) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(cls, "gradient", wrong)


def drop_second(cls: type[Op]) -> Callable[[Patch], None]:
    """The gradient by the second operand is that by the first."""
    right = cls.gradient

    def wrong(self: Op, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        found = right(self, emit, *cotangents)
        return (found[0], found[0])

    return gradient(cls, wrong)


def lowered(
    cls: type[Op], change: Callable[[Op, Builder, Lower], Sequence[Value]]
) -> Callable[[Patch], None]:
    """A wrong lowering to kernels."""

    def plant(patch: Patch) -> None:
        right = next(LOWERINGS[base] for base in cls.__mro__ if base in LOWERINGS)
        patch.setitem(LOWERINGS, cls, lambda op, emit: change(op, emit, right))

    return plant


def with_operands_swapped(op: Op, emit: Builder, right: Lower) -> Sequence[Value]:
    other = changed(op, list(reversed(op.operands)))
    emit.place(other)
    made = right(other, emit)
    other.erase()
    return made


def with_branches_swapped(op: Op, emit: Builder, right: Lower) -> Sequence[Value]:
    condition, yes, no = op.operands
    other = changed(op, [condition, no, yes])
    emit.place(other)
    made = right(other, emit)
    other.erase()
    return made


def as_other(cls: type[Op]) -> Callable[[Op, Builder, Lower], Sequence[Value]]:
    """The lowering of an operation of another class."""

    def change(op: Op, emit: Builder, right: Lower) -> Sequence[Value]:
        other = cls(*op.operands)  # pyright: ignore[reportArgumentType] - a binary operation
        emit.place(other)
        made = right(other, emit)
        other.erase()
        return made

    return change


def scaled_result(op: Op, emit: Builder, right: Lower) -> Sequence[Value]:
    (value,) = right(op, emit)
    one = emit(array.Fill(1.01, tensor_type(value)))
    (made,) = LOWERINGS[array.Elementwise](_placed(array.Multiply(value, one), emit), emit)
    return (made,)


def _placed(op: Op, emit: Builder) -> Op:
    return emit.place(op)


def attribute(patch: Patch, cls: type[Op], name: str, value: object) -> None:
    right = LOWERINGS[cls]

    def wrong(op: Op, emit: Builder) -> Sequence[Value]:
        kept = op.attributes.get(name)
        op.attributes[name] = value  # pyright: ignore[reportArgumentType]
        made = right(op, emit)
        op.attributes[name] = kept  # pyright: ignore[reportArgumentType]
        return made

    patch.setitem(LOWERINGS, cls, wrong)


def with_attribute(cls: type[Op], name: str, value: object) -> Callable[[Patch], None]:
    return lambda patch: attribute(patch, cls, name, value)


# Kernels and plans.


def merge_all_equal(patch: Patch) -> None:
    """Two inputs of the same type count as one."""
    right = inlining.merge_equal_inputs

    def wrong(op: kernel.Generic) -> None:
        right(op)
        inputs = inlining.input_pairs(op)
        if len(inputs) == 2 and inputs[0][1].type is inputs[1][1].type:
            inputs[1][0].replace_by(inputs[0][0])

    for module in (fuse, inlining):
        patch.setattr(module, "merge_equal_inputs", wrong)


def forget_transpose(patch: Patch) -> None:
    """A folded transpose does not flip the attribute of the product, where both are square."""
    right = fold_operands._transpose_source

    def wrong(value: Value) -> Value | None:
        source = right(value)
        if source is not None and source.type is value.type and value.op is not None:
            value.op.result.replace_by(source)
            return None
        return source

    patch.setattr(fold_operands, "_transpose_source", wrong)


def reuse_too_early(patch: Patch) -> None:
    """Every buffer is free one wave before its last reader."""
    right = kernel_to_plan.lifetimes

    def wrong(items: list[Item], origins: Origins, reads: Reads) -> Lifetimes:
        lives = right(items, origins, reads)
        lives.last.update({value: wave - 1 for value, wave in lives.last.items()})
        return lives

    patch.setattr(kernel_to_plan, "lifetimes", wrong)


def forget_next_iteration(patch: Patch) -> None:
    """What was written before a loop is free behind its last reader in there, not behind the loop."""
    right = kernel_to_plan.lifetimes

    def wrong(items: list[Item], origins: Origins, reads: Reads) -> Lifetimes:
        lives = right(items, origins, reads)
        for value, read in lives.reads.items():
            if all(reader is not None for _, reader in read):
                lives.last[value] = max(wave for wave, _ in read)
        return lives

    patch.setattr(kernel_to_plan, "lifetimes", wrong)


def always_in_place(patch: Patch) -> None:
    """Every operand of a kernel may be overwritten by its result."""

    def wrong(op: kernel.Kernel) -> list[int]:
        return list(range(len(op.operands) - len(op.targets)))

    patch.setattr(buffer_assignment, "overwritable_operands", wrong)


# Loops and machine code.


def expansion(cls: type[Op], wrong: Callable[[Term], Term]) -> Callable[[Patch], None]:
    def plant(patch: Patch) -> None:
        patch.setitem(math.UNARY, cls, wrong)

    return plant


def instruction(cls: type[Op], old: str, new: str) -> Callable[[Patch], None]:
    """Another instruction in place of that of an operation."""

    def plant(patch: Patch) -> None:
        right = WRITERS[cls]

        def wrong(op: Op, text: FunctionText) -> tuple[str, ...]:
            start = len(text.lines)
            found = right(op, text)
            text.lines[start:] = [line.replace(old, new) for line in text.lines[start:]]
            return found

        patch.setitem(WRITERS, cls, wrong)

    return plant


def without_barriers(patch: Patch) -> None:
    """The threads of a block do not wait for each other."""

    def wrong(self: GridWriter) -> None:
        """No barrier."""

    patch.setattr(GridWriter, "barrier", wrong)


def with_little_shared_memory(patch: Patch) -> None:
    """Buffers in shared memory have half of the elements that they should."""
    right = GridWriter.shared

    def wrong(self: GridWriter, elements: int, dtype: DType) -> Pointer:
        return right(self, max(1, elements // 2), dtype)

    patch.setattr(GridWriter, "shared", wrong)


def with_long_tails(patch: Patch) -> None:
    """The last threads of a tile compute as many elements as the others."""

    def wrong(one: Expr, other: Expr) -> Expr:
        return one

    patch.setattr(gpu_elements, "minimum", wrong)


def misplaced_rows(patch: Patch) -> None:
    """A tile begins one row late."""
    right = cpu_generic.minimum

    def wrong(one: Expr, other: Expr) -> Expr:
        return right(one, other) - 1

    patch.setattr(cpu_generic, "minimum", wrong)
