"""The module: what a file of IR holds. Its operations are upstream's."""

from __future__ import annotations

from collections.abc import Iterator

from dlc.dialects.weight import check_weights
from dlc.ir.core import Block, Op
from dlc.ir.define import attribute, op, region
from dlc.ir.location import Location
from dlc.ir.types import Type


@op("builtin.module")
class Module(Op):
    """Functions and weights, each a symbol. `stage` says which level of lowering it is at."""

    body: Block = region()
    sym_name: str | None = attribute(default=None)

    pure = False
    isolated = True
    symbol_table = True

    def infer(self) -> tuple[Type, ...]:
        return ()

    def check(self) -> None:
        for child in self.body:
            if isinstance(child, Module):
                raise child.fail("a module is in another module, whose passes would not reach it")
        check_weights(self)

    @classmethod
    def empty(cls, location: Location) -> Module:
        """A module without operations."""
        module = cls(Block())
        module.location = location
        return module

    def symbols(self) -> Iterator[tuple[str, Op]]:
        """Every named operation, in order of text."""
        for child in self.body:
            name = child.attributes.get("sym_name")
            if isinstance(name, str):
                yield name, child

    def symbol(self, name: str) -> Op | None:
        """The operation of that name."""
        return next((child for known, child in self.symbols() if known == name), None)
