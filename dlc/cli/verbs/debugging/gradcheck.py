"""`dlc gradcheck`: check gradients against finite differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.quick import PlainRun
from dlc.cli.report import errors_data, note, print_json, progress
from dlc.errors import NumbersDiffer, visible
from dlc.runtime.system.counts import counted


@options.compiling("weights", "chosen", "module", "block", "shapes", "fixed")
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
    random_inputs: options.Seed = None,
    *,
    compilation: options.Compilation,
    as_json: options.Json = False,
) -> int:
    """Compare the compiled gradients of a model with finite differences in f64.

    For a model with a train block, checks its loss on the first examples of its data.
    """
    plain = PlainRun(model, entry, inputs=tuple(inputs), dims=tuple(dims), seed=random_inputs)
    call_request = plain.request()
    request = compilation.of(model, call_sizes=call_request.dims)
    with progress(f"checking {model}"):
        found = driver.check_gradients(request, call_request, order=order, full=full)
    wrong = [row for row in found.rows if not row.is_right]
    error = _differs(max(wrong, key=lambda row: max(row.error, row.narrow))) if wrong else None
    if as_json:
        rows = [{**asdict(row), "right": row.is_right} for row in found.rows]
        print_json({"gradients": rows} | ({} if error is None else errors_data(error)))
    else:
        _print(found.rows)
    if error is None:
        right = f"{counted(len(found.rows), 'gradient')} {'is' if len(found.rows) == 1 else 'are'} right"
        note(f"{right}, at {found.source}{_sample(found)}")
        return 0
    note(error.render())
    return error.exit_code


def _differs(row: driver.GradientRow) -> NumbersDiffer:
    """Describe the worst gradient."""
    if row.is_right_in_f64:
        message = (
            f"the gradient by {row.name} is right in f64 and differs by {row.narrow:.1e} of its "
            f"largest element in the dtype of the model"
        )
        help = "something overflows, cancels, or is chosen differently there"
    else:
        where = f"[{', '.join(map(str, row.at))}]" if row.at else ""
        along = "" if row.at is not None else ", along a random direction,"
        message = (
            f"the gradient by {row.name}{where}{along} is {row.gradient:.9g}, "
            f"the differences say {row.difference:.9g}"
        )
        help = "a rule is wrong, or the function jumps there"
    return NumbersDiffer(f"{message} ({row.place})", code="D0952", help=help)


def _sample(found: driver.Gradients) -> str:
    """The part of large arguments that was checked."""
    if not found.sampled:
        return ""
    effort = found.effort
    return (
        f"; of each by {effort.samples} of its elements and {effort.directions} directions through all, "
        "always the same: --full takes every element"
    )


def _print(rows: Sequence[driver.GradientRow]) -> None:
    width = max((len(row.name) for row in rows), default=4)
    print(f"{'by':{width}}  {'f64':>8}  {'compiled':>8}  checked  kinks  declared at")
    for row in rows:
        print(
            f"{visible(row.name):{width}}  {row.error:8.1e}  {row.narrow:8.1e}  {row.checked:7}  "
            f"{row.kinks:5}  {visible(row.place)}{_remark(row)}"
        )


def _remark(row: driver.GradientRow) -> str:
    if not row.is_right:
        return "  WRONG"
    if row.kinks and not row.checked:
        return "  only kinks"
    return "  0 but for rounding" if row.vanishes else ""
