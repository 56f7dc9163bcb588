"""What dlc prints is MLIR: MLIR's own parser and xDSL's read it, and print what means the same.

`make oracles` makes their environments; without them these tests are skipped.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

from dlc.dialects.builtin import Module
from dlc.driver.compile.compile import lower
from dlc.driver.compile.pipelines import STAGES
from dlc.driver.compile.settings import Settings
from dlc.ir.core import Builder
from dlc.ir.location import UnknownLocation
from dlc.text.ir.parser import parse_op
from dlc.text.ir.printer import print_module
from tests import example_models, op_examples
from tests.ir import toy
from tests.ir.random_modules import RandomModule
from tests.op_examples.example import EXAMPLES
from tests.oracles.oracle import Oracle, Reading, oracle
from tests.text.ir.test_printer import ATTRIBUTES, CONSTANTS, LOCATIONS

assert op_examples.__doc__, "importing it makes the examples known"
SEEDS = range(40)


@pytest.fixture(autouse=True)
def toys() -> Generator[None]:
    with toy.registered():
        yield


@pytest.fixture(params=["mlir", "xdsl"])
def reader(request: pytest.FixtureRequest) -> Oracle:
    return oracle(str(request.param))


def without_names(module: Module) -> Module:
    """The module with its values numbered: other programs call them otherwise."""
    for op in module.walk():
        arguments = [argument for block in op.regions for argument in block.arguments]
        for value in (*op.results, *arguments):
            value.name = None
    return module


def sorted_text(module: Module) -> str:
    """The text without what MLIR does not keep: names, and the order of attributes."""
    for op in module.walk():
        op.attributes = dict(sorted(op.attributes.items()))
    return print_module(without_names(module))


NOT_KEPT = {
    "mlir": (),
    # xDSL prints zeros of both signs as equal ones, and makes signalling NaNs quiet.
    "xdsl": ("dense<[0.0, -0.0]> : tensor<2xf32>", 'dense<"0x0100807F"> : tensor<1xf32>'),
}
"""Constants whose bits change when a reader reads and prints them."""


def every_attribute(reader: Oracle) -> Module:
    """A module with the attributes and locations that the tests of the printer have."""
    module = Module.empty(UnknownLocation())
    values = [value for value, _ in ATTRIBUTES]
    for constant, text in CONSTANTS:
        if text not in NOT_KEPT[reader.name]:
            values.append(constant)
    for value in values:
        op = toy.Facts()
        op.attributes["test.value"] = value
        Builder(module.body, UnknownLocation("an attribute")).place(op)
    for location, _ in LOCATIONS:
        Builder(module.body, location).place(toy.Facts())
    return module


def check(reader: Oracle, modules: list[Module]) -> None:
    """All modules are read, and what is printed again means the same."""
    texts = [print_module(without_names(module), locations=True) for module in modules]
    readings = reader.read(texts)
    assert [reading.error for reading in readings] == [None] * len(modules)
    for module, reading in zip(modules, readings, strict=True):
        assert reading.text is not None
        assert sorted_text(parse_op(reading.text, "oracle", Module)) == sorted_text(module)


def test_they_read_every_kind_of_attribute_and_location(reader: Oracle) -> None:
    check(reader, [every_attribute(reader)])


def test_they_read_random_modules(reader: Oracle) -> None:
    check(reader, [RandomModule(seed).module() for seed in SEEDS])


def test_they_read_every_example_of_an_operation(reader: Oracle) -> None:
    modules = [example.module() for examples in EXAMPLES.values() for example in examples]
    assert modules
    check(reader, modules)


def test_they_read_names_of_values(reader: Oracle) -> None:
    texts = [print_module(RandomModule(seed).module()) for seed in SEEDS]
    assert [reading.error for reading in reader.read(texts)] == [None] * len(texts)


def levels(name: str, level: int) -> list[Module]:
    """A model at every level, from its graph as it is read to its loops."""
    found: list[Module] = []
    opened = example_models.opened(name)
    for stage in STAGES:
        found.append(parse_op(print_module(opened.module, locations=True), name, Module))
        lower(opened, Settings(level), stage)
    return [*found, opened.module]


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("name", ["poly", "lenet", "residual", "byte_lm"])
def test_they_read_every_level_of_a_model(reader: Oracle, name: str, level: int) -> None:
    modules = levels(name, level)
    assert all(len(list(module.walk())) > 10 for module in modules)
    check(reader, modules)


WRONG = [
    pytest.param('"func.func"() {sym_name = "x"} : () -> ()', "region", id="function without body"),
    pytest.param('"func.return"() : () -> i32', "result", id="return with a result"),
]


@pytest.mark.parametrize(("text", "reason"), WRONG)
def test_they_know_upstreams_operations_and_refuse_wrong_ones(
    reader: Oracle, text: str, reason: str
) -> None:
    [reading] = reader.read([text])
    assert reading.error is not None
    assert reason in reading.error


def test_they_refuse_a_function_whose_type_is_not_that_of_its_body(reader: Oracle) -> None:
    right = print_module(RandomModule(0).module(functions=1, operations=0))
    wrong = right.replace("function_type = (", "function_type = (i64, ", 1)
    readings = reader.read([right, wrong])
    assert readings[0] == Reading(text=readings[0].text)
    assert readings[1].error is not None
