"""A new model to start from: a text that compiles, with a run that works."""

from __future__ import annotations

import re
from pathlib import Path

from dlc.errors import UsageError
from dlc.runtime.system.atomic_write import write_file

TEMPLATE = """\
dlc 1
## {title}: what this model does, in one line.

dim B = 1..1024

## Scores for each row of `x`.
export fn predict(x: f32[B, 4]) -> f32[B, 3] {{
  let weights = [[0.5, -0.2, 0.1], [0.3, 0.8, -0.5], [-0.6, 0.1, 0.9], [0.2, 0.4, 0.7]]
  return softmax(x @ weights)
}}
"""


def new_model(name: str) -> Path:
    """Write `NAME.dlm` to the current folder. Raises UsageError (D0913) for a bad or taken name."""
    stem = name.removesuffix(".dlm")
    if Path(stem).name != stem:
        raise UsageError(
            f"{name} leads out of the current folder, and a new model is written there",
            code="D0913",
            help=f"go to the folder first, then: dlc new {Path(stem).name or 'my_model'}",
        )
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", stem):
        raise UsageError(
            f"{name} is not a name for a model",
            code="D0913",
            help="use letters, digits and underscores, such as my_model",
        )
    path = Path(f"{stem}.dlm")
    if path.exists():
        raise UsageError(f"{path} exists already", code="D0913", help="choose another name")
    title = stem.replace("_", " ")
    write_file(path, [TEMPLATE.format(title=title).encode()])
    return path
