"""Draws the pictures of docs/architecture.md: `python docs/pictures/draw.py`. A test compares them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from dlc.driver.drawing.svg import document

FOLDER = Path(__file__).parent

LEVELS = (
    ("text", "", "the model, as people write it", "vjp(poly, wrt=x)(x, dy=ones([2, 2]))"),
    ("graph", "func array nn flow rng", "the mathematics", "add(multiply(x, 6), 2)"),
    (
        "kernel",
        "kernel scalar",
        "what is computed together",
        "kernel.generic { load, multiply, add, yield }",
    ),
    (
        "plan",
        "mem kernel",
        "where values live, and when",
        "wave 0: kernel.generic(input 0, output 0)",
    ),
    ("loop", "loop vec scalar", "how one kernel runs", "for i: load 8, multiply, add, store 8"),
    ("llvm, asm", "", "what the machine gets", "vmulps (%rax,%rsi,4), %ymm0, %ymm2"),
)
"""Each level: its name, its dialects, what it says, and poly.dlm there."""

STEPS = (
    "dlc.frontend: names, types, shapes",
    "decompose, lower_to_kernels, fuse",
    "plan_memory",
    "lower_to_loops",
    "dlc.codegen: one line or a few for each operation",
)
"""How each level becomes the next."""

LAYERS = (
    ("cli", "the command line: one module for each verb"),
    ("driver", "compile, run, report: what each verb does"),
    ("export", "graph to model text"),
    ("importers", "ONNX to graph"),
    ("codegen", "LLVM text, PTX, the linker, the engine"),
    ("evaluation", "plans, loops and GPU threads, run with NumPy"),
    ("lowering", "graph to kernel, kernel to CPU loops and GPU threads"),
    ("planning", "schedule, memory plan, passes that lower the peak"),
    ("passes", "graph to graph, kernel to kernel"),
    ("frontend", "model text to graph"),
    ("target", "descriptions of processors and GPUs, cost tables"),
    ("text", "lexers, parsers, printers", "dialects", "the operations"),
    ("ir", "values, operations, passes", "runtime", "load, check, call"),
    ("errors", "places, diagnostics, the pages behind the codes"),
)
"""The packages, highest first; those side by side do not know each other."""


def text(x: float, y: float, words: str, style: str = "", anchor: str = "start") -> str:
    kind = f' class="{style}"' if style else ""
    return f'<text{kind} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'


def box(kind: str, x: float, y: float, width: float, height: float, radius: float = 4) -> str:
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f'<rect class="{kind}" {place} rx="{radius:g}"/>'


def arrow(x: float, y: float, end: float) -> str:
    """Down from y to end."""
    return f'<path d="M{x:g} {y:g}V{end:g}M{x - 4:g} {end - 5:g}L{x:g} {end:g}L{x + 4:g} {end - 5:g}"/>'


def levels() -> str:
    """The way of a model from its text to a loaded artifact."""
    return document(860, 552, list(_levels()))


def _levels() -> Iterator[str]:
    yield text(200, 24, "what it says", "small")
    yield text(420, 24, "poly.dlm there: the derivative of 3x² + 2x + 3", "small")
    for number, (name, dialects, says, example) in enumerate(LEVELS):
        y = 36 + number * 74
        yield box("input" if number == 0 else "op", 20, y, 160, 40)
        yield text(100, y + (25 if not dialects else 17), name, "title", "middle")
        yield text(100, y + 33, dialects, "small", "middle")
        yield text(200, y + 25, says)
        yield text(420, y + 25, example, "small")
        if number < len(STEPS):
            yield arrow(100, y + 42, y + 72)
            yield text(114, y + 61, STEPS[number], "small")
    y = 36 + len(LEVELS) * 74
    yield arrow(100, y - 32, y - 2)
    yield text(114, y - 13, "linked once, when compiling: no linker where it runs", "small")
    yield box("result", 20, y, 160, 40, 13)
    yield text(100, y + 25, "artifact .dlc", "title", "middle")
    yield text(200, y + 25, "code, plan, weights, and what proves the plan right")
    last = (
        "Every level above llvm is text that is printed, read, verified, and evaluated with NumPy."
    )
    yield text(20, y + 62, last, "small")


def folders() -> str:
    """The packages as layers: each imports only what stands below it."""
    return document(720, 20 + len(LAYERS) * 42 + 10, list(_folders()))


def _folders() -> Iterator[str]:
    for number, layer in enumerate(LAYERS):
        y = 20 + number * 42
        width = 680 if len(layer) == 2 else 336
        for place, (name, says) in enumerate(zip(layer[::2], layer[1::2], strict=True)):
            x = 20 + place * 344
            yield box("result" if name in ("runtime", "errors") else "op", x, y, width, 34)
            yield text(x + 14, y + 22, name, "title")
            yield text(x + 118, y + 21, says, "small")


WAVES = (
    ((("conv", 4),), (("conv", 4),)),
    ((("generic", 2), ("gemm", 1)), (("gemm", 3),)),
    ((("generic", 2),), ()),
)
"""Of each wave: what thread 0 and thread 1 do, as kernels with numbers of tiles."""


def call() -> str:
    """One call: the caller's way into the engine, and two threads on their way through the waves."""
    return document(860, 250, list(_call()))


def _call() -> Iterator[str]:
    steps = ("check inputs", "sizes (kept)", "arena (kept)", "dlc_enter")
    for number, step in enumerate(steps):
        y = 46 + number * 44
        yield box("input", 20, y, 130, 30, 13)
        yield text(85, y + 20, step, "", "middle")
        if number < len(steps) - 1:
            yield arrow(85, y + 31, y + 43)
    yield text(20, 28, "Python", "title")
    yield text(200, 28, "the engine: no Python, no interpreter lock", "title")
    yield text(200, 88, "thread 0", "small")
    yield text(200, 148, "thread 1", "small")
    x = 270.0
    for number, threads in enumerate(WAVES):
        width = max(_width(kernels) for kernels in threads)
        yield text(x + width / 2, 56, f"wave {number}", "small", "middle")
        for row, kernels in enumerate(threads):
            yield from _tiles(x, 68 + row * 60, kernels)
        x += width + 10
        yield f'<path d="M{x:g} 60V184"/>'
        yield text(x, 198, "barrier", "small", "middle")
        x += 10
    yield box("result", x + 14, 96, 100, 34, 13)
    yield text(x + 64, 118, "results", "", "middle")
    yield text(
        200,
        228,
        "Tiles depend on sizes alone, so the bits are the same for any number of threads.",
        "small",
    )


def _width(kernels: Sequence[tuple[str, int]]) -> float:
    return sum(tiles * 38 for _, tiles in kernels) + 8 * max(len(kernels) - 1, 0)


def _tiles(x: float, y: float, kernels: Sequence[tuple[str, int]]) -> Iterator[str]:
    for name, tiles in kernels:
        kind = {"conv": "op", "gemm": "weight", "generic": "constant"}[name]
        for tile in range(tiles):
            yield box(kind, x + tile * 38, y, 34, 26)
        yield text(x, y + 40, name, "small")
        x += tiles * 38 + 8


PICTURES = {"levels.svg": levels, "folders.svg": folders, "call.svg": call}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw(), encoding="utf-8")
