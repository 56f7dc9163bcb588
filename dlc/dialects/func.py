"""Functions. The operations are upstream's; what is ours is in attributes with the prefix `dlc.`.

`dlc.dialects.interface` says which there are.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.interface import (
    Bounds,
    bounds_of,
    check_interface,
    input_names_of,
    result_names_of,
    updates_of,
)
from dlc.dialects.measured import measuring
from dlc.ir.core import Block, Op, Value
from dlc.ir.define import attribute, op, operands, region
from dlc.ir.types import FunctionType, Type


@op("func.return")
class Return(Op):
    """End a function with these results."""

    values: Sequence[Value] = operands()

    pure = False
    terminator = True

    def infer(self) -> tuple[Type, ...]:
        return ()


@op("func.func")
class Func(Op):
    """A function, which is an entry point of the artifact unless its visibility is private."""

    body: Block = region()
    sym_name: str = attribute()
    function_type: FunctionType = attribute()
    sym_visibility: str | None = attribute(default=None)

    pure = False
    isolated = True

    def infer(self) -> tuple[Type, ...]:
        inputs = tuple([argument.type for argument in self.body.arguments])
        if inputs != self.function_type.inputs:
            raise self.fail(
                f"the body of @{self.sym_name} takes {list(inputs)}, "
                f"its type says {list(self.function_type.inputs)}"
            )
        last = self.body.last
        if isinstance(last, Return):
            results = tuple([value.type for value in last.values])
            if results != self.function_type.results:
                raise self.fail(
                    f"@{self.sym_name} returns {list(results)}, "
                    f"its type says {list(self.function_type.results)}"
                )
        return ()

    def check(self) -> None:
        check_interface(self, self.sym_name, self.function_type, frozenset(measuring(self)))

    @property
    def results_returned(self) -> tuple[Value, ...]:
        """The values of its return."""
        return self.body.terminator.operands

    @property
    def bounds(self) -> Bounds:
        """Lowest and highest value of each named dim."""
        return bounds_of(self)

    @property
    def input_names(self) -> tuple[str, ...]:
        """The user's names of the arguments."""
        return input_names_of(self, self.function_type)

    @property
    def result_names(self) -> tuple[str, ...]:
        """The user's names of the results; empty where they have none."""
        return result_names_of(self)

    @property
    def updates(self) -> dict[int, int]:
        """For each result that is written over an argument: the numbers of both."""
        return updates_of(self)

    def retype(self) -> None:
        """Make the type say what the body takes and returns now."""
        self.attributes["function_type"] = FunctionType(
            tuple([argument.type for argument in self.body.arguments]),
            tuple([value.type for value in self.results_returned]),
        )


def signature(body: Block, results: Sequence[Value]) -> FunctionType:
    """The type of a function with this body and these results."""
    return FunctionType(
        tuple([argument.type for argument in body.arguments]),
        tuple([value.type for value in results]),
    )
