"""Values, operations, blocks and the builder: what changing the graph leaves behind."""

from __future__ import annotations

import random

import pytest

from dlc.errors import ModelError
from dlc.ir.attributes import Attribute
from dlc.ir.core import ORDER_STEP, PENDING, Block, Builder, Op, Value
from dlc.ir.fingerprint import fingerprint
from dlc.ir.location import FileLocation
from dlc.ir.types import F32, F64, TensorType
from dlc.ir.verify import verify
from tests.ir import toy

HERE = FileLocation("toy.dlm", 2, 3)
THERE = FileLocation("toy.dlm", 9, 1)


def operations(count: int) -> tuple[Block, list[Op]]:
    """A block of so many operations."""
    block = Block()
    emit = Builder(block, HERE)
    return block, [emit.place(toy.Make(F32)) for _ in range(count)]


def forwards(block: Block) -> list[Op]:
    return list(block)


def backwards(block: Block) -> list[Op]:
    found: list[Op] = []
    op = block.last
    while op is not None:
        found.append(op)
        op = op.previous
    return found[::-1]


# Blocks.


def test_operations_stand_in_the_order_they_were_placed_in() -> None:
    block, ops = operations(5)
    assert forwards(block) == backwards(block) == ops
    assert len(block) == 5


def test_an_operation_is_inserted_before_another() -> None:
    block, [first, second] = operations(2)
    between = toy.Make(F64)
    block.insert(between, second)
    front = toy.Make(F64)
    block.insert(front, first)
    assert forwards(block) == backwards(block) == [front, first, between, second]


def test_an_operation_is_moved_within_a_block_and_to_another() -> None:
    block, [first, second, third] = operations(3)
    block.move(third, first)
    block.move(first, None)
    assert forwards(block) == backwards(block) == [third, second, first]
    other = Block()
    other.move(second, None)
    assert forwards(block) == backwards(block) == [third, first]
    assert forwards(other) == [second]


def test_an_operation_that_is_unlinked_keeps_its_uses() -> None:
    block, [first] = operations(1)
    user = Builder(block, HERE).place(toy.Add(first.results[0], first.results[0]))
    block.unlink(user)
    assert user.parent is user.previous is user.next is None
    assert first.results[0].uses == {user: 2}


def test_an_empty_block_has_no_ends() -> None:
    block, [only] = operations(1)
    only.erase()
    assert block.first is block.last is None
    assert forwards(block) == []


def test_the_current_operation_may_be_erased_while_a_block_is_walked() -> None:
    block, ops = operations(4)
    for op in block:
        if op is not ops[1]:
            op.erase()
    assert forwards(block) == backwards(block) == [ops[1]]


def test_clearing_a_block_drops_operations_that_use_each_other() -> None:
    block, [first] = operations(1)
    emit = Builder(block, HERE)
    argument = block.add_argument(F32)
    emit(toy.Add(emit(toy.Add(first.results[0], argument)), argument))
    block.clear()
    assert block.first is None
    assert not argument.uses


def test_arguments_know_their_place() -> None:
    block = Block((F32, F64), ("x",))
    assert [(a.index, a.name, a.type, a.block) for a in block.arguments] == [
        (0, "x", F32, block),
        (1, None, F64, block),
    ]
    third = block.add_argument(F32, "z")
    block.remove_argument(0)
    assert [a.index for a in block.arguments] == [0, 1]
    assert block.arguments[1] is third


def test_an_argument_in_use_is_not_removed() -> None:
    block = Block((F32,))
    Builder(block, HERE)(toy.Add(block.arguments[0], block.arguments[0]))
    with pytest.raises(AssertionError):
        block.remove_argument(0)


def test_the_terminator_is_the_last_operation() -> None:
    block, _ = operations(1)
    with pytest.raises(AssertionError):
        _ = block.terminator
    end = Builder(block, HERE).place(toy.End(()))
    assert block.terminator is end


# Order.


def test_order_is_known_after_random_insertions_and_moves() -> None:
    choose = random.Random(3)
    block, ops = operations(10)
    for _ in range(600):
        if choose.random() < 0.7:
            op: Op = toy.Make(F32)
            block.insert(op, choose.choice([*ops, None]))
            ops.append(op)
        else:
            op, before = choose.sample(ops, 2)
            block.move(op, before)
    assert forwards(block) == backwards(block)
    position = {op: index for index, op in enumerate(block)}
    for _ in range(2000):
        one, other = choose.sample(ops, 2)
        assert one.is_before(other) == (position[one] < position[other])


