"""Tensor mathematics: the operations that every model becomes, and that passes reason about.

Operands of one element-wise operation have the same type: broadcasting and conversion are operations of
their own. `elementwise` · `shape` rearranging without arithmetic · `reduce` · `linear` products and
convolution · `index` gather and scatter · `order` sorting and searching · `window` pooling.
"""

from dlc.dialects.array.elementwise import *  # noqa: F403
from dlc.dialects.array.linear import *  # noqa: F403
from dlc.dialects.array.reduce import *  # noqa: F403
from dlc.dialects.array.shape import *  # noqa: F403
