"""Functions. The operations are upstream's; what is ours is in attributes with the prefix `dlc.`.

`dlc.dims = ["B = 1..1024", "T = 1.."]` names the symbolic sizes and their bounds, `dlc.inputs` and
`dlc.results` the arguments and results as the user knows them, `dlc.defaults` default values (an empty
string where there is none), `dlc.updates` for each result the argument whose memory it takes over (an
empty string for memory of its own), `dlc.doc` the documentation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dlc.ir.attributes import Attribute
from dlc.ir.core import Block, Op, Value
from dlc.ir.define import attribute, op, operands, region
from dlc.ir.types import FunctionType, Type

_BOUND = re.compile(r"(\w+) = (\d+)\.\.(\d*)")


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

    @property
    def results_returned(self) -> tuple[Value, ...]:
        """The values of its return."""
        return self.body.terminator.operands

    @property
    def bounds(self) -> dict[str, tuple[int, int | None]]:
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


def input_names_of(op: Op, type: FunctionType) -> tuple[str, ...]:
    """The user's names of what a function of this type, or its plan, takes."""
    return _texts(op, "dlc.inputs") or tuple(f"arg{index}" for index in range(len(type.inputs)))


def result_names_of(op: Op) -> tuple[str, ...]:
    """The user's names of what a function or its plan gives; empty where they have none."""
    return _texts(op, "dlc.results")


def updates_of(op: Op) -> dict[int, int]:
    """For each result that `dlc.updates` of a function or its plan names an argument for: its number."""
    inputs, updates = op.attributes.get("dlc.inputs", ()), op.attributes.get("dlc.updates", ())
    assert isinstance(inputs, tuple)
    assert isinstance(updates, tuple)
    return {result: inputs.index(name) for result, name in enumerate(updates) if name}


def _texts(op: Op, key: str) -> tuple[str, ...]:
    values = op.attributes.get(key, ())
    assert isinstance(values, tuple)
    return tuple([value for value in values if isinstance(value, str)])


def bounds_of(op: Op) -> dict[str, tuple[int, int | None]]:
    """Lowest and highest value of each named dim of a function, or of the program made of it."""
    found: dict[str, tuple[int, int | None]] = {}
    for text in _texts(op, "dlc.dims"):
        match = _BOUND.fullmatch(text)
        if match is None:
            raise op.fail(f"{text!r} is no bound of a dim; write 'B = 1..64' or 'B = 1..'")
        found[match[1]] = (int(match[2]), int(match[3]) if match[3] else None)
    return found


def bounds_attribute(bounds: dict[str, tuple[int, int | None]]) -> tuple[Attribute, ...]:
    """The attribute `dlc.dims` for these bounds."""
    return tuple(
        f"{name} = {low}..{'' if high is None else high}" for name, (low, high) in bounds.items()
    )


def signature(body: Block, results: Sequence[Value]) -> FunctionType:
    """The type of a function with this body and these results."""
    return FunctionType(
        tuple([argument.type for argument in body.arguments]),
        tuple([value.type for value in results]),
    )
