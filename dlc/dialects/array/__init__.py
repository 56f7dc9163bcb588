"""Tensor mathematics: the operations that every model becomes, and that passes reason about.

Operands of one element-wise operation have the same type: broadcasting and conversion are operations of
their own.

`elementwise` what all of them share, constants, comparing, choosing, converting · `arithmetic` ·
`functions` · `shape` rearranging without arithmetic · `reduce`.
"""

from dlc.dialects.array.arithmetic import *  # noqa: F403
from dlc.dialects.array.elementwise import *  # noqa: F403
from dlc.dialects.array.functions import *  # noqa: F403
from dlc.dialects.array.linear import *  # noqa: F403
from dlc.dialects.array.reduce import *  # noqa: F403
from dlc.dialects.array.shape import *  # noqa: F403
