"""The benchmarks, by name: `python -m benchmarks networks resnet50 --threads 2`; `list` names them.

A benchmark of one file stands in this folder; one of several files, with the contenders that it starts,
has a folder. Without a name, those that compare with peers or with a promise run one after another; the
networks are also written to out/bench: a table, JSON and a picture.
"""

from __future__ import annotations

import ast
import runpy
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parent

REPORT = Path("out", "bench")
"""Where the networks' table, figures and picture go if no name is given."""
DEFAULT: dict[str, tuple[str, ...]] = {
    "startup": (),
    "engine": (),
    "ir_core": (),
    "networks": ("--out", str(REPORT)),
}
"""What runs without a name, the quickest first, and its arguments."""
IN_FOLDERS = {
    "gpu_agreement": "gpu.agreement",
    "gpu_calls": "gpu.calls",
    "gpu_kernels": "gpu.kernels",
    "training_table": "training.table",
}
"""Modules of folders that are benchmarks of their own, beside the `__main__` of the folder."""


def programs() -> dict[str, str]:
    """The module of each benchmark by name: files of this folder, its folders, and `IN_FOLDERS`."""
    files = {path.stem: path.stem for path in FOLDER.glob("[a-z]*.py") if _is_program(path)}
    folders = {path.parent.name: path.parent.name for path in FOLDER.glob("[a-z]*/__main__.py")}
    return dict(sorted({**files, **folders, **IN_FOLDERS}.items()))


def _is_program(path: Path) -> bool:
    return '__name__ == "__main__"' in path.read_text(encoding="utf-8")


def summary(module: str) -> str:
    """The first line of what a benchmark says about itself."""
    path = FOLDER.joinpath(*module.split("."))
    source = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
    return (ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or "").split("\n")[0]


def main(arguments: list[str]) -> int:
    """Run the benchmark that the first argument names with the other arguments; gives the exit code."""
    names = programs()
    if not arguments:
        return max([_apart(name, rest) for name, rest in DEFAULT.items()])
    name, *rest = arguments
    if name == "list":
        for known, module in names.items():
            print(f"{known:18} {summary(module)}")
        return 0
    if name not in names:
        print(f"no benchmark is called {name!r}; there are {', '.join(names)}", file=sys.stderr)
        return 2
    sys.argv = [f"python -m benchmarks {name}", *rest]
    runpy.run_module(f"benchmarks.{names[name]}", run_name="__main__")
    return 0


def _apart(name: str, arguments: Sequence[str]) -> int:
    """Run one in a process of its own: what one has loaded must not help or hinder the next."""
    print(f"== {name}", flush=True)
    command = [sys.executable, "-m", "benchmarks", name, *arguments]
    return subprocess.run(command, cwd=FOLDER.parent, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
