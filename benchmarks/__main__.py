"""The benchmarks, by name: `python -m benchmarks networks resnet50 --threads 2`; `list` names them.

Without a name, those that compare with peers or with a promise run one after another; the networks are
also written to out/bench: a table, JSON and a picture.
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


def programs() -> dict[str, str]:
    """The benchmarks by name, with the first line of what they say about themselves."""
    found: dict[str, str] = {}
    for path in sorted([*FOLDER.glob("[a-z]*.py"), *FOLDER.glob("[a-z]*/__main__.py")]):
        text = path.read_text(encoding="utf-8")
        name = path.parent.name if path.name == "__main__.py" else path.stem
        if '__name__ == "__main__"' in text and not name.startswith("contender"):
            found[name] = (ast.get_docstring(ast.parse(text)) or "").split("\n")[0]
    return found


def main(arguments: list[str]) -> int:
    """Run the benchmark that the first argument names with the other arguments; gives the exit code."""
    names = programs()
    if not arguments:
        return max([_apart(name, rest) for name, rest in DEFAULT.items()])
    name, *rest = arguments
    if name == "list":
        for known, what in names.items():
            print(f"{known:18} {what}")
        return 0
    if name not in names:
        print(f"no benchmark is called {name!r}; there are {', '.join(names)}", file=sys.stderr)
        return 2
    sys.argv = [f"python -m benchmarks {name}", *rest]
    runpy.run_module(f"benchmarks.{name}", run_name="__main__")
    return 0


def _apart(name: str, arguments: Sequence[str]) -> int:
    """Run one in a process of its own: what one has loaded must not help or hinder the next."""
    print(f"== {name}", flush=True)
    command = [sys.executable, "-m", "benchmarks", name, *arguments]
    return subprocess.run(command, cwd=FOLDER.parent, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
