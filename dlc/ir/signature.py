"""What the declaration of an operation class asks of an operation: counts, names and attribute kinds.

Constructors take what Python code gives them; text and rewrites can be wrong. The parser and the
verifier ask here, so that `infer` may rely on what the class declares.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Literal, TypeAlias, Union, cast, get_args, get_origin, get_type_hints

from dlc.ir import attributes, dims, types
from dlc.ir.attributes import Attribute, Dense, Symbol
from dlc.ir.core import Op
from dlc.ir.define import fields_of
from dlc.ir.dims import Dim
from dlc.ir.fields import Field
from dlc.ir.types import Type

Matches: TypeAlias = Callable[[object], bool]

SEGMENTS = "segments"
"""The attribute that tells several groups of operands apart."""


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
    required: frozenset[str]

    def misfits(
        self, operands: int, regions: int, attributes: Mapping[str, Attribute]
    ) -> Iterator[str]:
        """What is wrong with an operation of so many operands and regions, each as half a sentence."""
        if regions != self.regions:
            yield f"has {_count(regions, 'region')} instead of {self.regions}"
        if operands != self.operands and (not self.groups or operands < self.operands):
            least = "at least " if self.groups else ""
            yield f"has {_count(operands, 'operand')} instead of {least}{self.operands}"
        for name in sorted(self.required - attributes.keys()):
            yield f"lacks the attribute {name}: {self.attributes[name].text}"
        for name, value in attributes.items():
            kind = self.attributes.get(name)
            if kind is None:
                if "." not in name:
                    yield f"has the attribute {name}, which it does not declare"
            elif not kind.matches(value):
                yield f"has the attribute {name} that is no {kind.text}: {value!r}"
        if self.groups > 1 and _is_segments(attributes.get(SEGMENTS)):
            yield from self._wrong_segments(attributes[SEGMENTS], operands)

    def _wrong_segments(self, value: Attribute, operands: int) -> Iterator[str]:
        assert isinstance(value, tuple)
        segments = [size for size in value if isinstance(size, int)]
        if len(segments) != self.groups or min(segments) < 0:
            yield f"has segments {segments} for {self.groups} groups of operands"
        elif sum(segments) != operands - self.operands:
            grouped = _count(operands - self.operands, "operand")
            yield f"has segments {segments} for {grouped} in groups"

    def ordered(self, given: Mapping[str, Attribute]) -> dict[str, Attribute]:
        """The attributes as the constructor writes them: declared order, defaults filled in."""
        found: dict[str, Attribute] = {}
        for kind in self.attributes.values():
            value = given.get(kind.name, kind.default)
            if value is not None:
                found[kind.name] = value
        for name, value in given.items():
            found.setdefault(name, value)
        return found


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
    return Signature(
        operands=sum(field.kind == "operand" for field in fields),
        groups=groups,
        regions=sum(field.kind == "region" for field in fields),
        attributes={kind.name: kind for kind in kinds},
        required=frozenset(kind.name for kind in kinds if kind.required),
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _kind(cls: type[Op], field: Field, hints: Mapping[str, object]) -> AttributeKind:
    annotations = [inspect.get_annotations(base) for base in cls.__mro__]
    text = next(str(found[field.name]) for found in annotations if field.name in found)
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
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        choices = [_matcher(argument) for argument in arguments if argument is not type(None)]
        return choices[0] if len(choices) == 1 else lambda value: any(c(value) for c in choices)
    if origin is Literal:
        return lambda value: type(value) is str and value in arguments
    if origin is tuple:
        return _tuple_matcher(arguments)
    if hint is float:
        return lambda value: type(value) in (float, int)
    if hint is bool or hint is int or hint is str:
        return lambda value: type(value) is hint
    assert isinstance(hint, type) and issubclass(hint, (Type, Symbol, Dense, Dim)), hint
    return lambda value: isinstance(value, hint)


def _tuple_matcher(arguments: tuple[object, ...]) -> Matches:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return _all_match(_matcher(arguments[0]))
    parts = [_matcher(argument) for argument in arguments]

    def matches(value: object) -> bool:
        items = _items(value)
        return items is not None and len(items) == len(parts) and _pairwise(parts, items)

    return matches


def _all_match(item: Matches) -> Matches:
    def matches(value: object) -> bool:
        items = _items(value)
        return items is not None and all(map(item, items))

    return matches


def _pairwise(parts: list[Matches], items: tuple[object, ...]) -> bool:
    return all(part(item) for part, item in zip(parts, items, strict=True))


def _items(value: object) -> tuple[object, ...] | None:
    return cast("tuple[object, ...]", value) if isinstance(value, tuple) else None


_is_segments = _all_match(lambda size: type(size) is int)
