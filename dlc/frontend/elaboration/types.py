"""Match values against declared types: bind the dims of a signature, or check them.

A name in a type is a constant where it means one (a module's parameter, a `const`); otherwise it is a
variable of the call, and the first place where it stands alone binds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dlc.errors import Label, ModelError, SourceLocation
from dlc.errors.suggest import suggest
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.literals import literal
from dlc.frontend.elaboration.other_languages import DTYPE_NAMES
from dlc.frontend.elaboration.problems import Poisoned, add_labels
from dlc.frontend.elaboration.scope import MISSING, Scope
from dlc.frontend.elaboration.tensors import as_tensor, convert, dtype_of, tensor_type
from dlc.frontend.elaboration.values import (
    UNKNOWN,
    Callee,
    Datum,
    Hole,
    Items,
    Record,
    describe,
    is_number,
    part_of,
)
from dlc.ir.core import Value
from dlc.ir.dims import Dim, Shape, Size, floor_divide, names, substitute, symbol
from dlc.ir.types import LANGUAGE_DTYPES, DType, TensorType
from dlc.text.model import ast
from dlc.text.source import Source, Span

__all__ = ["Expectation", "Matcher", "declared_type", "dtype_named", "other_dtype", "type_spelling"]

DTYPES: dict[str, DType] = {dtype.name: dtype for dtype in LANGUAGE_DTYPES}
UNSOLVED = "?"
"""Before the name of a dim variable that is still to be solved: no name of the text begins so."""


def dtype_named(ev: Evaluator, name: str, span: Span, scope: Scope) -> DType:
    """The dtype that a type begins with: one of the language, or a `dtype` parameter."""
    dtype = DTYPES.get(name)
    if dtype is not None:
        return dtype
    value = scope.find(name)
    if isinstance(value, DType):
        return value
    if value is UNKNOWN:
        raise Poisoned
    # The same place as that of the check of names before, so that it is told once.
    own = Span(span.start, span.start + len(name))
    raise ev.at.fail("D0201", f"no dtype is called {name}", own, help=other_dtype(name))


def other_dtype(name: str) -> str:
    """The suggestion for an unknown name of a dtype."""
    near = DTYPE_NAMES.get(name) or suggest(name, DTYPES)
    return f"did you mean {near}?" if near else f"the dtypes are {', '.join(DTYPES)}"


class Declared(NamedTuple):
    """Where the type is declared, and of what it is the type."""

    source: Source
    span: Span
    what: str


class Expectation(NamedTuple):
    """Why a value must have a type: the rest of the sentence `A given where B is expected`."""

    verb: str
    """The role of the value, as a participle: given, returned, declared."""
    source: Source
    span: Span
    """Where the value is in that text."""
    declared: Declared | None = None

    @property
    def place(self) -> SourceLocation:
        """The place of the value."""
        return self.source.place(self.span)

    @property
    def labels(self) -> tuple[Label, ...]:
        """The labels of a message beside its place."""
        if self.declared is None:
            return ()
        source, span, what = self.declared
        return (Label(source.place(span), f"{what} is declared here"),)


class _DimCheck(NamedTuple):
    """A dim of a declared type with the size that a value has for it."""

    node: ast.Expr
    size: Size
    type: ast.TensorType
    actual: TensorType
    why: Expectation


class Matcher:
    """One call: binds the dims of its signature, value by value.

    Bound dims become names of `scope`. Dims such as `3 * D` whose D is still unknown wait until the
    other parameters have been seen; `finish` solves or checks them.
    """

    __slots__ = ("_waiting", "ev", "scope")

    def __init__(self, ev: Evaluator, scope: Scope) -> None:
        self.ev = ev
        self.scope = scope
        self._waiting: list[_DimCheck] = []

    def value(self, type: ast.Type, value: Datum, why: Expectation) -> Datum:
        """The value as one of the type; raises D0320 if it is not one."""
        if value is UNKNOWN:
            raise Poisoned
        match type:
            case ast.TensorType():
                return self._tensor(type, value, why)
            case ast.TupleType():
                return self._record(type, value, why)
            case ast.FnType():
                if not isinstance(value, Callee | DType):
                    raise self._refused("a function", value, why)
                return value
            case ast.DtypeType():
                if not isinstance(value, DType):
                    raise self._refused("a dtype", value, why)
                return value

    def finish(self) -> None:
        """Solve the dims that have waited, then check them."""
        waiting, self._waiting = self._waiting, []
        while waiting:
            left = [check for check in waiting if not self._solve(check)]
            if len(left) == len(waiting):
                raise self.ev.at.fail(
                    "D0331",
                    "this size cannot be found out from the argument",
                    left[0].node.span,
                    help="let another parameter have the size by name",
                )
            waiting = left

    # Tensors --------------------------------------------------------------------------------------

    def _tensor(self, type: ast.TensorType, value: Datum, why: Expectation) -> Datum:
        ev = self.ev
        dtype = dtype_named(ev, type.dtype, type.span, self.scope)
        if isinstance(value, int | float | Dim):
            if not type.dims:
                return _scalar(ev, value, dtype, why)
            raise self._refused(type_spelling(ev, type, self.scope), value, why)
        if isinstance(value, Items):
            try:
                value = as_tensor(ev.at, value, dtype)
            except ModelError as error:
                raise add_labels(error, why.labels) from None
        if not isinstance(value, Value):
            raise self._refused(type_spelling(ev, type, self.scope), value, why)
        if dtype_of(value) is not dtype:
            help = None
            if self._fits(type, tensor_type(value).shape):
                help = f"convert it: {dtype.name}(...)"
            raise self._refused(type_spelling(ev, type, self.scope), value, why, help)
        self._shape(type, value, why)
        return value

    def _shape(self, type: ast.TensorType, value: Value, why: Expectation) -> None:
        shape = tensor_type(value).shape
        pairs = _aligned(type.dims, shape)
        if pairs is None:
            raise self._refused(type_spelling(self.ev, type, self.scope), value, why)
        for dim, size in pairs:
            node = chosen_side(self.ev, dim, self.scope)
            if isinstance(node, ast.Placeholder):
                continue
            check = _DimCheck(node, size, type, tensor_type(value), why)
            if not self._solve(check):
                self._waiting.append(check)

    def _fits(self, type: ast.TensorType, shape: Shape) -> bool:
        return _aligned(type.dims, shape) is not None

    def _solve(self, check: _DimCheck) -> bool:
        """Bind or check one dim; False if it must wait for others."""
        node, size = check.node, check.size
        expected = self._declared(node)
        unknown = [name for name in names(expected) if name.startswith(UNSOLVED)]
        if unknown:
            if len(unknown) > 1:
                return False
            (name,) = unknown
            solution = _solution(expected, name, size)
            if solution is None:
                return False
            self._bind(name.removeprefix(UNSOLVED), solution, node.span)
            expected = substitute(expected, {name: solution})
        if expected != size:
            spelling = type_spelling(self.ev, check.type, self.scope)
            raise self._refused(spelling, check.actual, check.why, self._reordered(check))
        return True

    def _reordered(self, check: _DimCheck) -> str | None:
        """The way out where the channels stand on the other side of the places."""
        shape, count = check.actual.shape, len(check.type.dims)
        if len(shape) != count or count < 3:
            return None
        first, last = (0, count - 1, *range(1, count - 1)), (0, *range(2, count), 1)
        for axes in (last, first):
            if all(
                self._is_satisfied(dim, shape[axis])
                for dim, axis in zip(check.type.dims, axes, strict=True)
            ):
                return f"with its axes in this order it fits: permute(x, {list(axes)})"
        return None

    def _is_satisfied(self, dim: ast.Expr, size: Size) -> bool:
        """Whether an axis of this size fits a dim, as far as the dim is known."""
        node = chosen_side(self.ev, dim, self.scope)
        if isinstance(node, ast.Placeholder | ast.Dots):
            return True
        expected = self._declared(node)
        is_open = any(name.startswith(UNSOLVED) for name in names(expected))
        return is_open or expected == size

    def _declared(self, node: ast.Expr) -> Size:
        """The size that a dim of the signature states; unbound variables are symbols `?D`."""
        if isinstance(node, ast.Name):
            own_value = self.scope.names.get(node.name, MISSING)
            if own_value is MISSING and self.scope.home.is_dim(node.name):
                return symbol(UNSOLVED + node.name)
            value = self.scope.find(node.name)
            if isinstance(value, Hole):
                return symbol(UNSOLVED + node.name) if value.size is None else value.size
            return self.ev.as_size(value, node.span)
        free = [
            child
            for child in _names_in(node)
            if self.scope.names.get(child, MISSING) is MISSING and self._is_open(child)
        ]
        if not free:
            return self.ev.size(node, self.scope)
        inner = self.scope.inner()
        inner.names.update({name: symbol(UNSOLVED + name) for name in free})
        return self.ev.size(node, inner)

    def _is_open(self, name: str) -> bool:
        if self.scope.home.is_dim(name):
            return True
        value = self.scope.find(name)
        return isinstance(value, Hole) and value.size is None

    def _bind(self, name: str, size: Size, span: Span) -> None:
        hole = self.scope.find(name)
        if isinstance(hole, Hole):
            if not isinstance(size, int):
                raise self.ev.at.fail(
                    "D0213",
                    f"the size of {hole.what} becomes {size}, but weights have fixed sizes",
                    span,
                    help="write the size in place of `_`",
                )
            hole.size = size
        else:
            self.scope.names[name] = size

    # Errors ---------------------------------------------------------------------------------------

    def _refused(
        self, expected: str, actual: Datum | TensorType, why: Expectation, help: str | None = None
    ) -> Exception:
        text = actual.text if isinstance(actual, TensorType) else describe(actual)
        if help is None and not isinstance(actual, TensorType):
            help = part_of(actual)
        if help is None and _is_counted(self.ev, actual):
            help = "write _ for a size that is only known when its elements have been counted"
        return self.ev.at.fail(
            "D0320" if why.verb == "given" else "D0321",
            f"{text} {why.verb} where {expected} is expected",
            place=why.place,
            help=help,
            labels=why.labels,
        )

    # Tuples ---------------------------------------------------------------------------------------

    def _record(self, type: ast.TupleType, value: Datum, why: Expectation) -> Datum:
        fields = type.fields
        if len(fields) == 1 and not isinstance(value, Record):
            value = Record.of((value,))
        if not isinstance(value, Record) or len(value.items) != len(fields):
            expected = f"a tuple of {len(fields)}"
            raise self._refused(expected, value, why)
        items = list(value.items)
        named = [name for name in value.names if name is not None]
        order = list(range(len(fields)))
        if named:
            by_name = {name: k for k, name in enumerate(value.names)}
            order = [by_name.get(field.name, k) for k, field in enumerate(fields)]
            for field in fields:
                if field.name is not None and field.name not in by_name:
                    help = _renaming(fields, named)
                    raise self._refused(f"a tuple with {field.name}", value, why, help)
        matched = [
            self.value(field.type, items[k], why) for field, k in zip(fields, order, strict=True)
        ]
        return Record(tuple(matched), tuple([field.name for field in fields]))


def chosen_side(ev: Evaluator, node: ast.Expr, scope: Scope) -> ast.Expr:
    """The side of `if c then a else b` that a dim means."""
    while isinstance(node, ast.If):
        condition = ev.eval(node.condition, scope)
        if not isinstance(condition, bool):
            raise ev.not_known(condition, "a condition", node.condition.span)
        node = node.chosen if condition else node.otherwise
    return node


def _is_counted(ev: Evaluator, actual: Datum | TensorType) -> bool:
    """Whether a type has sizes that the function counts itself."""
    if isinstance(actual, Value):
        actual = tensor_type(actual)
    sizes = actual.shape if isinstance(actual, TensorType) else ()
    return any(not names(size).isdisjoint(ev.at.brought.given) for size in sizes)


def _scalar(ev: Evaluator, value: float | Dim, dtype: DType, why: Expectation) -> Datum:
    """A number for a scalar parameter: it stays a number, so that it may be a size too."""
    if isinstance(value, Dim):
        return value if dtype.is_integer else convert(ev.at, as_tensor(ev.at, value), dtype)
    return literal(ev.at, value, dtype, place=why.place, labels=why.labels)


def _renaming(fields: Sequence[ast.TypeField], named: Sequence[str]) -> str | None:
    """The way out for a tuple whose items have other names than those expected."""
    if len(named) != len(fields) or any(field.name is None for field in fields):
        return None
    items = ", ".join(f"{f.name} = t.{name}" for f, name in zip(fields, named, strict=True))
    return f"its items are called {', '.join(named)}: let t = ..., and return ({items})"


def _aligned(dims: tuple[ast.Expr, ...], shape: Shape) -> list[tuple[ast.Expr, Size]] | None:
    """Each dim of a type with the size it stands for; None if the number of axes differs."""
    dots = next((k for k, dim in enumerate(dims) if isinstance(dim, ast.Dots)), None)
    if dots is None:
        return list(zip(dims, shape, strict=True)) if len(dims) == len(shape) else None
    tail = len(dims) - dots - 1
    if len(shape) < dots + tail:
        return None
    front = list(zip(dims[:dots], shape[:dots], strict=True))
    back = list(zip(dims[dots + 1 :], shape[len(shape) - tail :], strict=True)) if tail else []
    return front + back


def _names_in(node: ast.Expr) -> list[str]:
    """The names in a dim."""
    result: list[str] = []
    waiting: list[ast.Expr] = [node]
    while waiting:
        match waiting.pop():
            case ast.Name(name=name):
                result.append(name)
            case ast.Binary(first=first, rest=rest):
                waiting += [first, *[term.operand for term in rest]]
            case ast.Unary(operand=operand):
                waiting.append(operand)
            case ast.Call(arguments=arguments):
                waiting += [argument.value for argument in arguments]
            case _:
                pass
    return result


def _solution(expression: Size, name: str, size: Size) -> Size | None:
    """Solve `wanted == size` for `name`; None if there is no unique solution."""
    rest = substitute(expression, {name: 0})
    slope = substitute(expression, {name: 1}) - rest
    if expression != symbol(name) * slope + rest or slope == 0 or names(slope) & {name}:
        return None
    solution = floor_divide(size - rest, slope)
    return solution if solution * slope + rest == size else None


# Types without values -----------------------------------------------------------------------------


def declared_type(ev: Evaluator, type: ast.TensorType, scope: Scope) -> TensorType:
    """A type whose dims are all known: that of an input of an entry point, or of a weight."""
    dtype = dtype_named(ev, type.dtype, type.span, scope)
    ev.at.check_rank(len(type.dims), type.span)
    shape: list[Size] = []
    for dim in type.dims:
        if isinstance(dim, ast.Placeholder | ast.Dots):
            raise ev.at.fail(
                "D0332", "every size must be said here", dim.span, help="name it: dim B = 1..1024"
            )
        size = ev.size(dim, scope)
        if isinstance(size, int) and size < 0:
            raise ev.at.fail("D0329", f"a size cannot be {size}", dim.span)
        shape.append(size)
    return TensorType(dtype, tuple(shape))


def type_spelling(ev: Evaluator, type: ast.TensorType, scope: Scope) -> str:
    """A type as a message shows it: dims that are known as what they are, others by name."""
    dtype = DTYPES.get(type.dtype) or scope.find(type.dtype)
    name = dtype.name if isinstance(dtype, DType) else type.dtype
    if not type.dims:
        return name
    return f"{name}[{', '.join([_dim_spelling(ev, dim, scope) for dim in type.dims])}]"


def _dim_spelling(ev: Evaluator, dim: ast.Expr, scope: Scope) -> str:
    match dim:
        case ast.Dots():
            return ".."
        case ast.Placeholder():
            return "_"
        case ast.Number(text=text):
            return text
        case ast.Name(name=name):
            value = scope.find(name)
            if isinstance(value, Hole):
                return "_" if value.size is None else str(value.size)
            return str(value) if is_number(value) else name
        case ast.If():
            return _dim_spelling(ev, chosen_side(ev, dim, scope), scope)
        case _:
            source = scope.home.source
            return source.text[dim.span.start : dim.span.end]
