"""Copying operations and blocks."""

from __future__ import annotations

import numpy as np

from dlc.dialects import array, flow
from dlc.ir.clone import clone, clone_block, clone_into, move_into
from dlc.ir.core import Block, Builder, Evaluation, Value
from dlc.ir.location import FileLocation
from dlc.ir.types import BOOL, TensorType
from tests.dialects.programs import HERE, region, tensor

VECTOR = tensor(3)


def loop(emit: Builder, condition: Value, x: Value) -> tuple[Value, ...]:
    """A scan whose steps choose between two branches."""

    def step(emit: Builder, index: Value, h: Value, condition: Value) -> Value:
        yes = region(lambda emit, h: emit(array.Sin(h)), [VECTOR])
        no = region(lambda emit, h: emit(array.Cos(h)), [VECTOR])
        return emit(flow.If(condition, (h,), yes, no), "h")

    body = region(step, [flow.COUNTER, VECTOR, TensorType(BOOL)])
    return emit.all(flow.Scan((x,), (), (condition,), body, 3, (), ()))


def looped() -> Block:
    return region(loop, [TensorType(BOOL), VECTOR])


def test_a_copy_of_an_operation_has_other_operands_and_the_same_facts() -> None:
    block = Block([tensor(2, 3), tensor(2, 3)])
    first, second = block.arguments
    place = FileLocation("a.dlm", 3, 4)
    original = Builder(block, place).place(array.Transpose(first, (1, 0)))
    original.result.name = "turned"
    copy = clone(original, [second])
    assert isinstance(copy, array.Transpose)
    assert (copy.source, copy.axes, copy.location) == (second, (1, 0), place)
    assert copy.result.name == "turned"
    assert copy.attributes is not original.attributes
    assert copy.parent is None


def test_a_copy_of_a_block_computes_the_same_and_shares_nothing() -> None:
    block = looped()
    copy = clone_block(block)
    inputs = [np.asarray(True), np.array([0.1, 0.2, 0.3])]
    for one, other in zip(
        Evaluation().run(block, inputs), Evaluation().run(copy, inputs), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    (scan,) = [op for op in copy if isinstance(op, flow.Scan)]
    before = len(block)
    scan.body.terminator.set_operands(scan.body.arguments[1:2])
    assert len(block) == before
    assert all(op.parent is block for op in block)
    assert all(user.parent is copy for argument in copy.arguments for user in argument.uses)


def test_names_inside_regions_are_kept() -> None:
    copy = clone_block(looped())
    names = [result.name for op in copy for inner in op.walk() for result in inner.results]
    assert "h" in names


def test_a_block_is_copied_to_a_place_with_values_for_its_arguments() -> None:
    source = region(lambda emit, x, y: emit(array.Add(x, y)), [VECTOR, VECTOR])
    target = region(lambda emit, x: x, [VECTOR])
    x = target.arguments[0]
    (total,) = clone_into(source, Builder.before_op(target.terminator), [x, x])
    assert len(source) == 2
    assert [op.name for op in target] == ["array.add", "flow.yield"]
    assert total.op is target.first
    assert total.op is not None and total.op.operands == (x, x)


def test_a_block_that_hands_on_its_argument_hands_on_the_value() -> None:
    source = region(lambda emit, x: x, [VECTOR])
    target = Block([VECTOR])
    x = target.arguments[0]
    assert clone_into(source, Builder(target, HERE), [x]) == (x,)
    assert move_into(source, Builder(target, HERE), [x]) == (x,)


def test_a_moved_block_leaves_nothing_behind() -> None:
    source = region(lambda emit, x, y: emit(array.Add(x, y)), [VECTOR, VECTOR])
    add = source.first
    target = region(lambda emit, x: x, [VECTOR])
    x = target.arguments[0]
    (total,) = move_into(source, Builder.before_op(target.terminator), [x, x])
    assert source.first is None
    assert total.op is add is target.first
    assert total.op is not None and total.op.operands == (x, x)


def chosen(inner: Block) -> Block:
    """A block that runs another one if its first argument holds."""

    def built(emit: Builder, c: Value, x: Value) -> tuple[Value, ...]:
        other = region(lambda emit, c, x: x, [TensorType(BOOL), VECTOR])
        return emit.all(flow.If(c, (c, x), inner, other))

    return region(built, [TensorType(BOOL), VECTOR])


def test_regions_in_regions_are_copied_without_recursion() -> None:
    depth = 2000
    block = region(lambda emit, c, x: x, [TensorType(BOOL), VECTOR])
    for _ in range(depth):
        block = chosen(block)
    copy = clone_block(block)
    assert copy.first is not None
    assert sum(isinstance(op, flow.If) for op in copy.first.walk()) == depth