def test_order_numbers_that_ran_out_are_given_anew() -> None:
    block, [first, last] = operations(2)
    for _ in range(ORDER_STEP.bit_length() + 5):
        op = toy.Make(F32)
        block.insert(op, last)
        assert first.is_before(op)
        assert op.is_before(last)
        last = op


# Uses.


def test_a_value_counts_how_often_each_operation_uses_it() -> None:
    block = Block((F32,))
    [x] = block.arguments
    emit = Builder(block, HERE)
    twice = emit.place(toy.Add(x, x))
    once = emit.place(toy.Add(x, twice.results[0]))
    assert x.uses == {twice: 2, once: 1}
    assert list(x.uses) == [twice, once]


def test_one_operand_is_replaced_wherever_it_stands() -> None:
    block = Block((F32, F32, F32))
    x, y, z = block.arguments
    op = Builder(block, HERE).place(toy.Groups(x, (y, x), (x,)))
    op.replace_operand(x, z)
    assert op.operands == (z, y, z, z)
    assert (x.uses, y.uses, z.uses) == ({}, {op: 1}, {op: 3})


def test_a_value_that_is_used_already_takes_over_uses_of_another() -> None:
    block = Block((F32, F32))
    x, y = block.arguments
    op = Builder(block, HERE).place(toy.Add(x, y))
    x.replace_by(y)
    assert op.operands == (y, y)
    assert (x.uses, y.uses) == ({}, {op: 2})


def test_a_value_replaced_by_itself_stays() -> None:
    block = Block((F32,))
    [x] = block.arguments
    op = Builder(block, HERE).place(toy.Add(x, x))
    x.replace_by(x)
    assert x.uses == {op: 2}


def test_operands_are_exchanged_as_a_whole() -> None:
    block = Block((F32, F32))
    x, y = block.arguments
    op = Builder(block, HERE).place(toy.Add(x, y))
    op.set_operands([y, y])
    assert (x.uses, y.uses) == ({}, {op: 2})


def test_an_operation_in_use_is_not_erased() -> None:
    block, [first] = operations(1)
    Builder(block, HERE)(toy.Add(first.results[0], first.results[0]))
    with pytest.raises(AssertionError, match="is erased while its results are used"):
        first.erase()


def test_erasing_an_operation_drops_what_its_regions_use() -> None:
    block = Block((F32,))
    [x] = block.arguments
    inner = Block()
    Builder(inner, HERE)(toy.Add(x, x))
    Builder(inner, HERE).place(toy.End((x,)))
    nest = Builder(block, HERE).place(toy.Nest((x,), inner))
    assert len(x.uses) == 3
    nest.erase()
    assert not x.uses


def test_is_unused_says_whether_any_result_has_a_user() -> None:
    block, [first] = operations(1)
    copies = Builder(block, HERE).place(toy.Copies(first.results[0], 2))
    assert copies.is_unused
    Builder(block, HERE)(toy.Add(copies.results[1], copies.results[1]))
    assert not copies.is_unused


def test_random_changes_leave_the_graph_as_it_must_be() -> None:
    choose = random.Random(5)
    body = Block((F32, F32))
    values = list(body.arguments)
    end = Builder(body, HERE).place(toy.End(()))
    for _ in range(400):
        match choose.randrange(4):
            case 0 | 1:
                before = choose.choice(list(body))
                seen = {value for op in body if op.is_before(before) for value in op.results}
                usable = [*body.arguments, *seen]
                op = toy.Add(choose.choice(usable), choose.choice(usable))
                op.location = HERE
                body.insert(op, before)
                values.append(op.result)
            case 2:
                unused = [v for v in values if v.op is not None and not v.uses]
                if unused:
                    value = choose.choice(unused)
                    values.remove(value)
                    assert value.op is not None
                    value.op.erase()
            case _:
                value = choose.choice(values)
                if value.op is not None:
                    value.replace_by(choose.choice(body.arguments))
    end.set_operands([value for value in values if value.block is body])
    box = toy.Box((), body)
    box.location = HERE
    verify(box)


# Operations.


def test_results_have_the_types_that_infer_gives() -> None:
    block = Block((F64,))
    one, two, three = Builder(block, HERE).all(toy.Copies(block.arguments[0], 3))
    assert [(v.type, v.index, v.name) for v in (one, two, three)] == [
        (F64, 0, None),
        (F64, 1, None),
        (F64, 2, None),
    ]
    assert one.op is two.op
    assert one.block is block


def test_an_operation_that_infer_refuses_leaves_no_uses() -> None:
    x, y = Block((F32, F64)).arguments
    with pytest.raises(ModelError, match="cannot add f32 and f64"):
        toy.Add(x, y)
    assert not x.uses
    assert not y.uses


