"""`dlc stubs`: a Python module that tells editors and type checkers the entry points of a model.

The module has a class with a method for each entry point, and a function that loads the model as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from keyword import iskeyword
from pathlib import PurePath
from textwrap import indent
from typing import Final

from dlc.driver.report.check import check_model
from dlc.driver.run.request import CompileRequest
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import Entry, Input, Output
from dlc.runtime.artifact.spelling import describe, python_name
from dlc.runtime.calling.dim_binding import DimBinder
from dlc.runtime.calling.results import is_field
from dlc.runtime.model import Model

SCALARS: Final = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bool": "bool_",
    **{f"{kind[0]}{bits}": f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
}  # fmt: skip
"""NumPy's names of the dtypes; what it has no dtype for is a `dlc.Tensor`."""

HEAD: Final = '''"""The entry points of {path}, for editors and type checkers. Written by `dlc stubs`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import dlc
import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["{name}", "load"]
'''


@dataclass(frozen=True, slots=True)
class _Interface:
    """The entry points of a model, in the file of that path."""

    path: str
    entries: Sequence[Entry]
    is_compiled: bool


def stubs(request: CompileRequest) -> str:
    """The text of the module; nothing in the model runs.

    Raises ModelError or ArtifactError where the file is wrong.
    """
    if request.is_compiled:
        entries = Artifact.read(request.path).manifest.called
    else:
        entries = check_model(request).entries
    return _module(_Interface(str(request.path), tuple(entries), request.is_compiled))


def _module(interface: _Interface) -> str:
    name = _class_name(PurePath(interface.path).stem)
    entries = [entry for entry in interface.entries if _is_method(entry)]
    parts = [HEAD.format(path=PurePath(interface.path).name, name=name)]
    parts += [_result_class(entry) for entry in entries if _is_named(entry)]
    parts += [f"class {name}(dlc.Model):\n    if TYPE_CHECKING:\n\n"]
    parts[-1] += "\n".join(map(_method, entries)) if entries else "        pass\n"
    made = "load" if interface.is_compiled else "compile"
    file = PurePath(interface.path).name
    parts += [
        f'def load(path: str | os.PathLike[str] = "{file}", **options: Any) -> {name}:\n'
        f'    """The model, with the options of `dlc.{made}`."""\n'
        f'    return cast("{name}", dlc.{made}(path, **options))\n'
    ]
    return "\n\n".join(parts)


def _class_name(stem: str) -> str:
    """A name of a class after a file: `my-model` is `MyModel`."""
    words = "".join(c if c.isalnum() else " " for c in stem).split()
    name = "".join(word[:1].upper() + word[1:] for word in words)
    return name if name.isidentifier() and name != "Model" else f"Model{name}"


def _is_method(entry: Entry) -> bool:
    """Whether the entry point is an attribute of the model; others are reached as `model["name"]`."""
    return (
        entry.name.isidentifier() and not iskeyword(entry.name) and not hasattr(Model, entry.name)
    )


def _visible(entry: Entry) -> list[Output]:
    return [output for output in entry.outputs if not output.hidden]


def _is_named(entry: Entry) -> bool:
    """Whether calls give a tuple with names."""
    return all(is_field(output.name) for output in _visible(entry))


def _result_class(entry: Entry) -> str:
    fields = "\n".join(
        f"    {output.name}: {_array(output.dtype)}\n    {_docs(output)}"
        for output in _visible(entry)
    )
    return f'class {_result_name(entry)}(NamedTuple):\n    """The results of {entry.name}."""\n\n{fields}\n'


def _result_name(entry: Entry) -> str:
    return f"{_class_name(entry.name)}Results"


def _method(entry: Entry) -> str:
    """A method, indented for its class."""
    plain = list(takewhile(lambda item: item.default is None, entry.inputs))
    rest = entry.inputs[len(plain) :]
    given = [item for item in rest if item.default is not None]
    named = [item for item in rest if item.default is None]
    parameters = ["self", *[_parameter(item) for item in (*plain, *given)], "*"]
    parameters += [_parameter(item) for item in named]
    parameters += [f"{python_name(size)}: int" for size in DimBinder(entry).free]
    parameters += ["out: Any = None", "arena: Any = None"]
    lines = "".join(f"            {parameter},\n" for parameter in parameters)
    return (
        f"        def {entry.name}(\n{lines}        ) -> {_result(entry)}:\n"
        f"{indent(_method_docs(entry), ' ' * 12)}\n            ...\n"
    )


def _method_docs(entry: Entry) -> str:
    """What the text says of an entry point, and the types of its inputs and results."""
    inputs = "".join(f"{python_name(item.name)}: {describe(item)}\n" for item in entry.inputs)
    results = ", ".join(describe(output) for output in _visible(entry))
    first = entry.doc.split("\n")[0] or f"The entry point {entry.name}."
    return f'"""{_plain(first)}\n\n{inputs}gives {results}\n"""'


def _parameter(item: Input) -> str:
    default = "" if item.default is None else " = ..."
    return f"{python_name(item.name)}: ArrayLike | dlc.Tensor{default}"


def _result(entry: Entry) -> str:
    outputs = _visible(entry)
    if _is_named(entry) and outputs:
        return _result_name(entry)
    types = [_array(output.dtype) for output in outputs]
    return types[0] if len(types) == 1 else f"tuple[{', '.join(types) or '()'}]"


def _array(dtype: str) -> str:
    scalar = SCALARS.get(dtype)
    return "dlc.Tensor" if scalar is None else f"NDArray[np.{scalar}]"


def _docs(output: Output) -> str:
    text = describe(output) if not output.doc else f"{describe(output)}: {output.doc}"
    return f'"""{_plain(text)}"""'


def _plain(text: str) -> str:
    """The text as the inside of a docstring."""
    return text.replace("\\", "\\\\").replace('"""', "'''")
