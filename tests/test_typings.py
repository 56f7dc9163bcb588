"""The hand-written types of llvmlite say only what the installed llvmlite can do."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

from llvmlite import binding

from tests.suites import together

STUB = Path(__file__).parents[1] / "typings" / "llvmlite" / "binding.pyi"

Definition = ast.FunctionDef | ast.ClassDef


def definitions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, Definition]]:
    """Each public function and class of the stub, with its dotted name."""
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        yield prefix + node.name, node
        if isinstance(node, ast.ClassDef):
            yield from definitions(node.body, f"{prefix}{node.name}.")


DEFINITIONS = dict(definitions(ast.parse(STUB.read_text(encoding="utf-8")).body))


@together("name", DEFINITIONS)
def test_llvmlite_has_what_its_stub_declares(name: str) -> None:
    found: object = binding
    for part in name.split("."):
        found = inspect.getattr_static(found, part)
    node = DEFINITIONS[name]
    if isinstance(node, ast.FunctionDef) and inspect.isfunction(found):
        declared = [argument.arg for argument in node.args.args]
        assert declared == list(inspect.signature(found).parameters)[: len(declared)]
