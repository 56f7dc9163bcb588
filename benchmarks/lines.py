"""Lines of the models of `examples` beside those of their twins in PyTorch.

    python -m benchmarks lines

A line counts if it says something: blank ones, comments and docstrings do not. Both are laid out by a
formatter, `dlc fmt` and `ruff format`, with at most 100 characters.
"""

from __future__ import annotations

import ast
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def of_text(text: str) -> int:
    """The lines of a model text that are neither blank nor a comment.

    >>> of_text("dlc 1\\n## A model.\\n\\nexport fn f(x: f32) -> f32 = x  # itself\\n")
    2
    """
    lines = [line.strip() for line in text.splitlines()]
    return sum(bool(line) and not line.startswith("#") for line in lines)


def of_program(text: str) -> int:
    """The lines of a Python program that are neither blank, a comment, nor of a docstring.

    >>> of_program('\\'\\'\\'A program.\\'\\'\\'\\n\\n# It prints.\\nprint(\\n    1\\n)\\n')
    3
    """
    told: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            told |= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    lines = [line for number, line in enumerate(text.splitlines(), 1) if number not in told]
    return of_text("\n".join(lines))


def table() -> str:
    """The counts as a table of Markdown, with their sums."""
    rows = [
        (
            path.stem,
            of_text((EXAMPLES / f"{path.stem}.dlm").read_text(encoding="utf-8")),
            of_program(path.read_text(encoding="utf-8")),
        )
        for path in sorted((EXAMPLES / "pytorch").glob("*.py"))
    ]
    rows.append(("together", sum(ours for _, ours, _ in rows), sum(n for *_, n in rows)))
    lines = [f"| {name} | {ours} | {theirs} |" for name, ours, theirs in rows]
    return "\n".join(["| model | dlm | PyTorch |", "| --- | ---: | ---: |", *lines])


if __name__ == "__main__":
    print(table())
