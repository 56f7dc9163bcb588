"""What `benchmarks.decoding` measures: the decoder, its settings, and the tokens that it is given."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

MODEL: Final = Path(__file__).parents[2] / "examples" / "llama.dlm"
SETTINGS: Final[dict[str, int | str]] = {
    "V": 32000,
    "D": 512,
    "H": 8,
    "G": 2,
    "L": 8,
    "hidden": 1376,
}
"""55 million parameters."""
PROMPT: Final = 128
"""Tokens in the cache before the one that is timed."""


def prompt(count: int) -> NDArray[np.int32]:
    """Tokens of one text."""
    return np.random.default_rng(count).integers(0, 32000, (1, count), np.int32)
