"""The benchmarks, by name: `python -m benchmarks networks resnet50 --threads 2`.

Without a name: `networks`, every network side by side with the peers.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

NAMES = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))
"""The files of this folder; those that are not programs do nothing."""


def main() -> None:
    """Run the benchmark that the first argument names with the other arguments."""
    name, *arguments = sys.argv[1:] or ["networks"]
    if name not in NAMES:
        sys.exit(f"no benchmark is called {name!r}; there are {', '.join(NAMES)}")
    sys.argv = [f"python -m benchmarks {name}", *arguments]
    runpy.run_module(f"benchmarks.{name}", run_name="__main__")


if __name__ == "__main__":
    main()
