"""Signatures of operation classes: the numbers of operands and regions, and the types of attributes.

The parser and the verifier check operations against them, since text and rewrites can be wrong, so that
`infer` may rely on what the class declares.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Literal, TypeAlias, Union, cast, get_args, get_origin, get_type_hints

from dlc.ir import attributes, dims, types
from dlc.ir.attributes import Attribute, Dense, DialectAttribute, Symbol
from dlc.ir.core import Op
from dlc.ir.define import fields_of
from dlc.ir.dims import Dim
from dlc.ir.fields import Field
from dlc.ir.types import Type

Matches: TypeAlias = Callable[[object], bool]

WRONG_PARTS = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""What `infer` may raise, besides ModelError, for parts that no constructor would be given."""

SEGMENTS = "segments"
"""The attribute with the sizes of several groups of operands (MLIR: `operandSegmentSizes`)."""


@dataclass(frozen=True, slots=True)
class AttributeKind:
    """One attribute that a class declares."""

    name: str
    text: str
    """Its type as the class writes it."""
    matches: Matches
    default: Attribute | None
    required: bool


@dataclass(frozen=True, slots=True)
class Signature:
    """The shape of every operation of one class; `attributes` are in the order of its constructor."""

    operands: int
    groups: int
    regions: int
    attributes: Mapping[str, AttributeKind]
    required: tuple[str, ...]
    is_bare: bool
    """Whether single operands are all that must be there."""
    is_symbol: bool
    """Whether it has a name in a module."""
    refers: bool
    """Whether a declared attribute may refer to a symbol."""

    def misfits(
        self, operands: int, regions: int, attributes: Mapping[str, Attribute]
    ) -> list[str]:
        """The mismatches of an operation with these numbers of operands and regions, as predicates."""
        problems: list[str] = []
        if regions != self.regions:
            problems.append(f"has {_count(regions, 'region')} instead of {self.regions}")
        if operands != self.operands and (not self.groups or operands < self.operands):
            least = "at least " if self.groups else ""
            problems.append(f"has {_count(operands, 'operand')} instead of {least}{self.operands}")
        declared, present = self.attributes, 0
        for name, value in attributes.items():
            kind = declared.get(name)
            if kind is None:
                if "." not in name:
                    problems.append(f"has the attribute {name}, which it does not declare")
                continue
            present += 1
            if not kind.matches(value):
                problems.append(f"has the attribute {name} that is no {kind.text}: {value!r}")
        if present < len(declared):
            for name in self.required:
                if name not in attributes:
                    problems.append(f"lacks the attribute {name}: {declared[name].text}")
        if self.groups > 1 and _is_segments(attributes.get(SEGMENTS)):
            problems += self._wrong_segments(attributes[SEGMENTS], operands)
        return problems

    def _wrong_segments(self, value: Attribute, operands: int) -> Iterator[str]:
        assert isinstance(value, tuple)
        segments = [size for size in value if isinstance(size, int)]
        if len(segments) != self.groups or min(segments) < 0:
            yield f"has segments {segments} for {self.groups} groups of operands"
        elif sum(segments) != operands - self.operands:
            grouped = _count(operands - self.operands, "operand")
            yield f"has segments {segments} for {grouped} in groups"

    def ordered(self, attributes: Mapping[str, Attribute]) -> dict[str, Attribute]:
        """The attributes as the constructor sets them: in declared order, with defaults filled in."""
        result: dict[str, Attribute] = {}
        for kind in self.attributes.values():
            value = attributes.get(kind.name, kind.default)
            if value is not None:
                result[kind.name] = value
        for name, value in attributes.items():
            result.setdefault(name, value)
        return result


