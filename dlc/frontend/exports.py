"""Entry points: each `export fn` becomes one function of the IR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dlc.dialects import array, func
from dlc.dialects.interface import HIDDEN, NEEDS, bounds_attribute
from dlc.dialects.measured import FreshNames
from dlc.errors import Diagnostic, ModelError, SourceLocation
from dlc.frontend.elaboration.calls import Function, check_result
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.elaboration.inout import final_values
from dlc.frontend.elaboration.keys import seed_default
from dlc.frontend.elaboration.problems import Poisoned
from dlc.frontend.elaboration.scope import Scope
from dlc.frontend.elaboration.tensors import as_tensor, tensor_type
from dlc.frontend.elaboration.trace import Frame, Inout, Trace
from dlc.frontend.elaboration.types import declared_type, dtype_named
from dlc.frontend.elaboration.values import UNKNOWN, Datum, Record, describe
from dlc.ir.attributes import Attribute, Dense
from dlc.ir.core import Block, Value
from dlc.ir.dims import Dim, Size, names, symbol
from dlc.ir.location import FileLocation
from dlc.ir.needs import Need
from dlc.ir.types import TensorType, Type
from dlc.runtime.artifact import manifest
from dlc.runtime.model import Model
from dlc.text.model import ast
from dlc.text.source import Span

__all__ = ["begin", "entry_point", "finish"]


def entry_point(ev: Evaluator, function: Function, dims: Mapping[str, Dim]) -> func.Func | None:
    """The function of the IR for an `export fn`; None if something in it is wrong, which is recorded.

    `dims` are the sizes that calls choose, as far as its home sees them.
    """
    at, declaration = ev.at, function.declaration
    frame = Frame(declaration.name, function.path, function.home.source)
    begin(ev, frame, declaration.name_span)
    scope = Scope(function.home)
    scope.names.update(dims)
    before = len(at.problems.errors)
    try:
        defaults = _inputs(ev, declaration, scope)
        with at.on(None if declaration.device is None else declaration.device.called):
            result = ev.eval(declaration.body, scope)
        results = _results(ev, declaration, result, scope)
        updates = final_values(ev, [*at.inouts.values()])
        if len(at.problems.errors) > before:
            return None
        _warn_of_hidden(ev, declaration)
        exported = finish(ev, declaration.name, declaration.name_span, defaults, results, updates)
        if declaration.docs:
            exported.attributes["dlc.doc"] = declaration.docs
        return exported
    except ModelError as error:
        ev.report(error)
    except Poisoned:
        assert at.problems.errors, "an unknown value without an error"
    return None


def _warn_of_hidden(ev: Evaluator, declaration: ast.Fn) -> None:
    """Warn where a compiled model has something of its own by the name of an entry point."""
    name = declaration.name
    if hasattr(Model, name):
        place = ev.at.source.place(declaration.name_span)
        ev.at.problems.report(
            [
                Diagnostic(
                    "D0226",
                    f"model.{name} is not this entry point in Python: every model has its own",
                    place,
                    help=f'rename it, or call it as model["{name}"]',
                    severity="warning",
                )
            ]
        )


# Inputs -------------------------------------------------------------------------------------------


def _inputs(ev: Evaluator, declaration: ast.Fn, scope: Scope) -> list[Attribute]:
    """Make an argument for each parameter; gives the defaults."""
    defaults: list[Attribute] = []
    for parameter in declaration.parameters:
        try:
            type = _input_type(ev, declaration, parameter, scope)
        except ModelError as error:
            ev.report(error)
            scope.names[parameter.name] = UNKNOWN
            continue
        value = ev.at.top.add_argument(type, parameter.name)
        scope.names[parameter.name] = value
        ev.at.called(value, parameter.name, parameter.name_span)
        if parameter.inout:
            ev.at.inouts[parameter.name] = Inout(parameter, value)
        defaults.append(_default(ev, parameter, type, scope))
    return defaults


def _input_type(
    ev: Evaluator, declaration: ast.Fn, parameter: ast.Parameter, scope: Scope
) -> TensorType:
    match parameter.type:
        case ast.TensorType() as type:
            return declared_type(ev, type, scope)
        case None:
            what = "has no type"
        case _:
            what = "is not a tensor"
    raise ev.at.fail(
        "D0334",
        f"{parameter.name} of the entry point {declaration.name} {what}",
        parameter.span,
        help=f"write its type: {parameter.name}: f32[B, 10]",
    )


def _default(
    ev: Evaluator, parameter: ast.Parameter, type: TensorType, scope: Scope
) -> Dense | str:
    """The constant that an input is when a call leaves it out; "" for none."""
    node = parameter.default
    if node is None:
        return ""
    value = ev.eval(node, scope)
    ev.at.stand(node.span)
    with ev.at.discarded():
        tensor = as_tensor(ev.at, value, type.dtype)
    dense = _constant(tensor)
    if dense is not None and dense.type.rank == 0 and type.is_static:
        shape = tuple([int(size) for size in type.shape if isinstance(size, int)])
        array = np.broadcast_to(dense.array, shape)
        return Dense.of(array, type.dtype)
    if dense is None or dense.type is not type:
        actual = describe(value) if dense is None else dense.type.text
        raise ev.at.fail(
            "D0320",
            f"the default of {parameter.name} is {actual}, it takes {type.text}",
            help="a default is a number or a list of numbers of the type's shape",
        )
    return dense


def _constant(value: Value) -> Dense | None:
    match value.op:
        case array.Constant(value=dense):
            return dense
        case array.Fill(value=number, type=type) if type.is_static:
            return Dense.splat(number, type)
        case _:
            return None


# Results ------------------------------------------------------------------------------------------


def _results(
    ev: Evaluator, declaration: ast.Fn, value: Datum, scope: Scope
) -> list[tuple[str, Value]]:
    """The tensors that an entry point returns, with their names."""
    if declaration.result is None:
        inferred = _type_text(ev, value)
        raise ev.at.fail(
            "D0334",
            f"the entry point {declaration.name} does not say its result type",
            declaration.name_span,
            help=f"it is {declaration.name}(...) -> {inferred}" if inferred else None,
        )
    checked = check_result(ev, declaration, value, scope)
    if isinstance(checked, Record):
        types = _field_types(declaration.result, len(checked.items))
        _refuse_twice(ev, declaration, checked)
        return [
            (name or "", _result(ev, item, type, scope))
            for name, item, type in zip(checked.names, checked.items, types, strict=True)
        ]
    return [("", _result(ev, checked, declaration.result, scope))]


def _refuse_twice(ev: Evaluator, declaration: ast.Fn, result: Record) -> None:
    """Refuse two results of one name: callers take them by name."""
    for name in filter(None, result.names):
        if result.names.count(name) > 1:
            assert declaration.result is not None
            raise ev.at.fail(
                "D0202",
                f"two results of {declaration.name} are called {name}",
                declaration.result.span,
                help="rename one of them",
            )


def _field_types(type: ast.Type, count: int) -> list[ast.Type]:
    assert isinstance(type, ast.TupleType) and len(type.fields) == count
    return [field.type for field in type.fields]


def _result(ev: Evaluator, value: Datum, type: ast.Type, scope: Scope) -> Value:
    ev.at.stand(type.span)
    if not isinstance(type, ast.TensorType):
        raise ev.at.fail("D0334", "an entry point returns tensors, in one tuple at most", type.span)
    return as_tensor(ev.at, value, dtype_named(ev, type.dtype, type.span, scope))


def _type_text(ev: Evaluator, value: Datum) -> str:
    """A result type as it is written; sizes that the function counts itself have no name."""
    match value:
        case Value():
            type = tensor_type(value)
            counted = [not names(size).isdisjoint(ev.at.brought.given) for size in type.shape]
            shape = zip(type.shape, counted, strict=True)
            return type.with_shape(
                tuple([symbol("_") if is_ else size for size, is_ in shape])
            ).text
        case Record(items, record_names):
            parts = [_type_text(ev, item) for item in items]
            named = [f"{n}: {p}" if n else p for n, p in zip(record_names, parts, strict=True)]
            return f"({', '.join(named)})" if all(parts) else ""
        case bool():
            return "bool"
        case Dim():
            return "i64"
        case int():
            return "i32"
        case float():
            return "f32"
        case _:
            return ""


# The function -------------------------------------------------------------------------------------


def begin(ev: Evaluator, frame: Frame, span: Span) -> None:
    """Start a function of the IR, whose name stands at `span`."""
    at = ev.at
    at.source, at.frame, at.function = frame.source, frame, frame.function
    at.top = at.block = Block()
    at.gets, at.conditions = {}, {}
    at.base_key, at.implicit_seed, at.brought = None, False, FreshNames(at.bounds)
    at.inouts = {}
    at.stand(span)


def finish(
    ev: Evaluator,
    name: str,
    span: Span,
    defaults: Sequence[Attribute],
    results: Sequence[tuple[str, Value]],
    updates: Sequence[tuple[str, Value]] = (),
) -> func.Func:
    """The function that was begun, with these defaults of its inputs and these named results.

    `updates` are the inputs that a call overwrites, and what it writes there.
    """
    at = ev.at
    body = at.top
    if at.implicit_seed:
        defaults = [*defaults, seed_default()]
    values = [value for _, value in (*results, *updates)]
    at.stand(span)
    at.place(func.Return(tuple(values)))
    function = func.Func(body, name, func.signature(body, values))
    place = at.source.place(span)
    function.location = FileLocation(place.file, place.line, place.column, place.end)
    used = _dims_used(function) | _dims_required(at)
    bounds = {name: bound for name, bound in at.bounds.items() if name in used}
    attributes = function.attributes
    if bounds:
        attributes["dlc.dims"] = bounds_attribute(bounds)
    if at.conditions:
        attributes[NEEDS] = tuple([_row(*each) for each in at.conditions.items()])
    attributes["dlc.inputs"] = tuple([argument.name or "" for argument in body.arguments])
    if any(name for name, _ in results):
        attributes["dlc.results"] = tuple([name for name, _ in results])
    if updates:
        attributes["dlc.updates"] = ("",) * len(results) + tuple([name for name, _ in updates])
        attributes[HIDDEN] = len(updates)
    if any(default != "" for default in defaults):
        attributes["dlc.defaults"] = tuple(defaults)
    return function


def _row(need: Need, place: SourceLocation) -> Attribute:
    """A condition as the function has it."""
    equals = "" if need.equals is None else str(need.equals)
    row = manifest.Need(str(need.size), need.code, need.told, str(place), place.end, equals)
    return tuple(row)


def _dims_required(at: Trace) -> set[str]:
    """The named sizes in the conditions of the function that was begun."""
    sizes = [size for need in at.conditions for size in (need.size, need.equals)]
    return {name for size in sizes if size is not None for name in names(size)}


def _dims_used(function: func.Func) -> set[str]:
    """The named sizes in the types and attributes of a function."""
    types: set[Type] = set()
    sizes: set[Size] = set()
    for argument in function.body.arguments:
        types.add(argument.type)
    for op in function.walk():
        types.update([result.type for result in op.results])
        for value in op.attributes.values():
            _sizes_in(value, sizes)
    for type in types:
        if isinstance(type, TensorType):
            sizes.update(type.shape)
    return {name for size in sizes for name in names(size)}


def _sizes_in(value: Attribute, sizes: set[Size]) -> None:
    match value:
        case tuple():
            for item in value:
                _sizes_in(item, sizes)
        case TensorType(_, shape):
            sizes.update(shape)
        case Dim():
            sizes.add(value)
        case _:
            pass
