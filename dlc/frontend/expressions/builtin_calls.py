"""Calls of builtin functions and of dtypes: arguments are bound and converted by kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from dlc.dialects.array import show
from dlc.errors import ModelError
from dlc.frontend.elaboration.calls import bind
from dlc.frontend.elaboration.evaluator import Evaluator, calls
from dlc.frontend.elaboration.problems import Poisoned
from dlc.frontend.elaboration.tensors import as_tensor, convert, dtype_of, is_numeric, natural_dtype
from dlc.frontend.elaboration.values import (
    PLACEHOLDER,
    UNKNOWN,
    Argument,
    Arguments,
    Builtin,
    Callee,
    Datum,
    Items,
    Parameter,
    Record,
    describe,
    is_number,
    part_of,
)
from dlc.ir.core import Value
from dlc.ir.types import BOOL, F32, F64, I32, I64, DType
from dlc.text.source import Span

__all__ = ["cast"]


@calls(Builtin)
def _call_builtin(ev: Evaluator, function: Builtin, arguments: Arguments) -> Datum:
    """Bind and convert the arguments, then let the row of the table do its work."""
    ev.at.stand(arguments.span)
    bound, extra = _bound(ev, function, arguments)
    ev.at.builtin = function.name
    try:
        return function.run(ev.at, *bound, **extra)
    except ModelError as error:
        raise ev.labelled(error, _operands(arguments), function.name) from None


def _operands(arguments: Arguments) -> list[tuple[Span, Datum]]:
    every = [*arguments.positional, *arguments.named.values()]
    return [(argument.span, argument.value) for argument in every]


def _bound(
    ev: Evaluator, function: Builtin, arguments: Arguments
) -> tuple[list[object], dict[str, object]]:
    """The converted arguments by position, those of `*rest` last, and those of `**others` by name."""
    parameters = function.parameters
    if function.is_simple and not arguments.named and len(arguments.positional) == len(parameters):
        pairs = list(zip(parameters, arguments.positional, strict=True))
        common = _common_dtype(pairs)
        return [converted(ev, function, *pair, common) for pair in pairs], {}
    plain = [p for p in parameters if not p.name.startswith("*")]
    others = next((p for p in parameters if p.name.startswith("**")), None)
    rest = next((p for p in parameters if p.name.startswith("*") and p is not others), None)
    own, tail, extra = _shares(
        arguments, plain, has_rest=rest is not None, has_others=others is not None
    )
    bound = bind(ev, function.name, [(p.name, p.required) for p in plain], own)
    pairs = [(p, bound[p.name]) for p in plain if p.name in bound]
    if rest is not None:
        pairs += [(rest, argument) for argument in tail]
    common = _common_dtype(pairs)

    def value(parameter: Parameter, argument: Argument) -> object:
        return converted(ev, function, parameter, argument, common)

    values = [value(p, bound[p.name]) if p.name in bound else p.default for p in plain]
    if rest is not None:
        values += [value(rest, argument) for argument in tail]
    if others is None:
        return values, {}
    return values, {name: value(others, argument) for name, argument in extra.items()}


def _shares(
    arguments: Arguments, plain: Sequence[Parameter], *, has_rest: bool, has_others: bool
) -> tuple[Arguments, tuple[Argument, ...], dict[str, Argument]]:
    """The arguments for the plain parameters, for `*rest` and for `**others`.

    Where the function has no such parameter, the plain ones get them all.
    """
    count = len(plain) if has_rest else len(arguments.positional)
    names = {p.name for p in plain} if has_others else {*arguments.named}
    named = {name: argument for name, argument in arguments.named.items() if name in names}
    extra = {name: argument for name, argument in arguments.named.items() if name not in names}
    own = Arguments(arguments.positional[:count], named, arguments.source, arguments.span)
    return own, arguments.positional[count:], extra


def _common_dtype(pairs: Sequence[tuple[Parameter, Argument]]) -> DType | None:
    """The dtype that numbers take: that of the first tensor, or of numbers alone one that holds all."""
    meeting = [(p, argument.value) for p, argument in pairs if p.kind in ("float", "alike")]
    for _, value in meeting:
        if (dtype := _dtype_within(value)) is not None:
            return dtype
    for parameter, argument in pairs:
        dtype = _dtype_within(argument.value) if parameter.kind in ("tensor", "any") else None
        if dtype is not None and dtype.is_float:
            return dtype
    alike = [value for parameter, value in meeting if parameter.kind == "alike"]
    return natural_dtype(Items(tuple(alike))) if alike else None


def _dtype_within(value: Datum) -> DType | None:
    """The dtype of a tensor, or of the first one in a list."""
    match value:
        case Value():
            return dtype_of(value)
        case Items(items):
            return next((dtype for item in items if (dtype := _dtype_within(item))), None)
        case _:
            return None


def converted(
    ev: Evaluator,
    function: Builtin,
    parameter: Parameter,
    argument: Argument,
    common: DType | None,
) -> object:
    """The argument converted to the kind of the parameter; numbers may take the `common` dtype."""
    value = argument.value
    if value is UNKNOWN:
        raise Poisoned
    if value is None and parameter.default is None and not parameter.required:
        return None
    if common is not None and _takes(parameter.kind, value, common):
        return as_tensor(ev.at, value, common)
    result = _CONVERT[parameter.kind](ev, value, argument)
    if result is _NO:
        raise ev.at.fail(
            "D0320",
            f"{parameter.name.lstrip('*')} of {function.name} is {_WANTED[parameter.kind]}, "
            f"found {describe(value)}",
            argument.span,
            help=_help(function, parameter, value),
        )
    return result


def _takes(kind: str, value: Datum, common: DType) -> bool:
    """Whether numbers as an argument of a kind take the common dtype.

    Where integers, labels or indices, may stand as well as floats, only numbers with a point do.
    """
    if not (is_number(value) or isinstance(value, Items)):
        return False
    match kind:
        case "alike":
            return True
        case "float":
            return common.is_float
        case "tensor":
            return common.is_float and natural_dtype(value) is F32
        case _:
            return False


_NO: Final = object()


def _help(function: Builtin, parameter: Parameter, value: Datum) -> str | None:
    kind = parameter.kind
    if function.name in ("max", "min") and parameter.name == "axis":
        return f"for each element of two tensors there is {function.name}imum(x, y)"
    if isinstance(value, Value) and kind == "list":
        return f"put them into a list: {function.name}([a, b])"
    if isinstance(value, Value) and kind not in ("tensor", "alike", "float", "any"):
        return "a tensor has its value only when the model runs"
    if isinstance(value, Callee) and kind in ("tensor", "alike", "float"):
        return "call it first"
    return part_of(value)


_WANTED: Final = {
    "tensor": "a tensor",
    "alike": "a tensor",
    "float": "a tensor of floats",
    "real": "a tensor of floats",
    "count": "a tensor",
    "any": "a value",
    "number": "a number",
    "int": "a whole number",
    "size": "a size",
    "axis": "the number of an axis",
    "axes": "the number of an axis or a list of them",
    "shape": "a list of sizes such as [B, 10]",
    "ints": "a whole number or a list of them",
    "bool": "true or false",
    "text": "a text in quotes",
    "dtype": "a dtype such as f32",
    "function": "a function",
    "list": "a list",
}


def _tensor(ev: Evaluator, value: Datum, argument: Argument) -> object:
    if isinstance(value, Value):
        return value
    if is_number(value) or isinstance(value, bool | Items):
        return as_tensor(ev.at, value)
    return _NO


def _float(ev: Evaluator, value: Datum, argument: Argument) -> object:
    if isinstance(value, Value):
        if not dtype_of(value).is_float:
            raise ev.at.fail(
                "D0302",
                f"floats are needed here, found {show(value)}",
                argument.span,
                help="convert it first: f32(...)",
            )
        return value
    if is_number(value) or isinstance(value, Items):
        return as_tensor(ev.at, value, _float_dtype(value))
    return _NO


def _real(ev: Evaluator, value: Datum, argument: Argument) -> object:
    return value if _is_plain(value) else _float(ev, value, argument)


def _count(ev: Evaluator, value: Datum, argument: Argument) -> object:
    return value if _is_plain(value) else _tensor(ev, value, argument)


def _is_plain(value: Datum) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _float_dtype(value: Datum) -> DType:
    """The dtype that a list with tensors in it has, else f32."""
    if isinstance(value, Items):
        for item in value.items:
            dtype = _float_dtype(item)
            if dtype is not F32:
                return dtype
    return dtype_of(value) if isinstance(value, Value) else F32


def _any(ev: Evaluator, value: Datum, argument: Argument) -> object:
    return value


def _of(*kinds: type) -> Callable[[Evaluator, Datum, Argument], object]:
    def check(ev: Evaluator, value: Datum, argument: Argument) -> object:
        wrong = isinstance(value, bool) and bool not in kinds
        return value if isinstance(value, kinds) and not wrong else _NO

    return check


def _size(ev: Evaluator, value: Datum, argument: Argument) -> object:
    return ev.as_size(value, argument.span)


def _shape(ev: Evaluator, value: Datum, argument: Argument) -> object:
    """A tuple of sizes; `_` stays what it is."""
    match value:
        case Items(items) | Record(items):
            return tuple(
                [item if item is PLACEHOLDER else ev.as_size(item, argument.span) for item in items]
            )
        case _ if is_number(value):
            return (ev.as_size(value, argument.span),)
        case _:
            return _NO


def _ints(ev: Evaluator, value: Datum, argument: Argument) -> object:
    """An int, or a tuple of ints."""
    match value:
        case bool():
            return _NO
        case int():
            return value
        case Items(items) | Record(items):
            whole = all(isinstance(item, int) and not isinstance(item, bool) for item in items)
            return tuple(items) if whole else _NO
        case _:
            return _NO


def _list(ev: Evaluator, value: Datum, argument: Argument) -> object:
    match value:
        case Items(items) | Record(items):
            return tuple(items)
        case _:
            return _NO


_CONVERT: Final[Mapping[str, Callable[[Evaluator, Datum, Argument], object]]] = {
    "tensor": _tensor,
    "alike": _tensor,
    "float": _float,
    "real": _real,
    "count": _count,
    "any": _any,
    "number": _of(int, float),
    "int": _of(int),
    "size": _size,
    "axis": _of(int),
    "axes": _ints,
    "shape": _shape,
    "ints": _ints,
    "bool": _of(bool),
    "text": _of(str),
    "dtype": _of(DType),
    "function": _of(Callee, DType),
    "list": _list,
}


@calls(DType)
def cast(ev: Evaluator, dtype: DType, arguments: Arguments) -> Datum:
    """`f32(x)`: the tensor in another dtype; floats to integers saturate and take NaN to 0."""
    at = ev.at
    at.stand(arguments.span)
    argument = bind(ev, dtype.name, [("x", True)], arguments)["x"]
    match argument.value:
        case Value() as value:
            return convert(at, value, dtype)
        case Items() | bool() | int() | float() as numbers:
            # Numbers take the dtype at once: f64(0.1) never is an f32, u64(2 ** 63) never an i32.
            natural = natural_dtype(numbers) if is_numeric(numbers) else BOOL
            adapts = natural is not BOOL if dtype.is_float else natural is I32
            # Whether a number is 0 does not depend on how large it is.
            wide = {I32: I64, F32: F64}.get(natural) if dtype is BOOL else dtype if adapts else None
            return convert(at, as_tensor(at, numbers, wide), dtype)
        case value if is_number(value):
            return as_tensor(at, value, dtype)
        case value:
            raise ev.not_known(value, "a tensor", argument.span)
