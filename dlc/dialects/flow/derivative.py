"""Derivatives as operations: vector-Jacobian products, custom derivatives, and `stop_gradient`."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.array.elementwise import show
from dlc.dialects.decomposed import Decomposed
from dlc.dialects.flow.precision import narrow_products
from dlc.dialects.flow.regions import Yield, check_arguments, types_of, yielded
from dlc.dialects.flow.reverse import Backward, is_float, pull_back, repeated, sweep, zeros
from dlc.errors import ModelError
from dlc.ir.clone import clone_block, clone_into, move_into
from dlc.ir.core import Array, Block, Builder, Evaluation, Op, Value
from dlc.ir.define import attribute, op, operand, operands, region
from dlc.ir.types import DType, Type
from dlc.ir.value_map import ValueMap

__all__ = ["Custom", "StopGradient", "Vjp"]


@op("flow.vjp")
class Vjp(Decomposed):
    """Vector-Jacobian product: the cotangents of a function's inputs, given those of its results.

    The body is the function; there is one cotangent for each of its results that is a float. The results
    are those of the function, if `with_value` says so, and then one for each input in `wrt`: the sum over
    all results of the cotangent times the derivative by that input. The decomposition is the function
    followed by its reverse, which refers to the function's values and computes none of them again. With
    `precision` the function's products, and so those of the reverse, are computed in that dtype.
    """

    inputs: Sequence[Value] = operands()
    cotangents: Sequence[Value] = operands()
    body: Block = region()
    wrt: tuple[int, ...] = attribute()
    with_value: bool = attribute(default=False)
    precision: DType | None = attribute(
        default=None, doc="bf16 or f16: the function's products in it"
    )

    isolated = True

    def infer(self) -> tuple[Type, ...]:
        check_arguments(self, "the function", self.body, types_of(self.inputs))
        results = yielded(self.body)
        floats = list(filter(is_float, results))
        if types_of(floats) != types_of(self.cotangents):
            raise self.fail(
                f"the results that have a derivative are ({', '.join(map(show, floats))}), "
                f"they receive ({', '.join(map(show, self.cotangents))})",
                code="D0408",
            )
        for index in self.wrt:
            if not 0 <= index < len(self.inputs):
                raise self.fail(f"the function has no input {index}", code="D0408")
            if not is_float(self.inputs[index]):
                raise self._no_derivative(index)
        return (
            *(types_of(results) if self.with_value else ()),
            *[self.inputs[index].type for index in self.wrt],
        )

    def _no_derivative(self, index: int) -> ModelError:
        names = [argument.name or f"input {k}" for k, argument in enumerate(self.body.arguments)]
        floats = [name for name, value in zip(names, self.inputs, strict=True) if is_float(value)]
        return self.fail(
            f"{names[index]}: {show(self.inputs[index])} has no derivative",
            code="D0404",
            help=f"did you mean {floats[0]}?" if floats else None,
        )

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        return self._reverse(clone_block(self.body), emit, ValueMap())

    def expand(self, emit: Builder, values: ValueMap) -> tuple[Value, ...]:
        """As `decompose`, but the body moves out: its values stay the ones that they are.

        The operation is of no use afterwards. `values` learns what becomes of values in the body that
        operations without a rule of their own computed.
        """
        return self._reverse(self.body, emit, values)

    def _reverse(self, body: Block, emit: Builder, values: ValueMap) -> tuple[Value, ...]:
        """Move the body to where `emit` stands and its reverse behind it."""
        if self.precision is not None:
            narrow_products(body, self.precision, _replace)
        back = Backward(Block(), self.location, values)
        seeds, passed = self._seeds(body, back)
        wrt = [body.arguments[index] for index in self.wrt]
        pulled_back = pull_back(body, wrt, seeds, back)
        received = [
            cotangent or zeros(back, value)
            for cotangent, value in zip(pulled_back, wrt, strict=True)
        ]
        back.place(Yield((*(yielded(body) if self.with_value else ()), *received)))
        sweep(back.block)
        move_into(body, emit, self.inputs)
        return move_into(back.block, emit, passed)

    def _seeds(self, body: Block, back: Backward) -> tuple[list[Value | None], list[Value]]:
        """What each result of the body receives in the backward block, and what is passed for it."""
        cotangents = iter(self.cotangents)
        seeds: list[Value | None] = []
        passed: list[Value] = []
        for value in yielded(body):
            cotangent = next(cotangents) if is_float(value) else None
            seed = cotangent and repeated(back, cotangent, value)
            if cotangent is not None and seed is None:
                seed = back.block.add_argument(cotangent.type, cotangent.name)
                passed.append(cotangent)
            seeds.append(seed)
        return seeds, passed


def _replace(op: Op, values: Sequence[Value]) -> None:
    for old, new in zip(op.results, values, strict=True):
        old.replace_by(new)
    op.erase()


@op("flow.custom")
class Custom(Decomposed):
    """The results of the function `primal`, which brings its own derivative.

    `rule` takes the inputs, the results, and a cotangent for each result that is a float; it hands over
    what each input that is a float receives. Without differentiation only `primal` is left.
    """

    inputs: Sequence[Value] = operands()
    primal: Block = region()
    rule: Block = region()

    isolated = True

    def infer(self) -> tuple[Type, ...]:
        check_arguments(self, "the function", self.primal, types_of(self.inputs))
        results = yielded(self.primal)
        arguments = [*self.inputs, *results, *filter(is_float, results)]
        check_arguments(self, "the rule", self.rule, types_of(arguments))
        floats = list(filter(is_float, self.inputs))
        if types_of(yielded(self.rule)) != types_of(floats):
            raise self.fail(
                f"the rule gives ({', '.join(map(show, yielded(self.rule)))}), "
                f"the inputs that have a derivative are ({', '.join(map(show, floats))})",
                code="D0409",
            )
        return types_of(results)

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        return clone_into(self.primal, emit, self.inputs)

    def expand(self, emit: Builder) -> tuple[Value, ...]:
        """As `decompose`, but the body moves out and the operation is of no use afterwards."""
        return move_into(self.primal, emit, self.inputs)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        floats = [c for c, result in zip(cotangents, self.results, strict=True) if is_float(result)]
        received = iter(clone_into(self.rule, emit, [*self.inputs, *self.results, *floats]))
        return tuple([next(received) if is_float(value) else None for value in self.inputs])


@op("flow.stop_gradient")
class StopGradient(Decomposed):
    """The source itself, which receives nothing from what is done with the result."""

    source: Value = operand()

    def infer(self) -> Type:
        return self.source.type

    def decompose(self, emit: Builder) -> tuple[Value, ...]:
        return (self.source,)

    def evaluate(self, at: Evaluation, *inputs: Array) -> tuple[Array, ...]:
        return (at.constant(self.results[0], inputs[0]),)

    def gradient(self, emit: Builder, *cotangents: Value) -> tuple[Value | None, ...]:
        return (None,)
