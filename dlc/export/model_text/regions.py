"""The operations of a function as terms, with those in choices and loops.

A block of the language sees the names around it, a region of the IR only its arguments. So a copy of the
function is opened first: its choices and loops use what they captured as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dlc.dialects import array, flow, func
from dlc.dialects.array import tensor_type
from dlc.dialects.array.shape import inverse
from dlc.dialects.measured import Measuring, rename_measured_dims
from dlc.export.model_text.graph import Graph
from dlc.export.model_text.spelling import spelled
from dlc.export.model_text.terms import Braces, Form, If, Part, Scan, Term, While, values_of
from dlc.export.model_text.tidy import tidy
from dlc.ir.clone import clone, clone_block
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.types import TensorType

# Opening ------------------------------------------------------------------------------------------


def opened(function: func.Func, *, tidied: bool) -> func.Func:
    """A copy whose choices and loops use values around them, and walk and fill one axis each.

    Sizes that it counts have names that nothing else in its text has. With `tidied` nothing is left in it
    that a person would not write; a sum over a window times 1 is then no function of the language any more.
    """
    copy = clone(function, (), [clone_block(function.body)])
    assert isinstance(copy, func.Func)
    if tidied:
        tidy(copy)
    rename_measured_dims(copy.body, [*copy.bounds, *copy.input_names, copy.sym_name])
    copy.retype()
    for op in copy.walk():
        match op:
            case flow.If(condition=condition, inputs=inputs):
                _open(op, inputs)
                op.set_operands([condition])
            case flow.Scan(initial=initial, xs=xs, constants=constants):
                _open(op, constants)
                op.attributes["segments"] = (len(initial), len(xs), 0)
                op.set_operands([*initial, *xs])
                if _along(op) is None:
                    _along_first(op)
            case flow.While(initial=initial, constants=constants):
                _open(op, constants)
                op.attributes["segments"] = (len(initial), 0)
                op.set_operands(initial)
            case _:
                pass
    return copy


def _open(op: Op, captured: Sequence[Value]) -> None:
    """Use captured values, which the last arguments of each region stand for, as they are."""
    for block in op.regions:
        own = len(block.arguments) - len(captured)
        for argument, value in zip(block.arguments[own:], captured, strict=True):
            argument.replace_by(value)
        block.set_arguments(block.arguments[:own])


def _along(scan: flow.Scan) -> int | None:
    """The axis that a loop walks and fills; None where the language needs another one.

    It has one for all tensors, and numbers, which are walked with them, have only the first.
    """
    counted = [0] if scan.body.arguments[0].uses and scan.xs else []
    axes = {*scan.x_axes, *scan.y_axes, *counted}
    return min(axes, default=0) if len(axes) < 2 else None


def _along_first(scan: flow.Scan) -> None:
    """Let a loop walk and fill first axes, with transposes around it."""
    emit = Builder.before_op(scan)
    xs = [_moved(emit, x, axis, 0) for x, axis in zip(scan.xs, scan.x_axes, strict=True)]
    scan.set_operands([*scan.initial, *xs])
    behind = Builder(emit.block, scan.location, scan.next)
    stacks = scan.results[len(scan.initial) :]
    for stack, axis in zip(stacks, scan.y_axes, strict=True):
        if axis == 0:
            continue
        type, users = tensor_type(stack), dict(stack.uses)
        rest = (*type.shape[:axis], *type.shape[axis + 1 :])
        stack.type = TensorType(type.dtype, (scan.length, *rest))
        moved = _moved(behind, stack, 0, axis)
        for user in users:
            user.replace_operand(stack, moved)
    scan.attributes["x_axes"] = (0,) * len(scan.x_axes)
    scan.attributes["y_axes"] = (0,) * len(scan.y_axes)


def _moved(emit: Builder, value: Value, axis: int, place: int) -> Value:
    """The value with an axis at another place, of which one is the first; the others in order."""
    if axis == place:
        return value
    far = max(axis, place)
    to_front = (far, *[k for k in range(tensor_type(value).rank) if k != far])
    return emit(array.Transpose(value, to_front if place == 0 else inverse(to_front)))


# Terms --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Reader:
    """Makes terms of operations; those that the language has no words for are gathered in `missing`."""

    graph: Graph
    missing: list[Op] = field(default_factory=list[Op])
    _forms: dict[Op, Form] = field(default_factory=dict[Op, Form])

    def terms(self, block: Block, results: Sequence[Value]) -> dict[Value, Term]:
        """The term of every value of a block that these follow from, in the order of the operations.

        What counts a size is always written: later types may mention the size alone.
        """
        found: dict[Value, Term] = {}
        pending = [*results, *[op.count for op in block if isinstance(op, Measuring)]]
        seen = {*pending}
        while pending:
            value = pending.pop()
            if value.op is None or value.block is not block or self._is_weight(value):
                continue
            term = self._term(value)
            if term is None:
                self.missing.append(value.op)
            else:
                found[value] = term
            for needed in value.op.operands if term is None else values_of(term):
                if needed not in seen:
                    seen.add(needed)
                    pending.append(needed)
        order = {result: (k, result.index) for k, op in enumerate(block) for result in op.results}
        return dict(sorted(found.items(), key=lambda pair: order[pair[0]]))

    def _is_weight(self, value: Value) -> bool:
        """Whether a value is read from the weight file, which numbers are not."""
        return self.graph.is_stored(value) and self.graph.number(value) is None

    def _term(self, value: Value) -> Term | None:
        op = value.op
        if not isinstance(op, flow.If | flow.Scan | flow.While):
            return spelled(self.graph, value)
        form = self._forms.get(op) or self._forms.setdefault(op, self._form(op))
        return Part(form, value.index) if len(op.results) > 1 else form

    def _form(self, op: flow.If | flow.Scan | flow.While) -> Form:
        match op:
            case flow.If():
                return If(op.condition, self._braces(op.then), self._braces(op.otherwise))
            case flow.Scan():
                along = _along(op)
                assert along is not None
                body = self._braces(op.body)
                return Scan(tuple(op.xs), op.length, along, op.reverse, tuple(op.initial), body)
            case flow.While():
                condition, body = self._braces(op.condition), self._braces(op.body)
                return While(condition, tuple(op.initial), body)

    def _braces(self, block: Block) -> Braces:
        results = block.terminator.operands
        return Braces(self.terms(block, results), tuple(block.arguments), results)
