"""`grad`, `vjp`, `value_and_grad`, and functions that bring a rule of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dlc.dialects import array, flow, weight
from dlc.dialects.array import show
from dlc.errors import ModelError
from dlc.errors.suggest import did_you_mean
from dlc.frontend.builtins.registry import SPECIALS
from dlc.frontend.elaboration.calls import Function, bind
from dlc.frontend.elaboration.evaluator import Evaluator, Special, calls
from dlc.frontend.elaboration.problems import Poisoned
from dlc.frontend.elaboration.rules import leaves, refilled
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.elaboration.tensors import as_tensor, broadcast_to, dtype_of, tensor_type
from dlc.frontend.elaboration.trace import capture
from dlc.frontend.elaboration.types import DTYPES
from dlc.frontend.elaboration.values import (
    UNKNOWN,
    Argument,
    Arguments,
    Callee,
    Datum,
    Items,
    Record,
    describe,
)
from dlc.ir.core import Block, Value
from dlc.ir.types import DType, TensorType
from dlc.text.model import ast
from dlc.text.source import Span

__all__ = ["Derivative"]

PARAMS: Final = "params"


@dataclass(frozen=True, slots=True)
class OneWeight:
    """A weight in `wrt`, by its symbol."""

    symbol: str


@dataclass(frozen=True, slots=True, eq=False)
class Derivative(Callee):
    """A function made by `grad`, `vjp` or `value_and_grad`; `wrt` names parameters of `function`."""

    kind: str
    function: Callee
    wrt: tuple[str | OneWeight, ...]
    single: bool
    """Whether one name was given rather than a tuple of names."""

    @property
    def called(self) -> str:
        return f"the derivative of {self.function.called}"

    @property
    def parameter_names(self) -> tuple[str, ...]:
        names = self.function.parameter_names
        return (*names, "dy") if self.kind == "vjp" else names


# Making derivatives -------------------------------------------------------------------------------


def _derivative(ev: Evaluator, node: ast.Call, scope: Scope) -> Datum:
    """`grad(f, wrt=a)`: `wrt` is not evaluated, it names parameters of f."""
    assert isinstance(node.function, ast.Name)
    kind = node.function.name
    named = {item.name: item.value for item in node.arguments if item.name is not None}
    positional = [item.value for item in node.arguments if item.name is None]
    wrt = named.pop("wrt", None)
    target = positional[0] if positional else named.pop("f", None)
    if target is None or len(positional) > 1 or named:
        raise ev.at.fail(
            "D0208",
            f"{kind} takes a function and perhaps wrt",
            node.span,
            help=f"{kind}(f, wrt=x) is a function: call it with the arguments of f",
        )
    function = ev.eval(target, scope)
    if function is UNKNOWN:
        raise Poisoned
    if not isinstance(function, Callee):
        raise ev.at.fail(
            "D0320",
            f"{kind} takes a function, found {describe(function)}",
            target.span,
            help=f"pass the function itself: {kind}(f, wrt=x)(x)",
        )
    names = function.parameter_names
    if wrt is None:
        if not names:
            help = "name a weight that it uses, wrt=head.w, or all of them: wrt=params"
            raise ev.at.fail(
                "D0422", f"{function.called} has no parameters", target.span, help=help
            )
        return Derivative(kind, function, (names[0],), single=True)
    wrt_arguments = (
        wrt.items if isinstance(wrt, ast.Tuple) else (ast.Argument(wrt.span, None, wrt),)
    )
    chosen = tuple([_variable(ev, item.value, scope, function) for item in wrt_arguments])
    return Derivative(kind, function, chosen, single=not isinstance(wrt, ast.Tuple))


def _variable(ev: Evaluator, node: ast.Expr, scope: Scope, function: Callee) -> str | OneWeight:
    """What a derivative is taken by: a parameter of the function, `params`, or a weight by its path."""
    names = function.parameter_names
    if isinstance(node, ast.Name) and (node.name in names or node.name == PARAMS):
        return node.name
    if isinstance(node, ast.Attribute | ast.Index) or (
        isinstance(node, ast.Name) and isinstance(scope.find(node.name), Value)
    ):
        return _weight(ev, node, scope)
    name = node.name if isinstance(node, ast.Name) else "this"
    raise ev.at.fail(
        "D0422",
        f"{name} is not a parameter of {function.called}",
        node.span,
        help=did_you_mean(name, [*names, PARAMS]) or f"it has {', '.join(names)}",
    )


def _weight(ev: Evaluator, node: ast.Expr, scope: Scope) -> OneWeight:
    value = ev.eval(node, scope)
    if value is UNKNOWN:
        raise Poisoned
    if isinstance(value, Value) and isinstance(value.op, weight.Get):
        return OneWeight(value.op.symbol.name)
    raise ev.at.fail(
        "D0422",
        f"{describe(value)} is not a weight by which a derivative is taken",
        node.span,
        help="name a whole weight by its path, wrt=head.w, or all of them: wrt=params",
    )


HOW: Final = (
    " `wrt` names a parameter of f (by default the first), a weight by its path (head.w), a tuple of "
    "them, or `params`: all trained weights that f uses, as a tuple with their paths as names."
)
for _name, _doc, _example, _result in (
    (
        "grad",
        "The function with f's parameters that gives the derivative of f, one float, by `wrt`."
        + HOW,
        "grad(square)(3.0)",
        "6.0",
    ),
    (
        "value_and_grad",
        "The function that gives f's value and its derivative by `wrt`." + HOW,
        "value_and_grad(square)(3.0)",
        "(9.0, 6.0)",
    ),
    (
        "vjp",
        "The function with f's parameters and `dy`, which f's result receives, that gives what `wrt` "
        "receives." + HOW,
        "vjp(sin)([0.0, 0.0], dy=[1, 2])",
        "[1.0, 2.0]",
    ),
):
    SPECIALS[_name] = Special(
        _name, _derivative, f"{_name}(f, wrt=x)", _doc, _example, _result, "derivatives"
    )


# Calling derivatives ------------------------------------------------------------------------------


@calls(Derivative)
def _call_derivative(ev: Evaluator, derivative: Derivative, arguments: Arguments) -> Datum:
    return _Differentiation(ev, derivative, arguments).result()


class _Differentiation:
    """One call of a derivative: the function is elaborated into a region on fresh arguments."""

    def __init__(self, ev: Evaluator, derivative: Derivative, arguments: Arguments) -> None:
        self.ev, self.at = ev, ev.at
        self.derivative = derivative
        self.function = derivative.function
        self.arguments = arguments
        self.body = Block()
        self.passed: list[Value] = []

    def result(self) -> Datum:
        at, derivative = self.at, self.derivative
        inner_arguments, dy = self._arguments()
        at.stand(self.arguments.span)
        with at.inside(self.body):
            values = self._elaborated(inner_arguments)
            at.place(flow.Yield(tuple(values)))
        seeds = self._seeds(values, dy)
        captured = capture([self.body])
        weights = [value for value in captured if self._is_wanted(value)]
        inputs = [*self.passed, *captured]
        wrt = [*range(len(self.passed)), *[inputs.index(value) for value in weights]]
        at.stand(self.arguments.span)
        with_value = derivative.kind == "value_and_grad"
        op = flow.Vjp(tuple(inputs), tuple(seeds), self.body, tuple(wrt), with_value)
        results = at.all(op)
        gradients = self._shaped(list(results[len(values) if with_value else 0 :]), weights)
        return Record.of((results[0], gradients)) if with_value else gradients

    def _is_wanted(self, value: Value) -> bool:
        """Whether the derivative is taken by this value, if that is a weight."""
        if not isinstance(value.op, weight.Get) or not tensor_type(value).dtype.is_float:
            return False
        wrt = self.derivative.wrt
        return PARAMS in wrt or OneWeight(value.op.symbol.name) in wrt

    # Arguments ------------------------------------------------------------------------------------

    def _arguments(self) -> tuple[Arguments, Argument | None]:
        """The arguments for the function, with block arguments in place of those in `wrt`; and dy."""
        arguments, dy = self.arguments, None
        if self.derivative.kind == "vjp":
            named = dict(arguments.named)
            dy = named.pop("dy", None)
            arguments = Arguments(arguments.positional, named, arguments.source, arguments.span)
        names = self.function.parameter_names
        bound = bind(self.ev, self.function.called, [(n, False) for n in names], arguments)
        for name in self.derivative.wrt:
            if isinstance(name, OneWeight) or (name == PARAMS and name not in names):
                continue
            argument = bound.get(name)
            if argument is None:
                raise self.at.fail(
                    "D0208", f"{self.derivative.called} needs {name}", arguments.span
                )
            bound[name] = Argument(self._fresh(name, argument), argument.span)
        return Arguments((), bound, arguments.source, arguments.span), dy

    def _fresh(self, name: str, argument: Argument) -> Datum:
        """A block argument for each tensor in the value that the derivative is taken by."""
        value = argument.value
        if value is UNKNOWN:
            raise Poisoned
        if isinstance(value, Record):
            items = [self._fresh(name, Argument(item, argument.span)) for item in value.items]
            return Record(tuple(items), value.names)
        tensor = as_tensor(self.at, value, self._declared_dtype(name, value))
        if not dtype_of(tensor).is_float:
            raise self._no_derivative(name, tensor, argument.span)
        self.passed.append(tensor)
        return self.body.add_argument(tensor.type, name)

    def _declared_dtype(self, name: str, value: Datum) -> DType | None:
        if isinstance(value, Value):
            return None
        function = self.function
        if isinstance(function, Function):
            for parameter in function.declaration.parameters:
                if parameter.name == name and isinstance(parameter.type, ast.TensorType):
                    return DTYPES.get(parameter.type.dtype)
        return None

    def _no_derivative(self, name: str, value: Value, span: Span) -> ModelError:
        others = self._differentiable(name)
        return self.at.fail(
            "D0404",
            f"{name}: {show(value)} has no derivative",
            place=self.arguments.source.place(span),
            help=f"did you mean {others[0]}?" if others else "only floats have derivatives",
        )

    def _differentiable(self, name: str) -> list[str]:
        """Parameters whose declared type is of floats, then weights of the function's module."""
        candidates: list[str] = []
        function = self.function
        if isinstance(function, Function):
            for parameter in function.declaration.parameters:
                type = parameter.type
                if parameter.name != name and isinstance(type, ast.TensorType):
                    dtype = DTYPES.get(type.dtype)
                    if dtype is not None and dtype.is_float:
                        candidates.append(parameter.name)
            candidates += [weight_name for weight_name, _ in function.home.weights()]
        return candidates

    # The function ---------------------------------------------------------------------------------

    def _elaborated(self, arguments: Arguments) -> list[Value]:
        """The tensors that the function returns."""
        result = self.ev.call(self.function, arguments)
        self.at.stand(self.arguments.span)
        if self.derivative.kind == "vjp":
            return leaves(self.ev, result)
        value = as_tensor(self.at, result) if not isinstance(result, Record) else None
        if value is None or tensor_type(value).rank or not dtype_of(value).is_float:
            raise self.at.fail(
                "D0423",
                f"{self.derivative.kind} needs a function to one float, "
                f"{self.function.called} gives {describe(result)}",
                help="sum it up, or use vjp(f, wrt=...)(..., dy=...)",
            )
        return [value]

    def _seeds(self, values: Sequence[Value], dy: Argument | None) -> list[Value]:
        """The cotangents of the results: ones, or `dy`."""
        floats = [value for value in values if dtype_of(value).is_float]
        types = [tensor_type(value) for value in floats]
        if self.derivative.kind != "vjp":
            return [array.fill(self.at, 1, type) for type in types]
        if dy is None:
            raise self.at.fail(
                "D0208",
                f"the vjp of {self.function.called} needs dy",
                self.arguments.span,
                help="say what the result receives: dy=ones([..])",
            )
        parts = list(dy.value.items) if isinstance(dy.value, Record) else [dy.value]
        if len(parts) != len(types):
            raise self.at.fail(
                "D0320",
                f"{self.function.called} gives {len(types)} floats, dy has {len(parts)}",
                dy.span,
            )
        return [self._seed(part, type, dy.span) for part, type in zip(parts, types, strict=True)]

    def _seed(self, part: Datum, type: TensorType, span: Span) -> Value:
        self.at.stand(span)
        value = as_tensor(self.at, part, type.dtype)
        if not tensor_type(value).rank and not isinstance(part, Value | Items):
            value = broadcast_to(self.at, value, type.shape)
        if value.type is not type:
            other = value.type is type.with_dtype(dtype_of(value))
            help = f"convert it: {type.dtype.name}(...)" if other else None
            told = f"{show(value)} given where {type.text} is expected"
            raise self.at.fail("D0320", told, span, help=help)
        return value

    # Results --------------------------------------------------------------------------------------

    def _shaped(self, gradients: list[Value], weights: Sequence[Value]) -> Datum:
        """The derivatives in the form of `wrt`."""
        names = self.function.parameter_names
        count = len(gradients) - len(weights)
        rest = gradients[:count]
        parts: list[Datum] = []
        by_path = dict(zip([value.name for value in weights], gradients[count:], strict=True))
        for name in self.derivative.wrt:
            if isinstance(name, OneWeight):
                parts.append(self._by_weight(name, by_path))
            elif name == PARAMS and name not in names:
                paths = tuple([value.name for value in weights])
                parts.append(Record(tuple(gradients[count:]), paths))
            else:
                parts.append(refilled(self._argument(name), rest))
        return parts[0] if self.derivative.single else Record.of(tuple(parts))

    def _by_weight(self, name: OneWeight, gradients: Mapping[str | None, Value]) -> Datum:
        if name.symbol not in gradients:
            raise self.at.fail(
                "D0422",
                f"{self.function.called} does not depend on {name.symbol}, or that is not a float",
                self.arguments.span,
                help="take the derivative by a weight of floats that the function uses",
            )
        return gradients[name.symbol]

    def _argument(self, name: str) -> Datum:
        names = self.function.parameter_names
        if name in self.arguments.named:
            return self.arguments.named[name].value
        return self.arguments.positional[names.index(name)].value
