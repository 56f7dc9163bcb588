"""The pages of the operations of the IR at every level, of their dialects, and of the passes.

An example is a short use of the operation: in the example of a function of the language, in a text that
uses most of it, or in such a text on its way through the levels.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from textwrap import dedent

from dlc import dialects
from dlc.driver.compile.compile import lower
from dlc.driver.compile.settings import Settings
from dlc.driver.reference.derivatives import derivative_of
from dlc.driver.reference.example_graph import example_graphs
from dlc.driver.reference.page import Page, Part
from dlc.driver.reference.showcase import CALLED, IR, TRAINED
from dlc.driver.source.open import open_model, open_training
from dlc.ir.core import OPS, Op
from dlc.ir.define import fields_of
from dlc.ir.passes import PASSES, Pass
from dlc.text.ir.parser import parse_ops
from dlc.text.ir.printer import print_module

assert dialects.__doc__, "the modules that define the operations are loaded"

_COLLAPSED = 12
"""An example of more lines is cut here."""


def pages() -> Iterator[Page]:
    """The pages of all operations, without examples; then those of the passes."""
    for name, kind in OPS.items():
        dialect = name.partition(".")[0]
        summary, details = _documentation(kind)
        yield Page(
            name,
            f"operations: {dialect}",
            _signature(kind),
            summary,
            details,
            _parts(kind),
            derivative=derivative_of(kind),
        )
    for pass_ in PASSES.values():
        disabling = (
            "It runs always." if pass_.required else f"--disable-pass {pass_.name} leaves it out."
        )
        _, details = _documentation(pass_.function)
        yield Page(
            pass_.name,
            "passes",
            pass_.name,
            pass_.doc,
            "\n\n".join(filter(None, (details, disabling))),
            _options(pass_),
            example=f"dlc show model.dlm --after {pass_.name}",
            derivative="none: derivatives are taken by the pass autodiff",
        )


def complete(page: Page) -> Page:
    """The page with an example in IR."""
    return replace(page, example=page.example or _example(page.name))


def dialect_summary(name: str) -> str:
    """The purpose of a dialect, in one line."""
    home = sys.modules.get(f"dlc.dialects.{name}")
    return ((home and home.__doc__) or f"Operations of the dialect {name}.").partition("\n")[0]


def _documentation(kind: type[Op] | Callable[..., None]) -> tuple[str, str]:
    """The first paragraph in one line, and the rest."""
    first, _, rest = (inspect.getdoc(kind) or "").partition("\n\n")
    return " ".join(first.split()), rest


def _signature(kind: type[Op]) -> str:
    values = [
        f"*{field.name}" if field.kind == "operands" else field.name
        for field in fields_of(kind)
        if field.kind in ("operand", "operands")
    ]
    facts = [field.name for field in fields_of(kind) if field.kind == "attribute"]
    given = f" <{', '.join(facts)}>" if facts else ""
    return f"{kind.name}({', '.join(values)}){given}"


def _parts(kind: type[Op]) -> tuple[Part, ...]:
    return tuple([Part(field.name, field.kind, field.doc) for field in fields_of(kind)])


def _options(pass_: Pass[...]) -> tuple[Part, ...]:
    """The options of a pass with their defaults; the pass's docstring says what they are for."""
    return tuple(
        [Part(option.name, option.kind.__name__, option.default_text) for option in pass_.options]
    )


def _example(name: str) -> str:
    """The shortest use in the first of the texts and levels where the operation occurs."""
    stages = (
        *(_in_functions, _in_graphs, _in_ir),
        *(partial(_on_the_way, 0), partial(_on_the_way, 2), partial(_on_the_way, 2, "cuda")),
        partial(_on_the_way, 2, "cuda", "fast"),
    )
    return next((texts[name] for stage in stages if name in (texts := stage())), "")


@cache
def _in_functions() -> dict[str, str]:
    """Uses in the examples of the language's functions."""
    texts: dict[str, str] = {}
    for module in example_graphs():
        _collect(module, texts)
    return texts


@cache
def _in_graphs() -> dict[str, str]:
    """Uses in the graphs of the texts: when they are called, and when one is trained."""
    texts: dict[str, str] = {}
    _collect(open_model("showcase.dlm", text=CALLED).module, texts)
    _collect(open_training("training.dlm", text=TRAINED).module, texts)
    return texts


@cache
def _in_ir() -> dict[str, str]:
    """Uses that no text of the language leads to."""
    texts: dict[str, str] = {}
    for op in parse_ops(IR, "showcase.dlir"):
        _collect(op, texts)
    return texts


@cache
def _on_the_way(level: int, target: str = "cpu", accuracy: str = "default") -> dict[str, str]:
    """Uses between the graph and machine code."""
    texts: dict[str, str] = {}
    model = open_model("showcase.dlm", text=CALLED)
    matmul = "generated" if level else "blas"
    settings = Settings(level, target=target, matmul=matmul, accuracy=accuracy)
    lower(model, settings, "loop", lambda _, module: _collect(module, texts))
    return texts


def _collect(module: Op, texts: dict[str, str]) -> None:
    """Add the shortest use of each operation that has none yet."""
    uses: dict[str, list[Op]] = {}
    for op in module.walk():
        if op.name not in texts:
            uses.setdefault(op.name, []).append(op)
    for name, ops in uses.items():
        texts[name] = _shortened(min(map(print_module, ops), key=len))


def _shortened(text: str) -> str:
    lines = dedent(text).rstrip().split("\n")
    if len(lines) <= _COLLAPSED:
        return "\n".join(lines)
    return "\n".join([*lines[: _COLLAPSED - 2], "  ...", lines[-1]])
