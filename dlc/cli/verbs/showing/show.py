"""`dlc show`: a model at any stage of its way to machine code."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from dlc import driver
from dlc.cli import options
from dlc.cli.report import print_json, print_text, progress
from dlc.errors import UsageError


@options.compiling(
    "level",
    "target",
    *options.FORMS,
    "disable_pass",
    "bisect",
    "chosen",
    "module",
    "block",
    "place",
    "shapes",
    "fixed",
    "dims",
    "verify_each",
)
def command(
    model: options.Model,
    stage: Annotated[
        str, typer.Option(help="text, graph, kernel, plan, loop, llvm, asm or ptx.")
    ] = "graph",
    entry: options.Entry = None,
    after: Annotated[
        str | None, typer.Option(metavar="PASS", help="Show the text after this pass.")
    ] = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Show the text after each pass that changes it.")
    ] = False,
    dump_dir: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Write one file for each pass as well."),
    ] = None,
    train: Annotated[
        bool,
        typer.Option(
            "--train", help="Show the functions that train the model: train_step and evaluate."
        ),
    ] = False,
    svg: Annotated[
        bool,
        typer.Option("--svg", help="Draw --stage graph or kernel, without --after and --changed."),
    ] = False,
    html: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write a page that shows every level, and what each operation became.",
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Times for the page, which dlc profile --json wrote."),
    ] = None,
    short: Annotated[
        bool, typer.Option("--short", help="IR in the short spelling: types are inferred.")
    ] = False,
    *,
    compilation: options.Compilation,
    as_json: options.Json = False,
) -> None:
    """Show a model at a stage between its text and machine code."""
    shown = driver.Shown(stage, entry, after, changed, dump_dir, svg, short)
    request = replace(compilation.of(model), to_train=train)
    if html is not None:
        with progress(f"compiling {model}"):
            size = driver.write_page(request, shown, html, profile)
        result = {"model": model, "page": html, "bytes": size}
        if as_json:
            print_json(result)
        else:
            print_text(f"{html}: {size:,} bytes\n")
        return
    if profile is not None:
        raise UsageError(
            "--profile gives the times of a page, and there is none",
            code="D0915",
            help="add --html FILE",
        )
    with progress(f"compiling {model}"):
        text = driver.show_stage(request, shown)
    if as_json:
        print_json({"model": model, "stage": stage, "text": text})
    else:
        print_text(text)
