"""`inout` parameters of entry points: what a call writes into the arrays that are passed for them."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.errors import Label
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.tensors import as_tensor, broadcast_to, dtype_of, tensor_type
from dlc.frontend.elaboration.trace import Inout
from dlc.frontend.elaboration.values import Datum, describe
from dlc.ir.core import Value
from dlc.text.model import ast

__all__ = ["assigned", "final_values", "set_inout"]


def set_inout(ev: Evaluator, inout: Inout, statement: ast.Set, value: Datum) -> None:
    """Note what an `inout` parameter is after the call.

    Its name keeps the value from before the call, as that of a state does. Raises ModelError: D0228
    within a loop or a branch and for a second `set`, D0321 for a value of another type.
    """
    at, name = ev.at, statement.name
    if at.block is not at.top:
        raise at.fail(
            "D0228",
            f"`set {name}` is in a loop or a branch, and a call sets {name} once",
            statement.span,
            help=f"let the loop or the branch give the value, and write set {name} = ... after it",
        )
    if inout.set_by is not None:
        first = Label(at.source.place(inout.set_by.span), f"{name} is set here first")
        raise at.fail("D0228", f"{name} is set twice", statement.span, labels=(first,))
    inout.set_by = statement
    inout.value = assigned(ev, inout.argument, value, statement)


def assigned(ev: Evaluator, target: Value, value: Datum, statement: ast.Set) -> Value:
    """What `set` assigns, as a tensor of the target's type. Raises ModelError (D0321) for another type."""
    at = ev.at
    at.stand(statement.value.span)
    tensor = as_tensor(at, value, dtype_of(target))
    if not isinstance(value, Value) and not tensor_type(tensor).rank:
        tensor = broadcast_to(at, tensor, tensor_type(target).shape)
    if tensor.type is not target.type:
        raise at.fail(
            "D0321",
            f"{describe(value)} set where {describe(target)} is expected",
            statement.value.span,
        )
    return tensor


def final_values(ev: Evaluator, inouts: Sequence[Inout]) -> list[tuple[str, Value]]:
    """The name of each `inout` parameter with its value after the call.

    Reports D0228 for one that nothing sets.
    """
    found: list[tuple[str, Value]] = []
    for inout in inouts:
        name = inout.declaration.name
        if inout.value is not None:
            found.append((name, inout.value))
        elif inout.set_by is None:
            ev.report(
                ev.at.fail(
                    "D0228",
                    f"{name} is inout, and nothing sets it",
                    inout.declaration.name_span,
                    help=f"write set {name} = ..., or {name} without inout",
                )
            )
    return found
