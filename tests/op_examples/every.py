"""The operations that graphs are made of, each of which has examples."""

from __future__ import annotations

from dlc.ir.core import OPS
from tests import op_examples

assert op_examples.__doc__, "importing it makes the operations and their examples known"
OPERATORS = sorted(name for name in OPS if name.startswith(("array.", "nn.", "rng.")))
