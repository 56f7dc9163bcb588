"""Functions. The operations are upstream's; what is ours is in attributes with the prefix `dlc.`.

`dlc.dialects.interface` says which there are.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.interface import HIDDEN, Interface, check_interface
from dlc.dialects.measured import measuring
from dlc.ir.core import Block, Op, Value
from dlc.ir.define import attribute, op, operands
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
class Func(Interface):
    """A function, which is an entry point of the artifact unless its visibility is private."""

    sym_visibility: str | None = attribute(default=None)

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
        check_interface(self, lambda: measuring(self))

    @property
    def results_returned(self) -> tuple[Value, ...]:
        """The values of its return."""
        return self.body.terminator.operands

    def forget_updates(self) -> None:
        """Make `inout` parameters inputs like any others: what they become is returned no more."""
        hidden = self.hidden_results
        if not hidden:
            return
        del self.attributes["dlc.updates"], self.attributes[HIDDEN]
        self.body.terminator.set_operands(self.results_returned[:-hidden])
        self.retype()

    def swap_body(self, body: Block) -> None:
        """Run another body, whose arguments stand for the same inputs."""
        self.regions = (body,)
        body.parent = self
        self.retype()

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
