"""Declaring an operation: the constructor, the properties and what the declaration asks of it."""

from __future__ import annotations

import pytest

from dlc.ir.attributes import Attribute
from dlc.ir.core import OPS, Block, Op, Value
from dlc.ir.define import attribute, fields_of, op, operand
from dlc.ir.dims import symbol
from dlc.ir.signature import signature_of
from dlc.ir.types import F32, Type
from tests.ir import toy
from tests.suites import together


def arguments(count: int) -> list[Value]:
    return Block((F32,) * count).arguments


def test_the_fields_are_what_the_constructor_was_given() -> None:
    a, b, c, d = arguments(4)
    made = toy.Groups(a, (b,), (c, d), "left", "a note")
    assert (made.first, made.left, made.right) == (a, (b,), (c, d))
    assert (made.mode, made.note) == ("left", "a note")
    assert made.operands == (a, b, c, d)
    assert made.segments == (1, 2)
    assert made.attributes == {"mode": "left", "segments": (1, 2), "note": "a note"}


def test_groups_may_be_empty() -> None:
    [a] = arguments(1)
    made = toy.Groups(a, (), ())
    assert (made.left, made.right, made.segments) == ((), (), (0, 0))


def test_an_attribute_that_is_none_is_left_out() -> None:
    assert toy.Facts(number=3).attributes == {"number": 3}
    assert toy.Facts(number=3).text is None


def test_regions_belong_to_the_operation() -> None:
    first, second = Block(), Block()
    for block in (first, second):
        block.append(toy.End(()))
    made = toy.Fork(first, second)
    assert (made.first, made.second) == (first, second)
    assert first.parent is made


def test_operations_match_patterns_by_their_fields() -> None:
    a, b = arguments(2)
    match toy.Add(a, b):
        case toy.Add(lhs, rhs=other):
            assert (lhs, other) == (a, b)


def test_fields_of_a_base_class_come_first() -> None:
    class Base(Op):
        source: Value = operand()
        width: int = attribute()

    @op("test.derived")
    class Derived(Base):
        """A field of its own."""

        height: int = attribute(default=1)

        def infer(self) -> Type:
            return self.source.type

    del OPS["test.derived"]
    assert [field.name for field in fields_of(Derived)] == ["source", "width", "height"]
    assert list(signature_of(Derived).attributes) == ["width", "height"]


def test_a_name_needs_a_dialect() -> None:
    with pytest.raises(AssertionError, match="'add' needs a dialect"):
        op("add")(type("Add", (Op,), {}))


def test_a_name_is_given_once() -> None:
    with pytest.raises(AssertionError, match=r"toy\.add is defined twice"):
        op("toy.add")(type("Add", (Op,), {}))


def test_fields_are_declared_in_order_of_their_kinds() -> None:
    with pytest.raises(AssertionError, match="in this order"):

        @op("test.disorder")
        class Disorder(Op):
            size: int = attribute()
            source: Value = operand()


def test_a_default_is_of_the_declared_type() -> None:
    @op("test.wrong_default")
    class WrongDefault(Op):
        size: int = attribute(default="1")

    del OPS["test.wrong_default"]
    with pytest.raises(AssertionError, match="the default of size"):
        signature_of(WrongDefault)


def test_an_attribute_of_a_kind_that_text_cannot_hold_is_noticed() -> None:
    @op("test.wrong_kind")
    class WrongKind(Op):
        table: dict[str, int] = attribute()

    del OPS["test.wrong_kind"]
    with pytest.raises(AssertionError):
        signature_of(WrongKind)


def test_the_signature_counts_the_parts() -> None:
    signature = signature_of(toy.Groups)
    assert (signature.operands, signature.groups, signature.regions) == (1, 2, 0)
    assert list(signature.attributes) == ["mode", "segments", "note"]
    assert signature.required == ("segments",)


def test_the_signature_orders_attributes_as_the_constructor_does() -> None:
    given: dict[str, Attribute] = {"other.x": 1, "note": "n", "segments": (0, 0)}
    assert list(signature_of(toy.Groups).ordered(given).items()) == [
        ("mode", "both"),
        ("segments", (0, 0)),
        ("note", "n"),
        ("other.x", 1),
    ]


FACTS: list[tuple[str, Attribute, bool]] = [
    ("flag", True, True),
    ("flag", 1, False),
    ("number", 1, True),
    ("number", True, False),
    ("number", 1.0, False),
    ("ratio", 1.0, True),
    ("ratio", 1, True),
    ("ratio", True, False),
    ("text", "a", True),
    ("text", ("a",), False),
    ("choice", "left", True),
    ("choice", "up", False),
    ("choice", 1, False),
    ("size", 3, True),
    ("size", symbol("B"), True),
    ("size", "B", False),
    ("dim", symbol("B"), True),
    ("dim", 3, False),
    ("shape", (), True),
    ("shape", (1, symbol("B")), True),
    ("shape", (1, True), False),
    ("shape", 1, False),
    ("axes", (1, 0), True),
    ("axes", (1, symbol("B")), False),
    ("names", ("a", "b"), True),
    ("names", "ab", False),
    ("pair", (1, "a"), True),
    ("pair", (1,), False),
    ("pair", ("a", 1), False),
    ("types", (F32, toy.Make(F32).type), True),
    ("types", (F32, 1), False),
    ("dtype", F32, True),
    ("dtype", "f32", False),
    ("function", F32, False),
    ("value", 1, False),
]


@together(("name", "value", "fits"), FACTS)
def test_an_attribute_fits_its_declared_type_or_not(
    name: str, value: Attribute, fits: bool
) -> None:
    misfits = signature_of(toy.Facts).misfits(0, 0, {name: value})
    assert (misfits == []) == fits


def test_every_operation_known_has_a_signature() -> None:
    for cls in OPS.values():
        signature = signature_of(cls)
        assert set(signature.required) <= set(signature.attributes)
