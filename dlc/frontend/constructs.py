"""The evaluator with every construct of the language: each file here has the handlers of one.

Importing this module makes all of them known.
"""

from __future__ import annotations

from dlc.frontend import builtins, indexing, updates
from dlc.frontend.elaboration import statements
from dlc.frontend.elaboration.evaluator import Evaluator
from dlc.frontend.expressions import basic, builtin_calls, choices, derivatives, operators
from dlc.frontend.loops import scans, whiles
from dlc.frontend.modules import layers
from dlc.frontend.weights import stored_tensors

__all__ = [
    "Evaluator",
    "basic",
    "builtin_calls",
    "builtins",
    "choices",
    "derivatives",
    "indexing",
    "layers",
    "operators",
    "scans",
    "statements",
    "stored_tensors",
    "updates",
    "whiles",
]
