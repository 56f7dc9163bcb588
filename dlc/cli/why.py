"""`dlc why`: what the passes did with a model, and what they refused, line by line."""

from __future__ import annotations

from typing import Annotated

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.report import print_json, progress
from dlc.errors import visible


@options.compiling(
    "level",
    "target",
    "matmul",
    "conv",
    "disable_pass",
    "chosen",
    "module",
    "block",
    "place",
    "shapes",
    "fixed",
)
def command(
    model: options.Model,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[WORD]...",
            help="A question: slow (measured), fused A B, or copied, layout, kernel, alive, recomputed or "
            "on-gpu A. Else only where all these words occur, as whole words: fuse, %scores, mlp.dlm:7.",
        ),
    ] = None,
    entry: options.Entry = None,
    *,
    compilation: options.Compilation,
    as_json: options.Json = False,
) -> None:
    """Say what each pass did with a model and what it refused, beside the lines of its text.

    Of a text with a train block also for a step of training. A question is about values of the text, or
    about the last value of a line: dlc why mlp.dlm fused h y, dlc why mlp.dlm kernel 7.
    """
    if words == ["slow"]:
        _say_slow(compilation.of(model), entry, as_json=as_json)
        return
    question = driver.question_of(words or ())
    if question is not None:
        asked = (words or ())[1:]
        with progress(f"compiling {model}"):
            name, answer = driver.answer_question(compilation.of(model), question, asked, entry)
        if as_json:
            data = {"model": model, "entry": name, "question": question.name, "about": list(asked)}
            print_json({**data, **answer.data})
        else:
            print(visible(answer.text))
        return
    with progress(f"compiling {model}"):
        found = driver.decisions_of(compilation.of(model), words or (), entry)
    if not found.decisions:
        driver.check_is_no_question(words or ())
    if as_json:
        print_json(driver.decisions_data(found))
    else:
        print(visible(driver.decisions_text(found)))


def _say_slow(request: driver.CompileRequest, entry: str | None, *, as_json: bool) -> None:
    """`dlc why MODEL slow`: profile an entry point on random inputs and tell the largest gaps."""
    call = driver.CallRequest(request.path, entry, seed=0)
    with progress(f"profiling {request.path}"):
        found = driver.explain_slow(driver.ProfileRequest(request, call))
    if as_json:
        print_json(found.data)
    else:
        print(visible(found.text))