@cache
def signature_of(cls: type[Op]) -> Signature:
    """The signature of a declared operation class."""
    fields = fields_of(cls)
    hints = get_type_hints(cls, localns=_NAMES)
    declared = [field for field in fields if field.kind == "attribute"]
    groups = sum(field.kind == "operands" for field in fields)
    # The constructor writes what is always there first, then the segments, then what may be None.
    kinds = [_kind(cls, field, hints) for field in declared if field.default is not None]
    if groups > 1:
        kinds.append(AttributeKind(SEGMENTS, "tuple[int, ...]", _is_segments, None, True))
    kinds += [_kind(cls, field, hints) for field in declared if field.default is None]
    regions = sum(field.kind == "region" for field in fields)
    required = tuple([kind.name for kind in kinds if kind.required])
    return Signature(
        operands=sum(field.kind == "operand" for field in fields),
        groups=groups,
        regions=regions,
        attributes={kind.name: kind for kind in kinds},
        required=required,
        is_bare=not (groups or regions or required),
        is_symbol=any(kind.name == "sym_name" for kind in kinds),
        refers=any(_mentions_symbol(hints[field.name]) for field in declared),
    )


def _mentions_symbol(hint: object) -> bool:
    return hint is Symbol or any(map(_mentions_symbol, get_args(hint)))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _kind(cls: type[Op], field: Field, hints: Mapping[str, object]) -> AttributeKind:
    annotations = [inspect.get_annotations(base) for base in cls.__mro__]
    text = next(
        str(hints_of_base[field.name])
        for hints_of_base in annotations
        if field.name in hints_of_base
    )
    default = None if field.is_required else field.default
    matches = _matcher(hints[field.name])
    assert default is None or matches(default), f"{cls.name}: the default of {field.name}"
    return AttributeKind(field.name, text, matches, default, field.is_required)  # pyright: ignore[reportArgumentType]


# What a declared type may be made of. The aliases are strings, so their parts are named here.
_NAMES = {
    name: value
    for module in (dims, attributes, types)
    for name, value in vars(module).items()
    if name[:1].isupper()
}


def _matcher(hint: object) -> Matches:
    """Whether a value is of a declared type. Asserts that the type is one an attribute can have."""
    arguments = get_args(hint)
    classes = _classes(hint)
    if classes is not None:
        return lambda value: type(value) in classes
    if get_origin(hint) in (Union, UnionType):
        choices = [_matcher(argument) for argument in arguments if argument is not NoneType]
        return lambda value: any(choice(value) for choice in choices)
    if get_origin(hint) is Literal:
        return lambda value: type(value) is str and value in arguments
    if get_origin(hint) is tuple:
        return _tuple_matcher(arguments)
    assert isinstance(hint, type) and issubclass(hint, Type | DialectAttribute), hint
    return lambda value: isinstance(value, hint)


def _classes(hint: object) -> frozenset[object] | None:
    """The classes of the values of a declared type, where it is made of classes without subclasses."""
    if get_origin(hint) in (Union, UnionType):
        choices = [_classes(argument) for argument in get_args(hint) if argument is not NoneType]
        present = [choice for choice in choices if choice is not None]
        return frozenset[object]().union(*present) if len(present) == len(choices) else None
    if hint is float:
        return frozenset((float, int))
    return frozenset((hint,)) if hint in _PLAIN else None


_PLAIN: frozenset[object] = frozenset((bool, int, str, Symbol, Dense, Dim))


def _tuple_matcher(arguments: tuple[object, ...]) -> Matches:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        classes = _classes(arguments[0])
        return _all_match(_matcher(arguments[0])) if classes is None else _all_of(classes)
    parts = [_matcher(argument) for argument in arguments]

    def matches(value: object) -> bool:
        items = _items(value)
        return (
            items is not None
            and len(items) == len(parts)
            and all(part(item) for part, item in zip(parts, items, strict=True))
        )

    return matches


def _all_match(item: Matches) -> Matches:
    def matches(value: object) -> bool:
        items = _items(value)
        return items is not None and all(map(item, items))

    return matches


def _all_of(classes: frozenset[object]) -> Matches:
    """As `_all_match` for plain classes, but quick."""

    def matches(value: object) -> bool:
        return isinstance(value, tuple) and classes.issuperset(map(type, value))  # pyright: ignore[reportUnknownArgumentType]

    return matches


def _items(value: object) -> tuple[object, ...] | None:
    return cast("tuple[object, ...]", value) if isinstance(value, tuple) else None


_is_segments = _all_of(frozenset((int,)))
