"""`precision = f16` and `loss_scale = ...`: in what products are computed, and the scale of the loss.

The backward pass of a scaled loss gives gradients that are larger by the scale, so that fewer of them are
too small for 16 bits; before anything else sees them they are divided by it again. A dynamic scale looks
for the largest one that works: gradients that are infinite or NaN halve it, and that step changes nothing
else; after `every` good steps in a row it is doubled. (P. Micikevicius and others, "Mixed Precision
Training", 2018.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeGuard

from dlc.dialects import array, weight
from dlc.errors import SourceLocation
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.tensors import broadcast_to, convert, dtype_of, tensor_type
from dlc.frontend.elaboration.trace import Trace
from dlc.frontend.elaboration.weight import Origin, Weight
from dlc.frontend.modules.instances import Instance
from dlc.frontend.training.entries import called, constant, if_known
from dlc.frontend.weights.symbols import weight_value
from dlc.ir.core import Value
from dlc.ir.types import BF16, BOOL, F16, F32, I32, DType, TensorType
from dlc.text.model import ast

__all__ = ["SKIPPED", "DynamicScale", "LossScale", "loss_scale", "precision"]

NARROW: Final = {dtype.name: dtype for dtype in (BF16, F16)}
SKIPPED: Final = "$skipped"
"""The result of a step that says whether it was skipped: 1 or 0."""
_LARGEST: Final = 2.0**127
"""No scale grows beyond this one: it is the largest power of 2 in f32."""


class LossScale(NamedTuple):
    """The scale of a loss: where it begins, and after how many good steps it is doubled; 0 for never."""

    start: float
    every: int = 0

    @property
    def is_dynamic(self) -> bool:
        """Whether it changes, and steps are skipped."""
        return self.every > 0


# Entries ------------------------------------------------------------------------------------------


def precision(ev: Evaluator, entry: ast.Setting) -> DType | None:
    """The dtype of `precision = bf16`; None for f32, and for anything else, which is recorded."""
    name = entry.value.name if isinstance(entry.value, ast.Name) else ""
    if name not in NARROW and name != F32.name:
        known = f"one of {', '.join((*NARROW, F32.name))}"
        message = f"precision is the dtype in which products are computed, {known}"
        ev.report(ev.at.fail("D0534", message, entry.value.span, help="write precision = bf16"))
    return NARROW.get(name)


@if_known
def loss_scale(
    ev: Evaluator, root: Instance, entry: ast.Setting | None, dtype: DType | None
) -> LossScale | None:
    """The scale of a loss whose products have this dtype; None where there is none.

    Gradients of f16 have a dynamic scale unless the entry says otherwise, others none.
    """
    if entry is None:
        return LossScale(65536.0, 2000) if dtype is F16 else None
    node = entry.value
    if isinstance(node, ast.Name) and node.name == "none":
        return None
    if isinstance(node, ast.Call):
        return _dynamic(ev, root, entry)
    start = constant(ev, root, node)
    return LossScale(start) if _is_scale(start) else _refused(ev, node)


def _dynamic(ev: Evaluator, root: Instance, entry: ast.Setting) -> LossScale | None:
    """The scale of `dynamic(start=65536, every=2000)`."""
    found = called(ev, entry, ("dynamic",), "dynamic(start=65536, every=2000)")
    if found is None:
        return None
    _, call = found
    named = {item.name or "": item.value for item in call.arguments}
    start = constant(ev, root, named.pop("start")) if "start" in named else 65536.0
    every = constant(ev, root, named.pop("every")) if "every" in named else 2000
    if named or not _is_count(every) or not _is_scale(start):
        return _refused(ev, call)
    return LossScale(float(start), every)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 1 << 31


def _is_scale(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= _LARGEST


def _refused(ev: Evaluator, node: ast.Expr) -> None:
    message = (
        "loss_scale is a number from 1 on, dynamic(start=65536, every=2000) with the good steps "
        "after which it is doubled, or none"
    )
    ev.report(ev.at.fail("D0534", message, node.span, help="write loss_scale = 1024"))


# In a step ----------------------------------------------------------------------------------------


class DynamicScale:
    """A dynamic scale while the step is elaborated; `states` are the three that it keeps.

    `value` is the scale, `good` the number of good steps since it last changed, `skipped` how many steps
    were skipped in all: optimizers and schedules do not count these.
    """

    def __init__(self, at: Trace, scale: LossScale, prefix: str, place: SourceLocation) -> None:
        self.at, self.scale = at, scale
        kept = (
            ("value", F32, f"constant({scale.start!r})"),
            ("good", I32, "zeros()"),
            ("skipped", I32, "zeros()"),
        )
        self.states = [
            Weight(
                f"{weight.SCALE}{prefix}{name}", TensorType(dtype), Origin(init), False, 0, place,
                constant=True,
            )
            for name, dtype, init in kept
        ]  # fmt: skip
        self.value, self.good, self.skipped = [weight_value(at, item, ()) for item in self.states]

    def counted(self, step: Value) -> Value:
        """The number of the step among those that were not skipped."""
        return self.at(array.Subtract(step, self.skipped))

    def kept(
        self, following: Mapping[Value, Value], gradients: Sequence[Value]
    ) -> tuple[dict[Value, Value], Value]:
        """What everything becomes: what it was, if a gradient is infinite or NaN; and whether that is so.

        The states of the scale are among it. The second is 1 or 0, in f32.
        """
        at = self.at
        fine = _all_finite(at, gradients)
        kept = {get: _chosen(at, fine, value, get) for get, value in following.items()}
        kept.update(self._following(fine))
        return kept, at(array.Subtract(array.fill(at, 1, TensorType(F32)), convert(at, fine, F32)))

    def _following(self, fine: Value) -> dict[Value, Value]:
        """What the scale and its counters become."""
        at = self.at
        one, none = (array.fill(at, number, TensorType(I32)) for number in (1, 0))
        count = at(array.Add(self.good, one))
        every = array.fill(at, self.scale.every, TensorType(I32))
        grows = at(array.Compare(count, every, "ge"))
        double = at(array.Multiply(self.value, array.fill(at, 2, TensorType(F32))))
        double = at(array.Minimum(double, array.fill(at, _LARGEST, TensorType(F32))))
        half = at(array.Multiply(self.value, array.fill(at, 0.5, TensorType(F32))))
        return {
            self.value: _chosen(at, fine, _chosen(at, grows, double, self.value), half),
            self.good: _chosen(at, fine, _chosen(at, grows, none, count), none),
            self.skipped: _chosen(at, fine, self.skipped, at(array.Add(self.skipped, one))),
        }


def unscaled(at: Trace, gradient: Value, scale: Value) -> Value:
    """A gradient divided by the scale that its loss had."""
    one = array.fill(at, 1, TensorType(F32))
    part = convert(at, at(array.Divide(one, scale)), dtype_of(gradient))
    return at(array.Multiply(gradient, broadcast_to(at, part, tensor_type(gradient).shape)))


def _all_finite(at: Trace, values: Sequence[Value]) -> Value:
    """Whether no element of these values is infinite or NaN."""
    fine = array.fill(at, 1, TensorType(BOOL))
    for value in values:
        wide = convert(at, value, F32)
        most = array.constant_like(at, float("inf"), wide)
        finite = at(array.Compare(at(array.Abs(wide)), most, "lt"))
        axes = tuple(range(tensor_type(value).rank))
        fine = at(array.And(fine, at(array.ReduceAnd(finite, axes)) if axes else finite))
    return fine


def _chosen(at: Trace, condition: Value, yes: Value, no: Value) -> Value:
    """One of two values of one type, by one bool."""
    spread = broadcast_to(at, condition, tensor_type(yes).shape)
    return at(array.Select(spread, yes, no))
