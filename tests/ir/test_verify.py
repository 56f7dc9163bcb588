"""What the verifier finds."""

from __future__ import annotations

import pytest

from dlc.dialects import func, weight
from dlc.dialects.builtin import Module
from dlc.errors import Diagnostic, ModelError
from dlc.errors.catalog import PAGES
from dlc.ir.attributes import Symbol
from dlc.ir.core import PENDING, Block, Builder, Op, Value
from dlc.ir.location import FileLocation
from dlc.ir.types import F32, F64, FunctionType, TensorType
from dlc.ir.verify import MAX_FINDINGS, verify
from tests.ir import toy
from tests.ir.random_modules import RandomModule

HERE = FileLocation("toy.dlm", 2, 3)


class Program:
    """A module with a function of (%x: f32, %y: f64) whose return is yet to come."""

    def __init__(self) -> None:
        self.module = Module.empty(HERE)
        self.body = Block((F32, F64), ("x", "y"))
        self.x, self.y = self.body.arguments
        self.emit = Builder(self.body, HERE)

    def done(self, *results: Value) -> Module:
        self.emit.place(func.Return(results))
        self.main = func.Func(self.body, "main", func.signature(self.body, results))
        Builder(self.module.body, HERE).place(self.main)
        return self.module


def findings(op: Op) -> tuple[Diagnostic, ...]:
    with pytest.raises(ModelError) as caught:
        verify(op)
    found = caught.value.diagnostics
    assert {each.code for each in found} <= PAGES.keys()
    return found


def messages(op: Op) -> list[str]:
    return [f"{each.code}: {each.message}" for each in findings(op)]


def block(*ops: Op) -> Block:
    """A block of these operations and an end."""
    made = Block()
    emit = Builder(made, HERE)
    for op in (*ops, toy.End(())):
        emit.place(op)
    return made


def test_random_modules_are_as_they_must_be() -> None:
    for seed in range(20):
        verify(RandomModule(seed).module())


def test_a_finding_names_the_place() -> None:
    program = Program()
    op = program.emit.place(toy.Facts(number=1))
    op.attributes["number"] = "one"
    [found] = findings(program.done())
    assert str(found.place) == "toy.dlm:2:3"


# Types.


def test_results_have_the_types_that_infer_gives() -> None:
    program = Program()
    total = program.emit(toy.Add(program.x, program.x), "total")
    total.type = F64
    assert messages(program.done()) == ["D0155: toy.add gives [f32], its results are [f64]"]


def test_what_infer_refuses_is_a_finding() -> None:
    program = Program()
    op = program.emit.place(toy.Add(program.x, program.x))
    op.set_operands((program.x, program.y))
    assert messages(program.done()) == ["D0301: cannot add f32 and f64"]


def test_infer_that_relies_on_more_than_is_declared_is_a_finding() -> None:
    program = Program()
    whole = program.emit(toy.Make(TensorType(F32, (2,))))
    op = program.emit.place(toy.Fragile((whole,)))
    op.set_operands(())
    [found] = messages(program.done())
    assert found.startswith("D0159: toy.fragile cannot be made of these parts: not enough values")


# Declared parts.


@pytest.mark.parametrize(
    ("attributes", "complaint"),
    [
        ({}, "lacks the attribute type: Type"),
        ({"type": "f32"}, "has the attribute type that is no Type: 'f32'"),
        ({"type": F32, "more": 1}, "has the attribute more, which it does not declare"),
    ],
)
def test_attributes_are_those_that_the_class_declares(
    attributes: dict[str, object], complaint: str
) -> None:
    program = Program()
    op = program.emit.place(toy.Make(F32))
    op.attributes = attributes  # pyright: ignore[reportAttributeAccessIssue]
    assert messages(program.done()) == [f"D0158: toy.make {complaint}"]


def test_attributes_with_a_dot_in_their_name_are_anyones() -> None:
    program = Program()
    program.emit.place(toy.Make(F32)).attributes["other.note"] = "x"
    verify(program.done())


def test_operands_are_as_many_as_the_class_declares() -> None:
    program = Program()
    op = program.emit.place(toy.Add(program.x, program.x))
    op.set_operands((program.x,))
    assert messages(program.done()) == ["D0158: toy.add has 1 operand instead of 2"]


def test_segments_fit_the_operands() -> None:
    program = Program()
    op = program.emit.place(toy.Groups(program.x, (program.x,), ()))
    op.set_operands((program.x,))
    assert messages(program.done()) == [
        "D0158: toy.groups has segments [1, 0] for 0 operands in groups"
    ]


# Values and where they are visible.


