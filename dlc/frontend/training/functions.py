"""The functions of a `train` block, loss and metrics: their inputs, and the numbers that they give."""

from __future__ import annotations

from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.problems import Poisoned
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.elaboration.tensors import as_tensor, convert, dtype_of, tensor_type
from dlc.frontend.elaboration.types import declared_type
from dlc.frontend.elaboration.values import UNKNOWN, Callee, Datum, Record, describe
from dlc.frontend.modules.instances import Instance
from dlc.frontend.sources.files import File
from dlc.ir.core import Value
from dlc.ir.dims import symbol
from dlc.ir.types import F32, TensorType
from dlc.text.model import ast

__all__ = ["declared_input", "loss_values", "one_number", "part_names", "scope_of"]


def scope_of(root: Instance) -> Scope:
    """A scope in which the sizes that the file declares are symbols."""
    scope = Scope(root)
    home = root.core.definition.home
    assert isinstance(home, File)
    scope.names.update({n: symbol(n) for n in home.dims() if root.is_dim(n)})
    return scope


def declared_input(
    ev: Evaluator, parameter: ast.Parameter, scope: Scope, count: int = 1
) -> TensorType:
    """The type of a parameter of the loss or a metric, which becomes an argument of the top block.

    The argument has the examples of `count` microbatches of that type.
    """
    if not isinstance(parameter.type, ast.TensorType):
        raise ev.at.fail(
            "D0334",
            f"{parameter.name} has no type",
            parameter.span,
            help=f"write its type: {parameter.name}: f32[B, 10]",
        )
    type = declared_type(ev, parameter.type, scope)
    argument = type
    if count > 1 and type.shape:
        first, *rest = type.shape
        argument = type.with_shape((first * count, *rest))
    scope.names[parameter.name] = ev.at.top.add_argument(argument, parameter.name)
    return type


def loss_values(ev: Evaluator, value: Datum, body: ast.Expr) -> list[Value]:
    """The numbers that a loss gives: the one that is trained on, then those that are recorded, as f32.

    Several are a tuple with names, `(loss = a + b, a = a, b = b)`, of which the first counts.
    """
    if not isinstance(value, Record):
        return [one_number(ev, "loss", value, body, floats=True)]
    if None in value.names:
        raise ev.at.fail(
            "D0532",
            "a loss of several numbers names each of them",
            body.span,
            help="write (loss = total, reconstruction = a, divergence = b): the first is trained on",
        )
    first, *rest = value.items
    numbers = [one_number(ev, "loss", first, body, floats=True)]
    for name, item in zip(value.names[1:], rest, strict=True):
        number = one_number(ev, name or "", item, body, floats=False)
        numbers.append(convert(ev.at, number, F32))
    return numbers


def part_names(value: Datum) -> tuple[str, ...]:
    """The names of the numbers that a loss gives besides the first."""
    names = value.names[1:] if isinstance(value, Record) else ()
    return tuple([name for name in names if name is not None])


def one_number(ev: Evaluator, name: str, value: Datum, body: ast.Expr, *, floats: bool) -> Value:
    """The value of the loss or a metric, which is one number."""
    at = ev.at
    at.stand(body.span)
    if value is UNKNOWN:
        raise Poisoned
    number = as_tensor(at, value) if not isinstance(value, Callee) else None
    if number is None or tensor_type(number).rank or (floats and not dtype_of(number).is_float):
        raise at.fail(
            "D0532",
            f"{name} is one number, found {describe(value)}",
            body.span,
            help="take the mean: mean(...)",
        )
    return number
