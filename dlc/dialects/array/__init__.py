"""Tensor mathematics: the operations to which every model is reduced, and on which passes work.

The operands of an element-wise operation have the same type: broadcasting and conversion are separate
operations.

`elementwise`: the base classes, constants, comparison, selection, conversion · `arithmetic` · `functions`
· `shape`: rearranging without arithmetic · `reduce`: broadcast and sum · `pieces`: slice, pad, concatenate
· `index`: gather and scatter · `cumulative` · `extremes`: maxima and their indices · `linear`: products ·
`einsum` · `convolution` · `window`: pooling · `order`: sorting · `dynamic`: data-dependent sizes ·
`extent`: sizes as numbers.
"""

from dlc.dialects.array.arithmetic import *  # noqa: F403
from dlc.dialects.array.checks import *  # noqa: F403
from dlc.dialects.array.convolution import *  # noqa: F403
from dlc.dialects.array.convolution_layouts import *  # noqa: F403
from dlc.dialects.array.cumulative import *  # noqa: F403
from dlc.dialects.array.dynamic import *  # noqa: F403
from dlc.dialects.array.einsum import *  # noqa: F403
from dlc.dialects.array.elementwise import *  # noqa: F403
from dlc.dialects.array.extent import *  # noqa: F403
from dlc.dialects.array.extremes import *  # noqa: F403
from dlc.dialects.array.functions import *  # noqa: F403
from dlc.dialects.array.index import *  # noqa: F403
from dlc.dialects.array.linear import *  # noqa: F403
from dlc.dialects.array.order import *  # noqa: F403
from dlc.dialects.array.pieces import *  # noqa: F403
from dlc.dialects.array.reduce import *  # noqa: F403
from dlc.dialects.array.shape import *  # noqa: F403
from dlc.dialects.array.window import *  # noqa: F403
