"""The signature of an entry point, in the syntax of the language and for Python."""

from __future__ import annotations

import binascii
import inspect

import numpy as np

from dlc.runtime.arrays.dtypes import DTYPES
from dlc.runtime.arrays.literals import literal
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.manifest import Entry, Input, Output
from dlc.runtime.artifact.spelling import describe, python_name
from dlc.runtime.calling.dim_binding import DimBinder


def signature_text(entry: Entry) -> str:
    """The signature in the syntax of the language; sizes that no input has come last, as `N: size`.

    >>> x = Input("x", "f32", ("B", "64"))
    >>> signature_text(Entry("f", (x,), (Output("y", "i32", ("B",)),)))
    'f(x: f32[B, 64]) -> (y: i32[B])'
    """
    inouts = entry.inouts
    inputs = [
        f"{'inout ' * (item.name in inouts)}{item.name}: {describe(item)}{_default_text(item)}"
        for item in entry.inputs
    ]
    inputs += [f"{name}: size" for name in DimBinder(entry).free]
    outputs = [_output_text(output) for output in entry.outputs if not output.hidden]
    result = (
        outputs[0] if len(outputs) == 1 and ":" not in outputs[0] else f"({', '.join(outputs)})"
    )
    return f"{entry.name}({', '.join(inputs)}) -> {result}"


def default_value(item: Input) -> Tensor | None:
    """The default value of an input, read-only; None without one."""
    if item.default is None:
        return None
    data = binascii.a2b_base64(item.default.data)
    bits = np.frombuffer(data, DTYPES[item.dtype].numpy).reshape(item.default.shape)
    return Tensor.from_bits(bits, item.dtype)


def python_signature(entry: Entry) -> inspect.Signature:
    """The signature for `inspect.signature` and editors; names that Python reserves get a final `_`."""
    outputs = ", ".join(_output_text(output) for output in entry.outputs if not output.hidden)
    try:
        parameters = [
            inspect.Parameter(
                python_name(item.name),
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=inspect.Parameter.empty if item.default is None else _Default(item),
                annotation=describe(item),
            )
            for item in entry.inputs
        ]
        parameters += [
            inspect.Parameter(python_name(name), inspect.Parameter.KEYWORD_ONLY, annotation="int")
            for name in DimBinder(entry).free
        ]
        parameters += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
            for name in ("out", "arena")
        ]
        return inspect.Signature(_defaults_last(parameters), return_annotation=outputs)
    except ValueError:
        # The name of an input may not be allowed for a parameter in Python.
        return inspect.Signature()


class _Default:
    """A default value in the form shown in a signature."""

    def __init__(self, item: Input) -> None:
        self._text = _value_text(item)

    def __repr__(self) -> str:
        return self._text


def _defaults_last(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """Make parameters without a default that follow one with a default keyword-only."""
    found: list[inspect.Parameter] = []
    seen_default = False
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
            if seen_default and parameter.default is inspect.Parameter.empty:
                parameter = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            seen_default = seen_default or parameter.default is not inspect.Parameter.empty
        found.append(parameter)
    return sorted(found, key=lambda parameter: parameter.kind)


def _default_text(item: Input) -> str:
    return "" if item.default is None else f" = {_value_text(item)}"


def _value_text(item: Input) -> str:
    value = default_value(item)
    assert value is not None
    return literal(value) if value.size <= 16 else "..."


def _output_text(output: Output) -> str:
    return f"{output.name}: {describe(output)}" if output.name else describe(output)
