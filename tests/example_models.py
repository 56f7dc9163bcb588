"""The models of `examples/`, opened: those that are parts for others, inside one."""

from __future__ import annotations

from pathlib import Path

from dlc.driver.source.open import open_model
from dlc.driver.source.source_model import SourceModel

FOLDER = Path(__file__).parents[1] / "examples"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.dlm")))

STAGE = """
dim B = 1..64
module Model {
  use stage = Stage(4, 8, n=3, stride=2)
  export fn features(x: f32[B, 8, 8, 4]) -> f32[B, 4, 4, 8] = stage(x)
}
"""
"""A model of what `residual.dlm` defines."""

SMALLER: dict[str, dict[str, int]] = {
    "byte_lm": {"E": 16, "H": 32},
    "char_gpt": {"D": 16, "H": 2, "L": 1, "context": 8},
    "llama": {"V": 50, "D": 32, "H": 4, "L": 2, "hidden": 48},
    "mandelbrot": {"height": 24, "width": 32, "steps": 20},
    "tiny_gpt": {"D": 16, "H": 2, "L": 2},
    "diffusion": {"hidden": 16, "steps": 5},
    "seq2seq": {"V": 32, "D": 8, "H": 8},
    "unet": {"C": 2},
    "vit": {"D": 8, "H": 2, "L": 2},
}
"""Parameters for examples that would take long to evaluate."""


def opened(name: str) -> SourceModel:
    """An example at graph level, small enough to be evaluated."""
    if name == "residual":
        path = FOLDER / "residual.dlm"
        return open_model(path, text=path.read_text(encoding="utf-8") + STAGE)
    return open_model(FOLDER / f"{name}.dlm", settings=SMALLER.get(name))
