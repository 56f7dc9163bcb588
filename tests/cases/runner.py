"""How a text case is run: the passes on IR in the short spelling, each checked by evaluating it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import fields

from dlc.driver.compile.pipelines import PIPELINE
from dlc.driver.compile.run_passes import passed
from dlc.driver.source.open import read_ir
from dlc.ir.log import Decision
from dlc.ir.passes import PASSES, Context, Options, parse_passes
from dlc.target import Target
from dlc.target.cpu import CpuTarget
from dlc.target.gpu import GpuTarget
from dlc.text.ir.short import print_short
from tests.cases.golden import Case

assert PIPELINE and PASSES, "the modules that define the passes are loaded"


def run_case(case: Case) -> str:
    """The IR after the passes, as `dlc opt --verify-each` runs them, then a line for each refusal."""
    module = read_ir(case.text, "case.dlir")
    context = Context(options_of(case.options))
    passed(module, context, parse_passes(case.passes), verify_each=True)
    refusals = [_line(decision) for decision in context.log if decision.kind == "refused"]
    return print_short(module) + "".join(refusals)


def options_of(texts: Mapping[str, str]) -> Options:
    """What passes are told: Python's literals, the target (`sm_80`, `cpu:znver5`), other texts."""
    known = {field.name for field in fields(Options)}
    assert texts.keys() <= known, f"passes are told {', '.join(sorted(known))}"
    told = {name: _value(name, text) for name, text in texts.items()}
    return Options(**told)  # pyright: ignore[reportArgumentType]


def _value(name: str, text: str) -> object:
    if name == "target" and text.startswith("cpu:"):
        return Target(CpuTarget.named(text.removeprefix("cpu:")))
    if name == "target":
        return Target.all_on(GpuTarget.named(text))
    try:
        return ast.literal_eval(text)
    except ValueError:
        return text


def _line(decision: Decision) -> str:
    figures = ", ".join(f"{key} {value}" for key, value in decision.figures.items())
    note = f" ({figures})" if figures else ""
    return f"// log: {decision.pass_name}: {decision.what}: {decision.subject}{note}\n"
