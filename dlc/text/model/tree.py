"""Walking, dumping and comparing syntax trees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from typing import cast

from dlc.text.model.ast import Node

__all__ = ["children", "dump", "same", "walk"]

LEAVES = frozenset(
    ("Span", "Source", "str", "str | None", "int", "int | None", "int | float", "bool")
)
"""The annotations of fields without nodes."""


def children(node: Node) -> list[Node]:
    """The nodes directly below `node`, in the order of the text."""
    found: list[Node] = []
    for name in _node_fields(type(node)):
        value: object = getattr(node, name)
        if isinstance(value, Node):
            found.append(value)
        elif isinstance(value, tuple):
            found += cast("tuple[Node, ...]", value)
    return found


def walk(node: Node) -> Iterator[Node]:
    """`node` and everything below it, parents first, in the order of the text."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting += reversed(children(current))


def same(one: Node, other: Node) -> bool:
    """Whether two trees say the same, wherever they stand."""
    waiting: list[tuple[object, object]] = [(one, other)]
    while waiting:
        left, right = waiting.pop()
        ones, others = _items(left), _items(right)
        if ones is not None and others is not None:
            if len(ones) != len(others):
                return False
            waiting += zip(ones, others, strict=True)
        elif isinstance(left, Node):
            if type(left) is not type(right):
                return False
            names = _telling_fields(type(left))
            waiting += [(getattr(left, name), getattr(right, name)) for name in names]
        elif type(left) is not type(right) or repr(left) != repr(right):  # 0.0 and -0.0 differ
            return False
    return True


def _items(value: object) -> tuple[object, ...] | None:
    return cast("tuple[object, ...]", value) if isinstance(value, tuple) else None


def dump(node: Node) -> str:
    """The tree without its places: `Unary('-', Name('x'))`."""
    parts = (_dump_value(getattr(node, name)) for name in _telling_fields(type(node)))
    return f"{type(node).__name__}({', '.join(parts)})"


def _dump_value(value: object) -> str:
    if isinstance(value, Node):
        return dump(value)
    if isinstance(value, tuple):
        return f"({''.join(f'{dump(item)},' for item in cast('tuple[Node, ...]', value))})"
    return repr(value)


@cache
def _telling_fields(kind: type[Node]) -> tuple[str, ...]:
    """The fields that say something: not the places."""
    return tuple(f.name for f in fields(kind) if f.type not in ("Span", "Source"))


@cache
def _node_fields(kind: type[Node]) -> tuple[str, ...]:
    """The fields that hold nodes: not the places, nor names and numbers."""
    return tuple(f.name for f in fields(kind) if f.type not in LEAVES)
