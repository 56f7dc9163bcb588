"""`dlc reduce`: a smaller file for which a command of the user still succeeds.

Model text loses declarations, then statements, then what its numbers are larger than 1 by. IR loses
functions, then operations, whose values become inputs of the function. An ONNX graph loses nodes, likewise.
What a candidate has to fulfil is the command's business: one that cannot be read makes most commands fail.
"""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlc.dialects import func
from dlc.dialects.builtin import Module
from dlc.driver.diff.delta import minimal
from dlc.driver.source.open import read_ir
from dlc.errors import DlcError, UsageError
from dlc.ir.core import Op, Value
from dlc.ir.types import TensorType
from dlc.ir.verify import verify
from dlc.text.ir.printer import print_module

Test = Callable[[bytes], bool]

NAME = "reduced.dlir"
"""What messages call IR on its way."""
PLACEHOLDER = "{}"
"""Stands for the file in a command."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """The smaller contents, and how many candidates were tried."""

    data: bytes
    tests: int


def reduce_file(path: Path, command: str, seconds: float) -> Reduced:
    """The smallest contents found with which a shell command ends with 0.

    `{}` in the command is the file, which stands behind it where there is none. A command that takes more
    than `seconds` has failed. Raises UsageError: D0501 for a file that cannot be read, D0901 for one that
    is not a model text, IR or ONNX, D0905 where the command fails for the file as it is.
    """
    reducers = {".dlm": _reduce_text, ".dlir": _reduce_ir, ".onnx": _reduce_onnx}
    if path.suffix not in reducers:
        raise UsageError(
            f"{path.name} cannot be reduced",
            code="D0901",
            help=f"files end in {', '.join(reducers)}; dlc show --stage graph writes IR of any model",
        )
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UsageError(f"cannot read {path}: {reason.lower()}", code="D0501") from error
    tests = 0

    with tempfile.TemporaryDirectory() as folder:
        candidate = Path(folder) / path.name

        def test(data: bytes) -> bool:
            nonlocal tests
            tests += 1
            candidate.write_bytes(data)
            return _succeeds(command, candidate, seconds)

        if not test(data):
            raise UsageError(
                f"the command fails for {path.name} as it is",
                code="D0905",
                help=f"it must end with 0 for what is looked for: {_with_file(command, path)}",
            )
        return Reduced(reducers[path.suffix](data, test), tests)


def _with_file(command: str, path: Path) -> str:
    name = shlex.quote(str(path))
    return command.replace(PLACEHOLDER, name) if PLACEHOLDER in command else f"{command} {name}"


def _succeeds(command: str, path: Path, seconds: float) -> bool:
    words = ["/bin/sh", "-c", _with_file(command, path)]
    try:
        done = subprocess.run(words, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


# Text.


def _reduce_text(data: bytes, test: Test) -> bytes:
    text = data.decode()
    while True:
        before = text
        for split in (_declarations, _lines):
            pieces = minimal(split(text), lambda kept: test("".join(kept).encode()))
            text = "".join(pieces)
        text = _smaller_numbers(text, test)
        if text == before:
            return text.encode()


def _declarations(text: str) -> list[str]:
    """The text in pieces that begin at the margin, each with the lines that belong to it."""
    pieces: list[str] = []
    for line in text.splitlines(keepends=True):
        begins = bool(line.strip()) and not line[0].isspace() and line[0] not in "})]"
        if begins or not pieces:
            pieces.append(line)
        else:
            pieces[-1] += line
    return pieces


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _smaller_numbers(text: str, test: Test) -> str:
    """Every whole number as small as the test allows, a power of 2 of halvings at a time."""
    position = 0
    while match := re.compile(r"(?<![\w.])[0-9]+(?![\w.])").search(text, position):
        number = int(match[0])
        for smaller in dict.fromkeys([1, 2, number // 4, number // 2, number - 1]):
            if 0 < smaller < number:
                candidate = f"{text[: match.start()]}{smaller}{text[match.end() :]}"
                if test(candidate.encode()):
                    text = candidate
                    break
        position = match.start() + 1
        while position < len(text) and text[position].isdigit():
            position += 1
    return text


# IR.


def _reduce_ir(data: bytes, test: Test) -> bytes:
    text = data.decode()

    def holds(candidate: str | None) -> bool:
        return candidate is not None and test(candidate.encode())

    symbols = list(range(len(list(read_ir(text, NAME).body))))
    kept = minimal(symbols, lambda kept: holds(_with_symbols(text, kept)))
    text = _with_symbols(text, kept) or text
    for number in range(len(kept)):
        text = _fewer_ops(text, number, holds)
    return text.encode()


def _fewer_ops(text: str, number: int, holds: Callable[[str | None], bool]) -> str:
    """The module with as few operations as possible in one of its functions."""
    count = len(list(_ops_of(read_ir(text, NAME), number)))
    if not count:
        return text
    ops = minimal(range(count), lambda ops: holds(_with_ops(text, number, ops)))
    return _with_ops(text, number, ops) or text


def _with_symbols(text: str, kept: Sequence[int]) -> str | None:
    """The module with these operations of its body only; None for one that is not valid."""
    module = read_ir(text, NAME)
    for number, op in enumerate(list(module.body)):
        if number not in kept:
            op.erase()
    return _valid(module)


def _ops_of(module: Module, number: int) -> Iterator[Op]:
    """The operations of a function of a module, without the one that ends it."""
    function = list(module.body)[number]
    if isinstance(function, func.Func):
        yield from [op for op in function.body if not op.terminator]


def _with_ops(text: str, number: int, kept: Sequence[int]) -> str | None:
    """The module with these operations of one of its functions; what they lack are inputs of it."""
    module = read_ir(text, NAME)
    function = list(module.body)[number]
    assert isinstance(function, func.Func)
    ops = list(_ops_of(module, number))
    chosen = {ops[k] for k in kept}
    wanted = [v for op in ops if op in chosen for v in op.results]
    results = [
        v for v in wanted if not any(_outermost(user, function) in chosen for user in v.uses)
    ]
    _end_with(function, results)
    for op in reversed(ops):
        if op not in chosen:
            for result in op.results:
                if result.uses:
                    if not isinstance(result.type, TensorType):
                        return None
                    result.replace_by(function.body.add_argument(result.type, result.name))
            op.erase()
    for index in reversed(range(len(function.body.arguments))):
        if not function.body.arguments[index].uses:
            function.body.remove_argument(index)
    names = [f"x{k}" for k in range(len(function.body.arguments))]
    for name in ("dlc.defaults", "dlc.results", "dlc.updates", "dlc.needs"):
        function.attributes.pop(name, None)
    function.attributes["dlc.inputs"] = tuple(names)
    function.retype()
    return _valid(module)


def _outermost(op: Op, function: func.Func) -> Op:
    """The operation of the function's own body that an operation is, or is in."""
    while op.parent is not None and op.parent is not function.body and op.parent.parent is not None:
        op = op.parent.parent
    return op


