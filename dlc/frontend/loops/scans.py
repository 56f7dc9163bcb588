"""`scan`: a loop over the slices of tensors, the numbers of a range, or stacked blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dlc.dialects import array, flow
from dlc.dialects.array import show
from dlc.dialects.array.shape import LARGEST_I32, reshape
from dlc.frontend.builtins.axes import one_axis
from dlc.frontend.elaboration.evaluator import Evaluator, evaluates
from dlc.frontend.elaboration.patterns import unpack
from dlc.frontend.elaboration.problems import Poisoned
from dlc.frontend.elaboration.rules import leaves, refilled
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.elaboration.tensors import as_tensor, convert, size_tensor, tensor_type
from dlc.frontend.elaboration.trace import REGION, Loop, capture
from dlc.frontend.elaboration.values import UNKNOWN, Datum, Items, Range, Record, describe
from dlc.frontend.expressions.choices import is_literal
from dlc.frontend.loops.loop_body import Body, Step, has_literal, results_of, settle
from dlc.frontend.modules.instances import Stack
from dlc.ir.core import Block, Value
from dlc.ir.dims import Dim, Size
from dlc.ir.types import I32
from dlc.text.model import ast
from dlc.text.source import Span

MAX_UNROLLED: Final = 10_000


class _Scan(Loop):
    """One scan while its body is elaborated; for stacked blocks it hands out slices of the weights."""

    def __init__(self, ev: Evaluator, node: ast.Scan, scope: Scope) -> None:
        self.ev, self.at = ev, ev.at
        self.node = node
        self.scope = scope
        self.body = Body(ev, node)
        self.along = 0 if node.along is None else ev.integer(node.along, scope)
        self.block = Block()
        self.outer = self.at.block
        self.xs: list[Value] = []
        self.x_axes: list[int] = []
        self.slices: dict[tuple[Value, int], Value] = {}
        self.index: Value | None = None

    # The source -----------------------------------------------------------------------------------

    def value(self) -> Datum:
        """The carried values after the last step, then what was yielded."""
        source = self.ev.eval(self.node.source, self.scope)
        if isinstance(source, Items) and _is_unrolled(source):
            return self._unrolled(list(source.items))
        self.at.stand(self.node.source.span)
        source = self._with_tensors(source)
        length = self._length(source)
        initial = self.body.initial(self.scope)
        if any(has_literal(value) for value in initial):
            initial = settle(self.ev, self.body, initial, self._trial(source, initial))
        starts = [leaves(self.ev, value) for value in initial]
        flat = [leaf for group in starts for leaf in group]
        forms = [refilled(v, list(g)) for v, g in zip(initial, starts, strict=True)]
        step, nexts = self._elaborate(source, forms)
        yields = [leaves_in(self.ev, self.block, value) for value in step.yields]
        flat_yields = [leaf for group in yields for leaf in group]
        if length == 0:
            return self._none(forms, step, flat_yields)
        results = self._place(flat, nexts, flat_yields, length)
        return self._gathered(forms, step, results)

    def _with_tensors(self, source: Datum) -> Datum:
        """The source with tensors in place of lists of numbers."""
        if isinstance(source, Record):
            return Record(tuple([self._with_tensors(item) for item in source.items]), source.names)
        return as_tensor(self.at, source) if isinstance(source, Items) else source

    def _length(self, source: Datum) -> Size:
        """The number of steps of the loop; all that it walks along have that length."""
        lengths = self._lengths(source, self.node.source.span)
        if not lengths:
            raise self.ev.at.fail("D0426", "nothing to go through", self.node.source.span)
        for other in lengths[1:]:
            if other != lengths[0]:
                raise self.at.fail(
                    "D0407",
                    f"a scan goes through things of one length, found {lengths[0]} and {other}",
                    self.node.source.span,
                )
        if isinstance(lengths[0], int) and lengths[0] < 0:
            raise self.at.fail("D0426", "the range ends before it begins", self.node.source.span)
        return lengths[0]

    def _lengths(self, source: Datum, span: Span) -> list[Size]:
        match source:
            case Record(items):
                return [n for item in items for n in self._lengths(item, span)]
            case Range(start, stop):
                return [stop - start]
            case Stack(count):
                return [count]
            case Value():
                shape = tensor_type(source).shape
                return [shape[self._axis(source, span)]]
            case _:
                if source is UNKNOWN:
                    raise Poisoned
                help = f"count with a range: 0..{source}" if isinstance(source, int | Dim) else None
                raise self.at.fail(
                    "D0426", f"a scan cannot go through {describe(source)}", span, help=help
                )

    def _axis(self, source: Value, span: Span) -> int:
        self.at.stand(span if self.node.along is None else self.node.along.span)
        return one_axis(self.at, source, self.along)

    # The body -------------------------------------------------------------------------------------

    def _trial(self, source: Datum, initial: Sequence[Datum]) -> Step:
        """A first elaboration, thrown away, in which numbers that are carried are still numbers."""
        with self.at.discarded():
            inner = _Scan(self.ev, self.node, self.scope)
            return inner.elaborated(source, initial)

    def elaborated(self, source: Datum, carried: Sequence[Datum]) -> Step:
        """Elaborate the body on these carried values."""
        self.at.count(REGION)
        index = self.index = self.block.add_argument(flow.COUNTER)
        inner = self.scope.inner()
        with self.at.inside(self.block), self.at.looping(self):
            for carry, value in zip(self.node.carries, carried, strict=True):
                inner.names[carry.name] = self._argument(carry, value)
            self.at.stand(self.node.source.span)
            part = self._part(source, index)
            unpack(self.ev, self.node.pattern, part, inner, self.node.source.span)
            return self.body.run(inner)

    def _argument(self, carry: ast.Carry, value: Datum) -> Datum:
        """A carried value as the body sees it; a number stays one, on trial."""
        if isinstance(value, Record):
            return Record(tuple([self._argument(carry, v) for v in value.items]), value.names)
        if not isinstance(value, Value):
            return value
        argument = self.block.add_argument(value.type)
        self.at.called(argument, carry.name, carry.name_span)
        return argument

    def _part(self, source: Datum, index: Value) -> Datum:
        """The slice of a source that one step sees."""
        at = self.at
        match source:
            case Record(items):
                return Record(tuple([self._part(item, index) for item in items]), source.names)
            case Range(start, stop):
                if isinstance(stop, int) and stop - 1 > LARGEST_I32:
                    told = f"the range goes to {stop - 1}, but its numbers are i32, up to {LARGEST_I32}"
                    raise at.fail(
                        "D0323",
                        told,
                        self.node.source.span,
                        help="count from 0 and add the start, as an i64",
                    )
                number = convert(at, index, I32)
                if start == 0:
                    return number
                offset = (
                    size_tensor(at, start, I32)
                    if isinstance(start, Dim)
                    else array.constant_like(at, start, number)
                )
                return at(array.Add(number, offset))
            case Stack():
                return source.block(self)
            case Value():
                return self._slice(source, self._axis(source, at.span))
            case _:
                raise AssertionError(source)

    def slice_of(self, value: Value) -> Value:
        part = self._slice(value, 0)
        part.name = part.name or value.name
        return part

    def _slice(self, value: Value, axis: int) -> Value:
        """This step's part of a tensor along an axis: an argument of the body, made once."""
        known = self.slices.get((value, axis))
        if known is None:
            type = tensor_type(value)
            part = type.with_shape(type.shape[:axis] + type.shape[axis + 1 :])
            known = self.slices[value, axis] = self.block.add_argument(part)
            self.xs.append(value)
            self.x_axes.append(axis)
            if value in self.at.declared:
                self.at.declared[known] = self.at.declared[value]
        return known

    def counter(self) -> Value:
        assert self.index is not None
        return self.index

    def _elaborate(self, source: Datum, forms: Sequence[Datum]) -> tuple[Step, list[Value]]:
        step = self.elaborated(source, forms)
        nexts: list[Value] = []
        with self.at.inside(self.block):
            position = 1
            for carry, form in zip(self.node.carries, forms, strict=True):
                count = len(leaves(self.ev, form))
                following = step.next.get(carry.name)
                if following is None:
                    nexts += self.block.arguments[position : position + count]
                else:
                    nexts += self.body.check(carry.name, form, *following)
                position += count
        return step, nexts

    # The operation --------------------------------------------------------------------------------

    def _place(
        self, initial: list[Value], nexts: list[Value], yields: list[Value], length: Size
    ) -> list[Value]:
        at = self.at
        y_axes = [self._y_axis(value) for value in yields]
        with at.inside(self.block):
            at.stand(self.node.span)
            at.place(flow.Yield([*nexts, *yields]))
        constants = capture([self.block])
        return list(
            at.all(
                flow.Scan(
                    initial,
                    self.xs,
                    constants,
                    self.block,
                    length,
                    tuple(self.x_axes),
                    tuple(y_axes),
                    self.node.reverse,
                )
            )
        )

    def _y_axis(self, value: Value) -> int:
        rank = tensor_type(value).rank + 1
        if not -rank <= self.along < rank:
            raise self.at.fail(
                "D0305",
                f"what is yielded, {show(value)}, cannot lie along axis {self.along}",
                self.node.span if self.node.along is None else self.node.along.span,
                help=f"the steps are an axis of the result, which has the axes 0 to {rank - 1}",
            )
        return self.along % rank

    def _gathered(self, forms: Sequence[Datum], step: Step, results: list[Value]) -> Datum:
        return results_of(self.ev, self.node, [*forms, *step.yields], results)

    def _none(self, forms: Sequence[Datum], step: Step, yields: list[Value]) -> Datum:
        """The value of a loop without steps: what is carried stays, what is yielded is empty."""
        self.at.stand(self.node.span)
        self.block.clear()
        empty: list[Value] = []
        for value in yields:
            type, axis = tensor_type(value), self._y_axis(value)
            shape = (*type.shape[:axis], 0, *type.shape[axis:])
            empty.append(array.fill(self.at, 0, type.with_shape(shape)))
        starts = [leaf for form in forms for leaf in leaves(self.ev, form)]
        return self._gathered(forms, step, [*starts, *empty])

    # Lists ----------------------------------------------------------------------------------------

    def _unrolled(self, items: list[Datum]) -> Datum:
        """A loop over a list of layers or tuples, which differ: every step is elaborated anew."""
        if len(items) > MAX_UNROLLED:
            raise self.at.fail("D0216", f"a loop over a list of {len(items):,} items is unrolled")
        carried = dict(zip(self.body.names, self.body.initial(self.scope), strict=True))
        rows: list[list[Datum]] = []
        for item in reversed(items) if self.node.reverse else items:
            inner = self.scope.inner()
            self.at.count()
            inner.names.update(carried)
            unpack(self.ev, self.node.pattern, item, inner, self.node.source.span)
            step = self.body.run(inner)
            carried.update({name: value for name, (value, _) in step.next.items()})
            rows.append(step.yields)
        if self.node.reverse:
            rows.reverse()
        columns = [
            self._column([row[k] for row in rows]) for k in range(len(rows[0]) if rows else 0)
        ]
        parts = [*carried.values(), *columns]
        if not parts:
            return results_of(self.ev, self.node, [], [])
        return parts[0] if len(parts) == 1 else Record.of(tuple(parts))

    def _column(self, values: list[Datum]) -> Datum:
        at = self.at
        at.stand(self.node.span)
        tensors = [as_tensor(at, value) for value in values]
        axis = self._y_axis(tensors[0])
        shape = tensor_type(tensors[0]).shape
        rows = [reshape(at, t, (*shape[:axis], 1, *shape[axis:])) for t in tensors]
        return at(array.Concatenate(rows, axis))


def leaves_in(ev: Evaluator, block: Block, value: Datum) -> list[Value]:
    """The tensors of a value, made in a block."""
    with ev.at.inside(block):
        return leaves(ev, value)


def _is_unrolled(source: Items) -> bool:
    """Whether a list has items that are neither numbers nor tensors."""
    return not all(is_literal(item) or isinstance(item, Value | Dim) for item in source.items)


@evaluates(ast.Scan)
def _scan(ev: Evaluator, node: ast.Scan, scope: Scope) -> Datum:
    return _Scan(ev, node, scope).value()