def test_a_value_is_defined_before_it_is_used() -> None:
    program = Program()
    first = program.emit(toy.Make(F32), "first")
    second = program.emit(toy.Add(first, first), "second")
    assert first.op is not None
    program.body.move(first.op, None)
    assert messages(program.done(second)) == ["D0153: toy.add uses %first before it is defined"]


def test_a_region_sees_the_values_around_it() -> None:
    program = Program()
    inner = toy.Add(program.x, program.x)
    program.emit.place(toy.Nest((), block(toy.Nest((), block(inner)))))
    verify(program.done())


def test_an_isolated_region_does_not() -> None:
    program = Program()
    program.emit.place(toy.Box((), block(toy.Nest((), block(toy.Add(program.x, program.x))))))
    assert messages(program.done()) == [
        "D0153: toy.add uses %x from outside of toy.box, which uses no values around it"
    ]


def test_values_of_a_region_are_not_visible_after_it() -> None:
    program = Program()
    inner = toy.Make(F32)
    program.emit.place(toy.Nest((), block(inner)))
    program.emit.place(toy.Add(inner.result, inner.result))
    assert messages(program.done()) == [
        "D0153: toy.add uses result 0 of toy.make, which is defined in another region"
    ]


def test_values_of_a_region_are_not_visible_in_its_neighbour() -> None:
    program = Program()
    inner = toy.Make(F32)
    program.emit.place(toy.Fork(block(inner), block(toy.Add(inner.result, inner.result))))
    assert messages(program.done()) == [
        "D0153: toy.add uses result 0 of toy.make, which is defined in another region"
    ]


def test_the_results_of_an_operation_are_not_visible_in_its_regions() -> None:
    program = Program()
    user = toy.Add(program.x, program.x)
    inner = Block()
    emit = Builder(inner, HERE)
    emit.place(user)
    emit.place(toy.End((program.x,)))
    nest = program.emit.place(toy.Nest((), inner))
    user.set_operands((nest.result, nest.result))
    assert messages(program.done()) == [
        "D0153: toy.add uses result 0 of toy.nest before it is defined"
    ]


def test_a_value_of_an_operation_that_was_taken_out_is_not_visible() -> None:
    program = Program()
    made = program.emit.place(toy.Make(F32))
    program.emit.place(toy.Add(made.result, made.result))
    program.body.unlink(made)
    assert messages(program.done()) == [
        "D0153: toy.add uses result 0 of toy.make, whose operation is in no block"
    ]


def test_a_part_may_use_the_values_around_it() -> None:
    program = Program()
    inner = toy.Add(program.x, program.x)
    nest = program.emit.place(toy.Nest((program.x,), block(toy.Nest((), block(inner)))))
    later = program.emit(toy.Make(F32), "later")
    program.done()
    verify(nest)
    inner.set_operands((later, later))
    assert messages(nest) == ["D0153: toy.add uses %later, which is defined in another region"]


def test_a_part_of_an_isolated_operation_may_not_use_the_values_around_that() -> None:
    program = Program()
    inner = toy.Nest((), block(toy.Add(program.x, program.x)))
    program.emit.place(toy.Box((), block(inner)))
    program.done()
    assert messages(inner) == ["D0153: toy.add uses %x, which is defined in another region"]


# Blocks.


def test_a_region_ends_with_a_terminator() -> None:
    program = Program()
    nest = program.emit.place(toy.Nest((), block(toy.Make(F32))))
    nest.regions[0].terminator.erase()
    assert messages(program.done()) == [
        "D0160: the region of toy.nest does not end with an operation that may end one"
    ]


def test_an_empty_region_has_no_terminator() -> None:
    program = Program()
    nest = program.emit.place(toy.Nest((), block()))
    nest.regions[0].clear()
    assert messages(program.done()) == [
        "D0160: the region of toy.nest does not end with an operation that may end one"
    ]


def test_a_terminator_stands_nowhere_else() -> None:
    program = Program()
    program.emit.place(toy.Nest((), block(toy.End(()))))
    assert messages(program.done()) == ["D0160: toy.end is not the last operation of its region"]


# Symbols.


def source(name: str) -> weight.Source:
    return weight.Source(name, TensorType(F32, ()), "key")


def test_symbols_are_unique() -> None:
    program = Program()
    module = program.done()
    emit = Builder(module.body, HERE)
    emit.place(source("w"))
    emit.place(source("main"))
    assert messages(module) == ["D0162: there are two symbols @main"]


def test_symbols_stand_in_modules() -> None:
    program = Program()
    program.emit.place(source("w"))
    assert messages(program.done()) == [
        "D0162: weight.source is in func.func, which has no symbols"
    ]


def test_references_to_symbols_resolve() -> None:
    program = Program()
    program.emit.place(weight.Get(Symbol("w"), TensorType(F32, ())))
    module = program.done()
    [found] = messages(module)
    assert found == "D0162: weight.get refers to @w, which the module does not have"
    Builder(module.body, HERE).place(source("w"))
    verify(module)
    verify(program.main)


