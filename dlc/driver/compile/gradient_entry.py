"""`--grad y:x`: an entry point also gives the derivative of one of its results by one of its inputs."""

from __future__ import annotations

from dlc.dialects import array, flow, func
from dlc.dialects.measured import measuring, rename_measured_dims
from dlc.driver.compile.entries import entry_functions, find_function
from dlc.driver.source.source_model import SourceModel
from dlc.errors import UsageError
from dlc.ir.clone import clone_block
from dlc.ir.core import Block, Builder, Value
from dlc.ir.types import TensorType, Type


def add_gradient(model: SourceModel, entry: str | None, result: str, input: str) -> None:
    """Let an entry point give `d{result}/d{input}` after its results.

    A result without a name is called like its entry point, or `result`. If it is not a single number,
    the derivative is that of the sum of its elements. Raises UsageError for names that do not exist and
    for models that are no longer at graph level.
    """
    if model.stage != "graph":
        raise UsageError(
            f"{model.name} is at {model.stage} level, where no derivative can be taken",
            code="D0905",
            help="start from the model's text",
        )
    function = gradient_function(model, entry, result)
    function.forget_updates()
    position = _result_position(function, result)
    if input not in function.input_names:
        raise UsageError(
            f"{function.sym_name} has no input {input!r}",
            code="D0905",
            help=f"its inputs are {', '.join(function.input_names)}",
        )
    _check_float(function, result, function.body.terminator.operands[position].type)
    _check_float(function, input, function.function_type.inputs[function.input_names.index(input)])
    _extend(function, position, function.input_names.index(input), f"d{result}/d{input}")


def _check_float(function: func.Func, name: str, type: Type) -> None:
    """Only floats have derivatives, and only by floats are there any."""
    assert isinstance(type, TensorType)
    if not type.dtype.is_float:
        raise UsageError(
            f"{name} of {function.sym_name} is {type.text}, and integers and bools have no derivative",
            code="D0905",
            help="name a result and an input that are floats",
        )


def gradient_function(model: SourceModel, entry: str | None, result: str) -> func.Func:
    """The entry point; where none is named, the only one, or the only one with such a result."""
    having = [f for f in entry_functions(model.module) if result in _result_names(f)]
    if entry is None and len(having) == 1:
        return having[0]
    return find_function(model.module, entry)


def _result_position(function: func.Func, result: str) -> int:
    names = _result_names(function)
    if result in names:
        return names.index(result)
    if len(names) == 1 and result in (function.sym_name, "result"):
        return 0
    raise UsageError(
        f"{function.sym_name} has no result {result!r}",
        code="D0905",
        help=f"its results are {', '.join(names)}",
    )


def _result_names(function: func.Func) -> tuple[str, ...]:
    results = function.results_returned
    if function.result_names:
        return function.result_names
    if len(results) == 1:
        return (function.sym_name,)
    return tuple(f"result{k}" for k in range(len(results)))


def _extend(function: func.Func, position: int, input: int, name: str) -> None:
    """Append the derivative to what the function returns."""
    body = function.body
    names = _result_names(function)
    derivative = _derivative_body(body, position)
    rename_measured_dims(derivative, {*function.bounds, *measuring(function)})
    terminator = body.terminator
    emit = Builder.before_op(terminator)
    value = terminator.operands[position]
    assert isinstance(value.type, TensorType)
    ones = emit(array.Fill(1.0, value.type), name=f"d{name.partition('/')[0][1:]}")
    (found,) = emit.all(flow.Vjp(tuple(body.arguments), (ones,), derivative, (input,)))
    found.name = name
    terminator.set_operands((*terminator.operands, found))
    function.attributes["dlc.results"] = (*names, name)
    function.retype()


def _derivative_body(body: Block, position: int) -> Block:
    """A copy of the function that hands over one of its results."""
    copy = clone_block(body)
    last = copy.terminator
    values: tuple[Value, ...] = (last.operands[position],)
    location = last.location
    last.erase()
    Builder(copy, location).place(flow.Yield(values))
    return copy
