"""The evaluator with every construct of the language: each file here has the handlers of one.

Importing this module makes all of them known.
"""

from __future__ import annotations

from dlc.frontend import (
    builtin_calls,
    builtins,
    choices,
    derivatives,
    expressions,
    indexing,
    layers,
    operators,
    scans,
    statements,
    stored,
    updates,
    whiles,
)
from dlc.frontend.evaluator import Evaluator

__all__ = [
    "Evaluator",
    "builtin_calls",
    "builtins",
    "choices",
    "derivatives",
    "expressions",
    "indexing",
    "layers",
    "operators",
    "scans",
    "statements",
    "stored",
    "updates",
    "whiles",
]