def test_walk_goes_from_outer_to_inner_in_order_of_text() -> None:
    inner, other = Block(), Block()
    names = [
        Builder(inner, HERE).place(toy.Make(F32)),
        Builder(inner, HERE).place(toy.End(())),
        Builder(other, HERE).place(toy.End(())),
    ]
    fork = toy.Fork(inner, other)
    assert list(fork.walk()) == [fork, *names]


def test_walk_without_formulas_goes_into_isolated_operations_only() -> None:
    regions, alone = (Block(), Block()), Block()
    for region in regions:
        Builder(region, HERE).place(toy.End(()))
    fork = Builder(alone, HERE).place(toy.Fork(*regions))
    end = Builder(alone, HERE).place(toy.End(()))
    box = toy.Box((), alone)
    assert list(box.walk(formulas=False)) == [box, fork, end]


def test_walk_does_not_recurse() -> None:
    op: Op = toy.Make(F32)
    for _ in range(5000):
        block = Block()
        Builder(block, HERE).place(op)
        Builder(block, HERE).place(toy.End(()))
        op = toy.Nest((), block)
    assert sum(1 for _ in op.walk()) == 10_001


def test_operations_are_equivalent_where_they_compute_the_same() -> None:
    block = Block((F32, F32))
    x, y = block.arguments
    assert toy.Add(x, y).equivalent == toy.Add(x, y).equivalent
    assert toy.Add(x, y).equivalent != toy.Add(y, x).equivalent
    assert toy.Copies(x, 2).equivalent != toy.Copies(x, 3).equivalent
    assert toy.Make(F32).equivalent != toy.Make(F64).equivalent


@pytest.mark.parametrize(
    ("one", "other"), [(0.0, -0.0), (1, True), (1, 1.0), ((0.0,), (-0.0,)), ((1,), (True,))]
)
def test_attributes_that_python_takes_for_equal_are_told_apart(
    one: Attribute, other: Attribute
) -> None:
    first, second, third = toy.Facts(), toy.Facts(), toy.Facts()
    first.attributes["test.value"], second.attributes["test.value"] = one, other
    third.attributes["test.value"] = one
    assert one == other
    assert first.equivalent == third.equivalent
    assert first.equivalent != second.equivalent
    prints = [fingerprint(_around(op)) for op in (first, second, third)]
    assert prints[0] == prints[2]
    assert prints[0] != prints[1]


def _around(op: Op) -> Op:
    """An operation with a region that holds another one."""
    block = Block()
    Builder(block, HERE).place(op)
    Builder(block, HERE).place(toy.End(()))
    return toy.Nest((), block)


def test_what_fails_names_the_place_of_the_operation() -> None:
    op = toy.Make(F32)
    op.location = HERE
    error = op.fail("it is wrong", code="D0302", help="mend it")
    (found,) = error.diagnostics
    assert str(found) == "toy.dlm:2:3: error[D0302]: it is wrong; mend it"


def test_an_operation_and_a_value_show_what_they_are() -> None:
    block = Block((F32,), ("x",))
    [x] = block.arguments
    assert repr(x) == "<Value x: f32>"
    assert repr(toy.Add(x, x)) == "<toy.add(f32, f32) -> [f32]>"
    assert repr(toy.Make(F32).result) == "<Value ?: f32>"


# The builder.


def test_a_builder_gives_each_operation_its_location() -> None:
    block = Block()
    emit = Builder(block, HERE)
    one = emit(toy.Make(F32), "one")
    other = emit.at(THERE)(toy.Make(F32))
    assert one.op is not None
    assert other.op is not None
    assert (one.op.location, other.op.location) == (HERE, THERE)
    assert (one.name, other.name) == ("one", None)


def test_an_operation_that_was_not_placed_has_no_location() -> None:
    assert toy.Make(F32).location is PENDING


def test_a_builder_stands_before_an_operation() -> None:
    block, [first, last] = operations(2)
    emit = Builder.before_op(last)
    one, other = emit.place(toy.Make(F32)), emit.at(THERE).place(toy.Make(F32))
    assert forwards(block) == [first, one, other, last]
    assert (one.location, other.location) == (last.location, THERE)
    assert Builder.before_op(first, THERE).location == THERE


def test_calling_a_builder_asks_for_exactly_one_result() -> None:
    block = Block((TensorType(F32, ()),))
    with pytest.raises(ValueError, match="too many values"):
        Builder(block, HERE)(toy.Copies(block.arguments[0], 2))


def test_values_are_equal_only_to_themselves() -> None:
    block = Block((F32, F32))
    x, y = block.arguments
    assert x != y
    assert isinstance(x, Value)
    assert len({x, y}) == 2