def _end_with(function: func.Func, results: Sequence[Value]) -> None:
    body = function.body
    location = body.terminator.location
    body.terminator.erase()
    made = func.Return(tuple(results))
    made.location = location
    body.append(made)


def _valid(module: Module) -> str | None:
    try:
        verify(module)
    except DlcError:
        return None
    return print_module(module)


# ONNX.


def _reduce_onnx(data: bytes, test: Test) -> bytes:
    try:
        onnx: Any = importlib.import_module("onnx")
    except ImportError:
        raise UsageError(
            "reducing an .onnx file needs onnx, which is not installed",
            code="D0901",
            help="pip install onnx",
        ) from None
    whole = onnx.shape_inference.infer_shapes(onnx.load_from_string(data))
    known = {info.name: info for info in (*whole.graph.value_info, *whole.graph.output)}

    def with_nodes(kept: Sequence[int]) -> bytes:
        return _onnx_part(onnx, whole, known, kept)

    nodes = range(len(whole.graph.node))
    return with_nodes(minimal(nodes, lambda kept: bool(kept) and test(with_nodes(kept))))


def _onnx_part(onnx: Any, whole: Any, known: dict[str, Any], kept: Sequence[int]) -> bytes:  # noqa: ANN401
    """The model with these nodes: what they lack are inputs, and what none of them reads are results."""
    model = onnx.ModelProto()
    model.CopyFrom(whole)
    graph = model.graph
    nodes = [whole.graph.node[k] for k in kept]
    made = {name for node in nodes for name in node.output}
    read = list(dict.fromkeys(name for node in nodes for name in node.input if name))
    stored = [one for one in whole.graph.initializer if one.name in read]
    old_inputs = {one.name: one for one in whole.graph.input}
    missing = [n for n in read if n not in made and n not in {one.name for one in stored}]
    inputs = [old_inputs.get(n) or known.get(n) or onnx.ValueInfoProto(name=n) for n in missing]
    ends = [n for node in nodes for n in node.output if n and n not in read]
    outputs = [known.get(name) or onnx.ValueInfoProto(name=name) for name in ends]
    for field, values in (
        ("node", nodes),
        ("initializer", stored),
        ("input", inputs),
        ("output", outputs),
        ("value_info", []),
    ):
        graph.ClearField(field)
        getattr(graph, field).extend(values)
    return model.SerializeToString()
