"""`dlc gradcheck`: are the gradients right."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.quick import PlainRun
from dlc.cli.report import note, print_json, progress
from dlc.errors import NumbersDiffer


def command(
    model: options.Model,
    entry: Annotated[
        str | None, typer.Option(help="An entry point, instead of the loss of the train block.")
    ] = None,
    order: Annotated[
        int, typer.Option(min=1, max=2, help="2 checks the gradient of the gradient.")
    ] = 1,
    full: Annotated[bool, typer.Option("--full", help="Check every element.")] = False,
    inputs: options.Inputs = [],  # noqa: B006 - typer wants it; nothing changes it
    dims: options.Dims = [],  # noqa: B006
    random_inputs: options.Seed = 0,
    weights: options.Weights = None,
    chosen: options.Chosen = [],  # noqa: B006
    module: options.Module = None,
    as_json: options.Json = False,
) -> None:
    """Compare the compiled gradients of a model with differences of the evaluated function in f64."""
    wanted = options.Compilation(weights=weights, chosen=tuple(chosen), module=module).of(model)
    plain = PlainRun(model, entry, inputs=tuple(inputs), dims=tuple(dims), seed=random_inputs)
    with progress(f"checking {model}"):
        rows = driver.check_gradients(wanted, plain.request(), order=order, full=full)
    if as_json:
        print_json([{**asdict(row), "right": row.is_right} for row in rows])
    else:
        _print(rows)
    wrong = [row for row in rows if not row.is_right]
    if wrong:
        worst = max(wrong, key=lambda row: max(row.error, row.narrow))
        where = f"[{', '.join(map(str, worst.at))}]" if worst.at else ""
        raise NumbersDiffer(
            f"the gradient by {worst.name}{where} is {worst.gradient:.9g}, "
            f"the differences say {worst.difference:.9g}",
            code="D0952",
            help="a rule is wrong, or the function jumps there: --full checks every element",
        )
    note(f"{len(rows)} gradients are right")


def _print(rows: list[driver.GradientRow]) -> None:
    width = max((len(row.name) for row in rows), default=4)
    print(f"{'by':{width}}  {'f64':>8}  {'compiled':>8}  checked  kinks  declared at")
    for row in rows:
        mark = "" if row.is_right else "  WRONG"
        print(
            f"{row.name:{width}}  {row.error:8.1e}  {row.narrow:8.1e}  {row.checked:7}  "
            f"{row.kinks:5}  {row.place}{mark}"
        )
