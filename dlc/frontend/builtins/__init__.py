"""The functions that the compiler knows: `registry` the table, the other files its rows by subject.

Importing this package fills the table.
"""

from dlc.frontend.builtins import (
    activations,
    drawing,
    elementwise,
    making,
    ordering,
    patterns,
    pictures,
    reductions,
    sequences,
    shapes,
)
from dlc.frontend.builtins.registry import BUILTINS, CONSTANTS

__all__ = [
    "BUILTINS",
    "CONSTANTS",
    "activations",
    "drawing",
    "elementwise",
    "making",
    "ordering",
    "patterns",
    "pictures",
    "reductions",
    "sequences",
    "shapes",
]
