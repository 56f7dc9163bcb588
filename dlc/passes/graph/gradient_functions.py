"""New functions from one: its weights as arguments, its gradient, one number made of its results."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects import array, flow, func, weight
from dlc.dialects.flow.reverse import is_float
from dlc.ir.clone import clone_into
from dlc.ir.core import Block, Builder, Value

__all__ = ["COTANGENT", "contracted", "copied", "gradient_function", "weights_as_arguments"]

COTANGENT = "$dy"
"""Begins the names of the arguments that stand for what results receive: no input is called so."""


def weights_as_arguments(function: func.Func) -> None:
    """Let a function take as arguments, by their names, the weights that it reads."""
    body = function.body
    for op in list(body):
        if isinstance(op, weight.Get):
            argument = body.add_argument(op.type, op.symbol.name)
            op.result.replace_by(argument)
            op.erase()
    _finish(function)


def gradient_function(function: func.Func, name: str) -> func.Func:
    """What the float arguments of a function receive, `d` and their names, when its float results do.

    It takes the arguments, then a cotangent for each float result, with names as in `contracted`.
    """
    body, arguments, results = _begun(function)
    emit = Builder(body, function.location)
    cotangents = _cotangents(body, results)
    primal = Block([a.type for a in arguments], [a.name for a in arguments])
    values = clone_into(function.body, Builder(primal, function.location), primal.arguments)
    floats = [value for value in values if is_float(value)]
    Builder(primal, function.location).place(flow.Yield(floats))
    wrt = tuple([k for k, argument in enumerate(arguments) if is_float(argument)])
    found = emit.all(flow.Vjp(tuple(arguments), tuple(cotangents), primal, wrt))
    names = [f"d{arguments[k].name}" for k in wrt]
    return _made(function, name, body, found, names)


def contracted(function: func.Func, name: str) -> func.Func:
    """The sum of all elements of a function's float results, each times the element given for it.

    It takes the arguments, then one tensor for each float result, called `$dy` and its place.
    """
    body, arguments, results = _begun(function)
    emit = Builder(body, function.location)
    given = _cotangents(body, results)
    values = clone_into(function.body, emit, arguments)
    floats = [value for value in values if is_float(value)]
    total: Value | None = None
    for value, factor in zip(floats, given, strict=True):
        axes = tuple(range(array.tensor_type(value).rank))
        part = emit(array.ReduceSum(emit(array.Multiply(value, factor)), axes))
        total = part if total is None else emit(array.Add(total, part))
    assert total is not None, "a function without float results has no derivative"
    return _made(function, name, body, [total], ["total"])


def _cotangents(body: Block, results: Sequence[Value]) -> list[Value]:
    return [body.add_argument(v.type, f"{COTANGENT}{len(body.arguments)}") for v in results]


def _begun(function: func.Func) -> tuple[Block, list[Value], list[Value]]:
    """A body with the function's arguments, and the function's float results."""
    arguments = function.body.arguments
    body = Block([a.type for a in arguments], [a.name for a in arguments])
    return body, list(body.arguments), [v for v in function.results_returned if is_float(v)]


def _made(
    function: func.Func, name: str, body: Block, results: Sequence[Value], names: Sequence[str]
) -> func.Func:
    Builder(body, function.location).place(func.Return(tuple(results)))
    made = func.Func(body, name, func.signature(body, results))
    made.location = function.location
    if "dlc.dims" in function.attributes:
        made.attributes["dlc.dims"] = function.attributes["dlc.dims"]
    made.attributes["dlc.results"] = tuple(names)
    _finish(made)
    return made


def _finish(function: func.Func) -> None:
    function.attributes["dlc.inputs"] = tuple([a.name or "" for a in function.body.arguments])
    function.attributes.pop("dlc.defaults", None)
    function.retype()


def copied(function: func.Func, name: str) -> func.Func:
    """A copy of a function under another name."""
    body, arguments, _ = _begun(function)
    results = clone_into(function.body, Builder(body, function.location), arguments)
    names = function.result_names or tuple(f"result{k}" for k in range(len(results)))
    return _made(function, name, body, results, names)
