"""`dlc why`: what the passes did with a model, and what they refused, line by line."""

from __future__ import annotations

from typing import Annotated

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.report import print_json, progress
from dlc.errors import UsageError, visible


@options.calling("entry", "inputs", "dims", "random_inputs", "threads")
@options.compiling(
    "weights",
    "level",
    "target",
    "matmul",
    "conv",
    "costs",
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
            "on-gpu A. Other words show only the lines in which all occur, as whole words: fuse, %scores, "
            "mlp.dlm:7.",
        ),
    ] = None,
    *,
    call: options.Call,
    compilation: options.Compilation,
    as_json: options.Json = False,
) -> None:
    """Say what each pass did with a model and what it refused, beside the lines of its text.

    For a text with a `train` block, also covers a training step. A question is about values of the text, or
    about the last value of a line: dlc why mlp.dlm fused h y, dlc why mlp.dlm kernel 7.
    """
    question = driver.question_of(words or ())
    _check_measured(question, call, imports=model.endswith(".onnx"))
    if question is not None:
        call_request = call.of(model)
        request = compilation.of(model, call_sizes=call_request.dims)
        asked = driver.Asked(request, (words or ())[1:], call_request, call.threads)
        with progress(f"{'profiling' if question.measures else 'compiling'} {model}"):
            reply = driver.answer_question(question, asked)
        if as_json:
            print_json(reply.data)
        else:
            print(visible(reply.text))
        return
    request = compilation.of(model, call_sizes=call.of(model).dims)
    with progress(f"compiling {model}"):
        found = driver.decisions_of(request, words or (), call.entry)
    if not found.decisions:
        driver.check_is_no_question(words or ())
    if as_json:
        print_json(driver.decisions_data(found))
    else:
        print(visible(driver.decisions_text(found)))


def _check_measured(question: driver.Question | None, call: options.Call, *, imports: bool) -> None:
    """Raises UsageError (D0901) for options of a call where no call is measured.

    A model that is imported may come in only with the sizes of one.
    """
    if question is not None and question.measures:
        return
    usual = options.Call(entry=call.entry)
    given = {
        "--input": call.inputs != usual.inputs,
        "--dim": call.dims != usual.dims and not imports,
        "--random-inputs": call.random_inputs != usual.random_inputs,
        "--threads": call.threads != usual.threads,
    }
    unused = [name for name, is_given in given.items() if is_given]
    if unused:
        raise UsageError(
            f"{' and '.join(unused)}: no call is measured here",
            code="D0901",
            help="only dlc why MODEL slow calls the model: leave it out",
        )
