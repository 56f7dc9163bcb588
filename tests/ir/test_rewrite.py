"""The rewriter, the value map, the decision log and copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dlc.dialects import func
from dlc.ir.attributes import Symbol
from dlc.ir.clone import clone, clone_block, clone_into, move_into
from dlc.ir.core import Array, Block, Builder, Evaluation, Op, Value
from dlc.ir.dims import symbol
from dlc.ir.fingerprint import fingerprint
from dlc.ir.location import FileLocation
from dlc.ir.log import DecisionLog
from dlc.ir.rewrite import EQUAL, Gone, Pattern, Rewriter
from dlc.ir.types import F32, F64, TensorType
from dlc.ir.value_map import Permuted, Reshaped, Scaled, Slice, Step, ValueMap
from dlc.ir.verify import verify
from tests.ir import toy

HERE = FileLocation("toy.dlm", 2, 3)
TYPE = TensorType(F32, (2, 3))


class Program:
    """A block of (%x: TYPE, %y: TYPE) with a rewriter."""

    def __init__(self) -> None:
        self.block = Block((TYPE, TYPE), ("x", "y"))
        self.x, self.y = self.block.arguments
        self.emit = Builder(self.block, HERE)
        self.values, self.log = ValueMap(), DecisionLog()
        self.rewriter = Rewriter(self.values, self.log)

    def end(self, *values: Value) -> Op:
        return self.emit.place(toy.End(values))

    def run(self, *patterns: tuple[type[Op], Pattern[Any]]) -> int:
        table: dict[type[Op], list[Pattern[Any]]] = {}
        for kind, pattern in patterns:
            table.setdefault(kind, []).append(pattern)
        return self.rewriter.run([self.block], table)

    def names(self) -> list[str]:
        return [op.name for op in self.block]


def first_of_copies(op: Op, rewriter: Rewriter) -> bool:
    """One copy of a value is the value."""
    match op:
        case toy.Copies(value=value, count=1):
            rewriter.replace(op, value, relation=EQUAL)
            return True
        case _:
            return False


def double_copies(op: Op, rewriter: Rewriter) -> bool:
    """Two copies become two operations that make one each."""
    if not isinstance(op, toy.Copies) or op.count != 2:
        return False
    emit = rewriter.before(op)
    made = [emit(toy.Copies(op.value, 1)) for _ in range(2)]
    rewriter.replace(op, made, relation=EQUAL)
    return True


# The rewriter.


def test_patterns_are_applied_until_none_fits_also_to_what_they_made() -> None:
    program = Program()
    one, other = program.emit.all(toy.Copies(program.x, 2))
    end = program.end(one, other)
    assert program.run((toy.Copies, double_copies), (toy.Copies, first_of_copies)) == 3
    assert end.operands == (program.x, program.x)
    assert program.names() == ["toy.end"]


def test_only_patterns_of_the_class_are_tried() -> None:
    program = Program()
    program.end(program.emit(toy.Add(program.x, program.y)))
    assert program.run((toy.Copies, first_of_copies)) == 0
    assert program.names() == ["toy.add", "toy.end"]


def test_what_nothing_uses_is_erased_on_the_way_with_what_only_it_used() -> None:
    program = Program()
    total = program.emit(toy.Add(program.x, program.y))
    program.emit(toy.Add(total, total))
    program.emit.place(toy.Facts())
    program.end(program.x)
    program.run()
    assert program.names() == ["toy.facts", "toy.end"]


def test_users_of_a_replaced_value_are_looked_at_again() -> None:
    program = Program()
    seen: list[Op] = []

    def note(op: Op, rewriter: Rewriter) -> bool:
        seen.append(op)
        return False

    [copy] = program.emit.all(toy.Copies(program.x, 1))
    user = program.emit(toy.Add(copy, program.y)).op
    assert user is not None
    program.end(*user.results)
    program.block.move(user, None)
    program.run((toy.Copies, first_of_copies), (toy.Add, note))
    assert seen.count(user) >= 1
    assert user.operands == (program.x, program.y)


def test_a_new_value_takes_over_the_name() -> None:
    program = Program()
    [copy] = program.emit.all(toy.Copies(program.x, 1))
    total = program.emit(toy.Add(copy, copy), "total")
    program.end(total)
    assert total.op is not None
    new = program.rewriter.before(total.op)(toy.Add(program.y, program.y))
    program.rewriter.replace(total.op, new, relation=EQUAL)
    assert new.name == "total"


def test_a_value_of_another_type_does_not_replace_as_an_equal_one() -> None:
    program = Program()
    total = program.emit(toy.Add(program.x, program.y))
    other = program.emit(toy.Make(F64))
    assert total.op is not None
    with pytest.raises(AssertionError, match="is replaced by a f64"):
        program.rewriter.replace(total.op, other, relation=EQUAL)


def test_new_operations_stand_before_the_old_with_its_location() -> None:
    program = Program()
    there = FileLocation("toy.dlm", 8, 8)
    total = program.emit.at(there)(toy.Add(program.x, program.y))
    assert total.op is not None
    made = program.rewriter.before(total.op).place(toy.Make(F32))
    assert made.next is total.op
    assert made.location == there


# The value map.


def test_an_origin_follows_its_value_through_replacements() -> None:
    program = Program()
    [first] = program.emit.all(toy.Copies(program.x, 1))
    [second] = program.emit.all(toy.Copies(first, 1))
    program.end(second)
    program.values.track(first, "f", "h")
    program.values.track(second, "f", "g", "toy.dlm:2:3")
    program.run((toy.Copies, first_of_copies))
    origins = program.values.of("f")
    assert origins["h"].value is origins["g"].value is program.x
    assert {origin.name for origin in program.values.origins_of(program.x)} == {"h", "g"}
    assert [origin.name for origin in program.values] == ["h", "g"]


def test_an_origin_that_nothing_uses_is_gone_and_says_why() -> None:
    program = Program()
    program.values.track(program.emit(toy.Add(program.x, program.y)), "f", "h")
    program.end(program.x)
    program.run()
    origin = program.values.of("f")["h"]
    assert origin.value is None
    assert origin.gone == Gone("nothing uses it")


def test_an_origin_whose_reader_is_rewritten_without_it_says_by_what() -> None:
    def left(op: toy.Add, rewriter: Rewriter) -> bool:
        """The second operand counts for nothing."""
        if op.operands[0] is not program.x:
            return False
        rewriter.replace(op, op.operands[0], relation=EQUAL)
        return True

    program = Program()
    inner = program.emit(toy.Add(program.y, program.y))
    program.values.track(inner, "f", "inner")
    outer = program.emit(toy.Add(inner, program.y))
    program.values.track(outer, "f", "outer")
    program.end(program.emit(toy.Add(program.x, outer)))
    program.run((toy.Add, left))
    for name in ("inner", "outer"):
        gone = program.values.of("f")[name].gone
        assert gone is not None
        assert gone.why == "its last reader was rewritten: The second operand counts for nothing"


def test_origins_of_one_name_are_numbered_in_each_function() -> None:
    program = Program()
    for value in (program.x, program.y, program.x):
        program.values.track(value, "f", "h")
    program.values.track(program.y, "g", "h")
    assert list(program.values.of("f")) == ["h", "h.1", "h.2"]
    assert list(program.values.of("g")) == ["h"]


def test_steps_lead_from_the_old_value_to_the_new() -> None:
    values = ValueMap()
    block = Block((TYPE, TensorType(F32, (3, 2)), TensorType(F32, (6,))))
    old, turned, flat = block.arguments
    values.track(old, "f", "h")
    values.replaced(old, turned, Permuted((1, 0)))
    values.replaced(turned, flat, Reshaped((3, 2)))
    origin = values.of("f")["h"]
    assert origin.value is flat
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(origin.recover(array.T.reshape(6), Evaluation()), array)


ARRAY = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("step", "new"),
    [
        (EQUAL, ARRAY),
        (Permuted((2, 0, 1)), ARRAY.transpose(2, 0, 1)),
        (Reshaped((2, symbol("T"), 4)), ARRAY.reshape(6, 4)),
        (Slice((1, 0, symbol("T")), (2, symbol("T"), 4)), np.pad(ARRAY, ((1, 1), (0, 2), (3, 1)))),
        (Scaled(0.5), ARRAY * np.float32(0.5)),
    ],
    ids=lambda item: type(item).__name__,
)
def test_the_old_value_is_recovered_from_the_new(step: Step, new: Array) -> None:
    found = step.recover(new, Evaluation({"T": 3}))
    assert found.dtype == ARRAY.dtype
    assert np.array_equal(found, ARRAY)


# The log.


def test_the_log_says_what_was_done_and_refused_where_and_why() -> None:
    program = Program()
    log = program.log
    log.current_pass = "fuse"
    total = program.emit(toy.Add(program.x, program.y), "total")
    assert total.op is not None
    log.did("fused", total.op, saved=12)
    log.refused("not fused: too large", total, size=3.5, limit="cache")
    log.did("kept", program.x)
    log.did("kept", Block((F32,)).arguments[0])
    assert [str(decision) for decision in log] == [
        "fuse: did fused: toy.add %total at toy.dlm:2:3 (saved 12)",
        "fuse: refused not fused: too large: %total at toy.dlm:2:3 (size 3.5, limit cache)",
        "fuse: did kept: %x at -",
        "fuse: did kept: argument at -",
    ]
    assert len(log) == 4


# Copies.


def nested() -> tuple[Program, Op]:
    """%x + %y inside two regions that use values around them."""
    program = Program()
    inner = Block((TYPE,), ("i",))
    inside = Builder(inner, HERE)
    total = inside(toy.Add(inner.arguments[0], program.y), "total")
    inside.place(toy.End((total,)))
    middle = Block()
    between = Builder(middle, HERE)
    deep = between(toy.Nest((program.x,), inner), "deep")
    between.place(toy.End((deep,)))
    nest = program.emit.place(toy.Nest((), middle))
    nest.attributes["test.note"] = Symbol("w")
    return program, nest


def boxed(program: Program, *values: Value) -> Op:
    """The block of a program as an operation that stands alone."""
    program.end(*values)
    box = toy.Box((), program.block)
    box.location = HERE
    return box


def test_a_copy_has_the_parts_names_and_locations_of_the_original() -> None:
    program = Program()
    total = program.emit(toy.Add(program.x, program.y), "total")
    assert total.op is not None
    copy = clone(total.op, (program.y, program.x))
    assert isinstance(copy, toy.Add)
    assert copy.operands == (program.y, program.x)
    assert (copy.location, copy.result.name, copy.parent) == (HERE, "total", None)
    copy.attributes["test.note"] = 1
    assert not total.op.attributes


def test_a_block_is_copied_with_all_that_is_in_it() -> None:
    program, nest = nested()
    block = clone_block(nest.regions[0])
    copy = program.emit.place(toy.Nest((), block))
    copy.attributes["test.note"] = Symbol("w")
    assert fingerprint(boxed(program)) == fingerprint(boxed_twice())
    verify_without_symbols(program, nest, copy)


def boxed_twice() -> Op:
    """What copying the nested operation gives, made by hand."""
    program, nest = nested()
    twin, other = nested()
    twin.block.unlink(other)
    for value, argument in ((twin.x, program.x), (twin.y, program.y)):
        value.replace_by(argument)
    program.block.append(other)
    assert nest.next is other
    return boxed(program)


def verify_without_symbols(program: Program, *ops: Op) -> None:
    for op in ops:
        del op.attributes["test.note"]
    assert program.block.parent is not None
    verify(program.block.parent)


def test_the_contents_of_a_block_are_copied_to_the_place_of_a_call() -> None:
    program, nest = nested()
    results = clone_into(nest.regions[0], program.emit, ())
    assert [value.name for value in results] == ["deep"]
    assert results[0].block is program.block
    assert program.names() == ["toy.nest", "toy.nest"]
    boxed(program, *results)
    verify_without_symbols(program, nest)


def test_arguments_stand_for_those_of_the_copied_block() -> None:
    program = Program()
    source = Block((TYPE,))
    emit = Builder(source, HERE)
    emit.place(toy.End((emit(toy.Add(source.arguments[0], source.arguments[0])), program.y)))
    total, other = clone_into(source, program.emit, (program.x,))
    assert total.op is not None
    assert total.op.operands == (program.x, program.x)
    assert other is program.y
    assert len(source) == 2


def test_the_contents_of_a_block_are_moved_to_the_place_of_a_call() -> None:
    program, nest = nested()
    middle = nest.regions[0]
    moved = list(middle)[:-1]
    results = move_into(middle, Builder.before_op(nest), ())
    assert list(program.block) == [*moved, nest]
    assert results == moved[0].results
    nest.erase()
    verify(boxed(program, *results))


def test_copying_does_not_recurse() -> None:
    block = Block()
    Builder(block, HERE).place(toy.End(()))
    for _ in range(3000):
        outer = Block()
        Builder(outer, HERE).place(toy.Nest((), block))
        Builder(outer, HERE).place(toy.End(()))
        block = outer
    copy = clone_block(block)
    assert sum(1 for _ in toy.Nest((), copy).walk()) == sum(1 for _ in toy.Nest((), block).walk())


# Fingerprints.


def program_of(names: Sequence[str], kind: type[toy.Add] = toy.Add) -> Op:
    block = Block((TYPE, TYPE), names)
    emit = Builder(block, FileLocation("toy.dlm", len(names[0]), 1))
    total = emit(kind(*block.arguments), names[0])
    emit.place(toy.End((total,)))
    return toy.Nest((), block)


def test_fingerprints_do_not_depend_on_names_and_locations() -> None:
    assert fingerprint(program_of(("a", "b"))) == fingerprint(program_of(("long", "names")))


def test_fingerprints_depend_on_which_values_are_used() -> None:
    one, other = program_of(("a", "b")), program_of(("a", "b"))
    add = other.regions[0].first
    assert add is not None
    add.set_operands(tuple(reversed(add.operands)))
    assert fingerprint(one) != fingerprint(other)


def test_a_function_may_be_copied_under_another_name() -> None:
    block = Block((TYPE,), ("x",))
    Builder(block, HERE).place(func.Return(tuple(block.arguments)))
    main = func.Func(block, "main", func.signature(block, block.arguments))
    main.location = HERE
    copy = clone(main, (), (clone_block(block),))
    copy.attributes["sym_name"] = "other"
    verify(copy)
    assert (main.sym_name, copy.attributes["sym_name"]) == ("main", "other")
