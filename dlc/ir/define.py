"""Declaring operations: a dialect's operation is a class whose fields say what it is made of.

    @op("array.transpose")
    class Transpose(Op):
        source: Value = operand()
        axes: tuple[int, ...] = attribute()

gives `Transpose(source, axes)`, `transpose.source`, `transpose.axes`, a place in the registry under
`array.transpose`, and a `match` pattern `Transpose(source=x, axes=a)`. The constructor takes the fields
in the order of declaration: single operands, groups of operands, regions, attributes. Several groups
are told apart by a `segments` attribute that the constructor writes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import cast

from dlc.ir.attributes import Attribute
from dlc.ir.core import OPS, Block, Op, OpClass, Value
from dlc.ir.fields import Field, attribute, operand, operands, region

__all__ = ["OPS", "Field", "attribute", "fields_of", "op", "operand", "operands", "region"]

_FIELDS: dict[type[Op], tuple[Field, ...]] = {}
_ORDER = {"operand": 0, "operands": 1, "region": 2, "attribute": 3}


def fields_of(cls: type[Op]) -> tuple[Field, ...]:
    """The declared fields of an operation class, in order of the constructor."""
    return _FIELDS[cls]


def op(name: str) -> Callable[[OpClass], OpClass]:
    """Declare an operation class and register it under its name in text."""

    def apply(cls: OpClass) -> OpClass:
        assert "." in name, f"{name!r} needs a dialect"
        assert name not in OPS, f"operation {name} is defined twice"
        fields = _collect(cls)
        own = [value for value in vars(cls).values() if isinstance(value, Field)]
        assert own == sorted(own, key=_by_kind), (
            f"{name}: declare operands, groups of operands, regions, attributes in this order"
        )
        _FIELDS[cls] = fields
        for field, getter in zip(fields, _getters(fields), strict=True):
            setattr(cls, field.name, property(getter, doc=field.doc))
        cls.__init__ = _constructor(cls, fields)
        cls.__match_args__ = tuple(field.name for field in fields)  # pyright: ignore[reportAttributeAccessIssue]
        cls.name = name
        OPS[name] = cls
        return cls

    return apply


def _collect(cls: type[Op]) -> tuple[Field, ...]:
    """Fields of the class and of its undeclared bases, the bases' first."""
    fields: dict[str, Field] = {}
    for base in reversed(cls.__mro__):
        for key in inspect.get_annotations(base):
            value = base.__dict__.get(key)
            if isinstance(value, Field):
                fields[key] = Field(value.kind, value.default, value.doc, key)
    return tuple(sorted(fields.values(), key=_by_kind))


def _by_kind(field: Field) -> int:
    return _ORDER[field.kind]


def _getters(fields: Sequence[Field]) -> list[Callable[[Op], object]]:
    """How each field is read from an operation's operands, regions and attributes."""
    singles = sum(field.kind == "operand" for field in fields)
    groups = [field.name for field in fields if field.kind == "operands"]
    regions = [field.name for field in fields if field.kind == "region"]
    getters: list[Callable[[Op], object]] = []
    for position, field in enumerate(fields):
        match field.kind:
            case "operand":
                getters.append(_operand_getter(position))
            case "operands" if len(groups) == 1:
                getters.append(_rest_getter(singles))
            case "operands":
                getters.append(_segment_getter(singles, groups.index(field.name)))
            case "region":
                getters.append(_region_getter(regions.index(field.name)))
            case "attribute":
                getters.append(_attribute_getter(field.name))
    return getters


def _operand_getter(index: int) -> Callable[[Op], Value]:
    return lambda self: self.operands[index]


def _rest_getter(start: int) -> Callable[[Op], tuple[Value, ...]]:
    return lambda self: self.operands[start:]


def _segment_getter(start: int, group: int) -> Callable[[Op], tuple[Value, ...]]:
    def first(self: Op) -> tuple[Value, ...]:
        return self.operands[
            start : start + cast("tuple[int, ...]", self.attributes["segments"])[0]
        ]

    def segment(self: Op) -> tuple[Value, ...]:
        sizes = self.segments
        begin = start + sum(sizes[:group])
        return self.operands[begin : begin + sizes[group]]

    return segment if group else first  # the first is asked for most of all


def _region_getter(index: int) -> Callable[[Op], Block]:
    return lambda self: self.regions[index]


def _attribute_getter(name: str) -> Callable[[Op], Attribute | None]:
    return lambda self: self.attributes.get(name)


def _constructor(cls: type[Op], fields: Sequence[Field]) -> Callable[..., None]:
    """Compile `__init__` from the fields, as dataclasses does: making an operation is one plain call."""
    names: dict[str, object] = {"Op_init": Op.__init__}
    parameters: list[str] = []
    for field in fields:
        if field.is_required:
            parameters.append(field.name)
        else:
            names[f"default_{field.name}"] = field.default
            parameters.append(f"{field.name}=default_{field.name}")
    operands = "".join(
        f"{field.name}, " if field.kind == "operand" else f"*{field.name}, "
        for field in fields
        if field.kind in ("operand", "operands")
    )
    groups = [field.name for field in fields if field.kind == "operands"]
    regions = "".join(f"{field.name}, " for field in fields if field.kind == "region")
    attributes = [field for field in fields if field.kind == "attribute"]
    entries = [f"{f.name!r}: {f.name}" for f in attributes if f.default is not None]
    if len(groups) > 1:
        entries.append(f"'segments': ({', '.join(f'len({name})' for name in groups)})")
    optional = [f.name for f in attributes if f.default is None]
    lines = [
        f"def __init__(self, {', '.join(parameters)}):",
        f"    attributes = {{{', '.join(entries)}}}",
        *(f"    if {name} is not None: attributes[{name!r}] = {name}" for name in optional),
        f"    Op_init(self, ({operands}), attributes, ({regions}))",
    ]
    exec("\n".join(lines), names)
    made = cast("Callable[..., None]", names["__init__"])
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made
