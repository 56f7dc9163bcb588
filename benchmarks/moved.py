"""Whether a commit only moved code: the statements of the package that it left out or that are new.

    python -m benchmarks moved COMMIT...

A statement is a class, a function or an assignment at the top level of a module of `dlc`. Imports and
docstrings do not count, nor does the module that has it. Prints what differs, and ends with 3 if anything
does. What is the same but for the names of modules compiles every model to the same bytes.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


class _Bare(ast.NodeTransformer):
    """Takes imports and docstrings out of a module."""

    def visit_Import(self, node: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return None

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        match node.value:
            case ast.Constant(value=str()):
                return None
            case _:
                return self.generic_visit(node)


def statements(texts: Iterable[str]) -> Counter[str]:
    """The statements of modules, as they are written without comments."""
    return Counter(
        ast.unparse(statement)
        for text in texts
        for statement in ast.fix_missing_locations(_Bare().visit(ast.parse(text))).body
        if not isinstance(statement, ast.If) or statement.body
    )


def differences(commit: str, checkout: Path = ROOT) -> list[str]:
    """The first lines of statements that a commit removed (`-`) or added (`+`)."""
    before, after = (statements(texts) for texts in _changed(commit, checkout))
    return [
        f"{sign} {statement.splitlines()[0]}"
        for sign, some in (("-", before - after), ("+", after - before))
        for statement in some.elements()
    ]


def _changed(commit: str, checkout: Path) -> tuple[Iterator[str], Iterator[str]]:
    """The texts of the modules that a commit changed, before and after it."""
    listed = _git(checkout, "show", "--format=", "--name-status", "--no-renames", commit, "dlc")
    files = [line.split("\t") for line in listed.splitlines() if line.endswith(".py")]
    return (
        (_git(checkout, "show", f"{commit}^:{path}") for how, path in files if how in "DM"),
        (_git(checkout, "show", f"{commit}:{path}") for how, path in files if how in "AM"),
    )


def _git(checkout: Path, *arguments: str) -> str:
    command = ["git", "-C", str(checkout), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main(commits: Sequence[str]) -> int:
    """Print what differs in each commit."""
    differ = {commit: differences(commit) for commit in commits}
    for commit, lines in differ.items():
        print(commit, *(lines or ["only moves code"]), sep="\n  ")
    return 3 if any(differ.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
