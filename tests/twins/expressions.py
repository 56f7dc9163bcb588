"""The rows of docs/from-pytorch.md that have an expression of PyTorch and its counterpart in the language.

It imports nothing but NumPy, since `record.py` reads it where PyTorch is and dlc is not.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PAGE = Path(__file__).parents[2] / "docs" / "from-pytorch.md"
RECORDED = Path(__file__).parent / "expressions.npz"
ROW = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \|$", re.M)


def rows() -> list[tuple[str, str]]:
    """Both sides of each row, PyTorch's first."""
    page = PAGE.read_text(encoding="utf-8")
    return ROW.findall(page.split("## Expressions\n")[1].split("\n## ")[0])


def inputs() -> dict[str, NDArray[Any]]:
    """Values for the names in the expressions."""
    random = np.random.default_rng(0)
    return {
        "x": random.standard_normal((3, 4), np.float32),
        "y": random.standard_normal(4, np.float32),
        "m": random.random((3, 4)) < 0.5,
        "i": np.array([2, 0]),
    }