def test_symbols_in_lists_and_in_anyones_attributes_resolve_too() -> None:
    program = Program()
    op = program.emit.place(toy.Make(F32))
    op.attributes["other.list"] = (1, ("a", Symbol("gone")))
    assert messages(program.done()) == [
        "D0162: toy.make refers to @gone, which the module does not have"
    ]


def test_without_a_module_around_symbols_are_not_looked_up() -> None:
    op = weight.Get(Symbol("w"), TensorType(F32, ()))
    op.location = HERE
    verify(op)


# The graph in memory.


def test_every_operation_has_a_location() -> None:
    program = Program()
    op = program.emit.place(toy.Make(F32))
    op.location = PENDING
    assert messages(program.done()) == ["D0163: toy.make has no location"]


def test_a_value_knows_its_uses() -> None:
    program = Program()
    op = program.emit.place(toy.Add(program.x, program.x))
    program.x.uses[op] = 1
    assert messages(program.done()) == ["D0163: %x does not know that toy.add uses it"]


def test_a_value_knows_its_use_as_one_of_many_operands() -> None:
    program = Program()
    op = program.emit.place(toy.Groups(program.x, (program.x,) * 20, (program.y,) * 20))
    verify(program.done())
    program.y.uses[op] = 19
    assert messages(program.module) == ["D0163: %y does not know that toy.groups uses it"]


def test_a_value_knows_of_no_uses_that_are_none() -> None:
    program = Program()
    op = program.emit.place(toy.Make(F32))
    program.x.uses[op] = 1
    assert messages(program.done()) == ["D0163: %x knows of a use by toy.make that is none"]


def test_a_value_knows_of_no_users_that_were_taken_out() -> None:
    program = Program()
    op = program.emit.place(toy.Add(program.x, program.x))
    program.body.unlink(op)
    assert messages(program.done()) == ["D0163: %x knows of a use by toy.add that is none"]


def test_a_result_knows_its_place() -> None:
    program = Program()
    op = program.emit.place(toy.Copies(program.x, 2))
    op.results[1].index = 0
    assert messages(program.done()) == ["D0163: result 0 of toy.copies does not know its place"]


def test_an_argument_knows_its_place() -> None:
    program = Program()
    program.y.owner = Block()
    assert messages(program.done()) == ["D0163: %y does not know its place"]


def test_a_region_knows_its_owner() -> None:
    program = Program()
    nest = program.emit.place(toy.Nest((), block()))
    nest.regions[0].parent = None
    assert messages(program.done()) == ["D0163: a region of toy.nest has another owner"]


def test_an_operation_knows_its_block() -> None:
    program = Program()
    op = program.emit.place(toy.Make(F32))
    module = program.done()
    op.parent = Block()
    assert messages(module) == ["D0163: toy.make and its neighbours disagree about its place"]


def test_neighbours_know_each_other_even_in_a_circle() -> None:
    program = Program()
    first = program.emit.place(toy.Make(F32))
    second = program.emit.place(toy.Make(F64))
    module = program.done()
    second.next = first
    assert messages(module) == ["D0163: toy.make and its neighbours disagree about its place"]


def test_a_block_knows_its_end() -> None:
    program = Program()
    first = program.emit.place(toy.Make(F32))
    module = program.done()
    program.body.last = first
    assert messages(module) == ["D0163: a region of func.func has another end"]


# The error.


def test_so_many_findings_are_reported_and_no_more() -> None:
    program = Program()
    for _ in range(MAX_FINDINGS + 10):
        program.emit.place(toy.Make(F32)).location = PENDING
    assert len(findings(program.done())) == MAX_FINDINGS


def test_what_is_in_a_wrong_region_does_not_count_against_its_owner() -> None:
    program = Program()
    inner = toy.Make(F32)
    nest = program.emit.place(toy.Nest((), block(inner)))
    inner.location = PENDING
    nest.regions[0].terminator.set_operands((inner.result,))
    assert messages(program.done()) == ["D0163: toy.make has no location"]


def test_regions_nested_thousands_deep_are_verified_without_recursion() -> None:
    op: Op = toy.Nest((), block())
    for _ in range(3000):
        op = toy.Nest((), block(op))
    body = block(op)
    outer = toy.Box((), body)
    outer.location = HERE
    verify(outer)


def test_functions_return_what_their_type_says() -> None:
    program = Program()
    module = program.done(program.x)
    program.main.attributes["function_type"] = FunctionType((F32, F64), (F64,))
    assert messages(module) == ["D0301: @main returns [f32], its type says [f64]"]
