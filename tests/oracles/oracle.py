"""Other programs that read IR text, each in an environment of its own: `tests/oracles/make.sh`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a program made of a text: it printed it, or it refused it."""

    text: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Oracle:
    """A reader by name: `mlir` or `xdsl`."""

    name: str

    @property
    def python(self) -> Path:
        return ROOT / ".venv-oracles" / self.name / "bin" / "python"

    def read(self, texts: Sequence[str]) -> list[Reading]:
        """Let it read texts, all in one process."""
        ran = subprocess.run(
            [self.python, Path(__file__).with_name(f"{self.name}_read.py")],
            input=json.dumps(texts),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        answers = cast("list[dict[str, str]]", json.loads(ran.stdout))
        return [Reading(**answer) for answer in answers]


def oracle(name: str) -> Oracle:
    """The oracle of that name; skips the test where it has not been made."""
    found = Oracle(name)
    if not found.python.exists():
        pytest.skip(f"there is no .venv-oracles/{name}: `make oracles` makes it")
    return found
