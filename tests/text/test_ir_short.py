"""The short spelling of IR says all that the generic one says, but for locations."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from dlc.dialects.builtin import Module
from dlc.driver.compile.compile import lower
from dlc.driver.compile.pipelines import STAGES
from dlc.driver.compile.settings import Settings
from dlc.errors import ModelError
from dlc.ir.attributes import Attribute
from dlc.ir.core import Op
from dlc.ir.location import UnknownLocation
from dlc.text.ir.printer import print_module
from dlc.text.ir.short import parse_short, print_short
from tests import example_models, op_examples
from tests.ir import toy
from tests.ir.random_modules import RandomModule
from tests.op_examples.example import EXAMPLES
from tests.suites import every, together
from tests.text.ir.test_printer import ATTRIBUTES, CONSTANTS, holding, same

assert op_examples.__doc__, "importing it makes the examples known"


@pytest.fixture(autouse=True)
def toys() -> Generator[None]:
    with toy.registered():
        yield


def assert_read_back(module: Op) -> None:
    """The short text of a module, read again, has the same generic and the same short text."""
    text = print_short(module)
    ops = parse_short(text, "a.dlir")
    again: Op
    if ops and isinstance(ops[0], Module):
        (again,) = ops
    else:
        again = Module.empty(UnknownLocation())
        for op in ops:
            again.regions[0].append(op)
    assert print_module(again) == print_module(module)
    assert print_short(again) == text


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_every_operation_is_read_back(name: str) -> None:
    for example in EXAMPLES[name]:
        assert_read_back(example.module())


def test_random_modules_are_read_back() -> None:
    made: set[str] = set()
    for seed in range(40):
        random = RandomModule(seed)
        assert_read_back(random.module())
        made |= random.made
    assert len(made) > 120, "the random modules have too few operations to say something"


@pytest.mark.parametrize("name", every(2, ["poly", "byte_lm", "lenet"]))
def test_a_model_is_read_back_at_every_level(name: str) -> None:
    opened = example_models.opened(name)
    for stage in STAGES:
        lower(opened, Settings(2), stage)
        assert_read_back(opened.module)


@together("value", [value for value, _ in (*ATTRIBUTES, *CONSTANTS)], ids=repr)
def test_an_attribute_is_read_back_equal(value: Attribute) -> None:
    (found,) = parse_short(print_short(holding(value)), "a.dlir")
    assert same(found.attributes["test.value"], value)


SHORT = """\
weight.source @w {type=f32[4, 2], key="w", init="zeros"}
func @f {dlc.dims=["B = 1..64"]} (%x: f32[B, 4]) {
  %0 = array.fill {value=2.0, type=f32[B, 4]}
  %y = array.multiply %x, %0
  %z = array.transpose %y {axes=[1, 0]}
  %k = kernel.generic %z {domain=[4, B]} (%i0: index, %i1: index, %1: f32[4, B]) {
    %2 = kernel.load %1, %i0, %i1
    kernel.yield %2
  }
  return %k
}
"""


def short(text: str) -> str:
    return "".join(map(print_short, parse_short(text, "a.dlir")))


def test_what_can_be_inferred_is_left_out() -> None:
    assert short(SHORT) == SHORT


def test_an_empty_module_and_one_with_attributes_say_that_they_are_modules() -> None:
    module = Module.empty(UnknownLocation())
    assert print_short(module) == "module {\n}\n"
    assert_read_back(module)
    module.attributes["dlc.limits"] = ("exact",)
    assert print_short(module) == 'module {dlc.limits=["exact"]} {\n}\n'
    assert_read_back(module)


def test_a_function_may_stand_on_one_line() -> None:
    line = "func @f(%x: f32[2, 2]) { %a = array.matmul %x, %x   return %a, %a }"
    assert short(line) == (
        "func @f(%x: f32[2, 2]) {\n  %a = array.matmul %x, %x\n  return %a, %a\n}\n"
    )


def test_results_of_the_next_operation_are_not_operands() -> None:
    text = "func @f() { toy.end %a, %b = toy.copies %c }"
    with pytest.raises(ModelError, match="%c is used, but not defined before"):
        parse_short(text, "a.dlir")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("func @f() { return %x }", "a.dlir:1:20: error[D0153]: %x is used, but not defined"),
        ("func @f() { %a = array.ad return }", "there is no operation array.ad"),
        ("func @f(%x: f33[2]) { return %x }", "'f33' is not an element type"),
        ("func @f(%x: f32[2]) { %y = array.exp %x, %x  return %y }", "has 2 operands instead of 1"),
        ("func @f(%x: f32[2]) { %y, %z = array.exp %x  return %y }", "2 names for the 1 results"),
        ("func @f(%x: f32[2, 3]) { %y = array.matmul %x, %x  return %y }", "cannot multiply"),
        ("func @f(%x: f32[2]) { return %x", "expected"),
        ("func @f(%x: f32[2]) { %y = array.transpose %x {axes=<}>} return %y }", "expected"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ModelError) as raised:
        parse_short(text, "a.dlir")
    assert any(message in str(diagnostic) for diagnostic in raised.value.diagnostics)
