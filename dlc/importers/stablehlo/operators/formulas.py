"""The expression that a region computes of single numbers, so that known functions are recognised."""

from __future__ import annotations

from typing import TypeAlias

from dlc.importers.stablehlo.facts import Elements, Node, Region

Part: TypeAlias = "tuple[Part, ...] | str | int | float | bool"
Formula: TypeAlias = "tuple[Part, ...]"
"""`("argument", 0)`, `("constant", 1.0)`, `("outer", "%7")`, or the name of an operation, for a comparison
its direction and type, and its operands; operands that may change places are in order."""

COMMUTATIVE = frozenset({"add", "and", "maximum", "minimum", "multiply", "or", "xor"})
DEEPEST = 64


def formulas(region: Region) -> tuple[Formula, ...]:
    """What a region hands over."""
    return tuple([formula(region, name) for name in region.results])


def formula(region: Region, name: str) -> Formula:
    """What a value of a region is; `("deep",)` in place of what is nested too deep."""
    makers = {result: node for node in region.nodes for result in node.results}
    return _formula(region, makers, name, DEEPEST)


def _formula(region: Region, makers: dict[str, Node], name: str, depth: int) -> Formula:
    if name in region.arguments:
        return ("argument", region.arguments.index(name))
    node = makers.get(name)
    if node is None:
        return ("outer", name)
    value = node.attributes.get("value")
    if isinstance(value, Elements) and value.array.ndim == 0:
        return ("constant", value.array.item())
    if depth == 0 or node.regions:
        return ("deep",)
    parts: list[Formula] = [
        _formula(region, makers, operand, depth - 1) for operand in node.operands
    ]
    kind = node.kind.rpartition(".")[2]
    if kind in COMMUTATIVE:
        parts.sort(key=repr)
    if kind == "compare":
        direction, of = (
            str(node.attributes.get(name, "")) for name in ("comparison_direction", "compare_type")
        )
        return (kind, direction, of, *parts)
    if kind == "convert" and node.types[0].dtype is node.operand_types[0].dtype:
        return parts[0]
    return (kind, *parts)


A, B = ("argument", 0), ("argument", 1)


def combined_by(region: Region) -> str | None:
    """The operation of two numbers that a region is, such as `add`; None for another function."""
    found = formulas(region)
    if len(found) != 1 or len(found[0]) != 3 or found[0][1:] not in ((A, B), (B, A)):
        return None
    return str(found[0][0]) if found[0][0] in COMMUTATIVE else None
