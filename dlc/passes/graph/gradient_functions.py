"""Functions derived from another: with weights as arguments, its gradient, a scalar of its results."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array, flow, func, weight
from dlc.dialects.flow.reverse import is_float
from dlc.dialects.interface import NEEDS
from dlc.ir.clone import clone_into
from dlc.ir.core import Block, Builder, Value

__all__ = ["COTANGENT", "contracted", "copied", "gradient_function", "weights_as_arguments"]

COTANGENT = "$dy"
"""Begins the names of cotangent arguments; no input can have such a name."""


def weights_as_arguments(function: func.Func) -> None:
    """Make the weights that a function reads arguments of it, under their names."""
    body = function.body
    for op in list(body):
        if isinstance(op, weight.Get):
            argument = body.add_argument(op.type, op.symbol.name)
            op.result.replace_by(argument)
            op.erase()
    _finish(function)


def gradient_function(function: func.Func, name: str) -> func.Func:
    """The vector-Jacobian product of a function: a gradient for each float argument, named `d` + its name.

    It takes the arguments, then a cotangent for each float result, with names as in `contracted`.
    """
    body, arguments, results = _new_body(function)
    emit = Builder(body, function.location)
    cotangents = _cotangents(body, results)
    primal = Block([a.type for a in arguments], [a.name for a in arguments])
    values = clone_into(function.body, Builder(primal, function.location), primal.arguments)
    floats = [value for value in values if is_float(value)]
    Builder(primal, function.location).place(flow.Yield(floats))
    wrt = tuple([k for k, argument in enumerate(arguments) if is_float(argument)])
    gradients = emit.all(flow.Vjp(tuple(arguments), tuple(cotangents), primal, wrt))
    names = [f"d{arguments[k].name}" for k in wrt]
    return _new_function(function, name, body, gradients, names)


def contracted(function: func.Func, name: str) -> func.Func:
    """The scalar product of a function's float results with given cotangents.

    It takes the arguments, then a cotangent for each float result, called `$dy` and its index.
    """
    body, arguments, results = _new_body(function)
    emit = Builder(body, function.location)
    cotangents = _cotangents(body, results)
    values = clone_into(function.body, emit, arguments)
    floats = [value for value in values if is_float(value)]
    total: Value | None = None
    for value, factor in zip(floats, cotangents, strict=True):
        axes = tuple(range(array.tensor_type(value).rank))
        term = emit(array.ReduceSum(emit(array.Multiply(value, factor)), axes))
        total = term if total is None else emit(array.Add(total, term))
    assert total is not None, "a function without float results has no derivative"
    return _new_function(function, name, body, [total], ["total"])


def _cotangents(body: Block, results: Sequence[Value]) -> list[Value]:
    return [body.add_argument(v.type, f"{COTANGENT}{len(body.arguments)}") for v in results]


def _new_body(function: func.Func) -> tuple[Block, list[Value], list[Value]]:
    """A block with the arguments of a function, those arguments, and the float results of the function."""
    arguments = function.body.arguments
    body = Block([a.type for a in arguments], [a.name for a in arguments])
    return body, list(body.arguments), [v for v in function.results_returned if is_float(v)]


def _new_function(
    function: func.Func, name: str, body: Block, results: Sequence[Value], names: Sequence[str]
) -> func.Func:
    Builder(body, function.location).place(func.Return(tuple(results)))
    new_function = func.Func(body, name, func.signature(body, results))
    new_function.location = function.location
    for kept in ("dlc.dims", NEEDS):
        if kept in function.attributes:
            new_function.attributes[kept] = function.attributes[kept]
    new_function.attributes["dlc.results"] = tuple(names)
    _finish(new_function)
    return new_function


def _finish(function: func.Func) -> None:
    function.attributes["dlc.inputs"] = tuple([a.name or "" for a in function.body.arguments])
    function.attributes.pop("dlc.defaults", None)
    function.retype()


def copied(function: func.Func, name: str) -> func.Func:
    """A copy of a function under another name."""
    body, arguments, _ = _new_body(function)
    results = clone_into(function.body, Builder(body, function.location), arguments)
    names = function.result_names or tuple(f"result{k}" for k in range(len(results)))
    return _new_function(function, name, body, results, names)
