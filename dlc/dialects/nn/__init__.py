"""Operations of neural networks, all defined by what they decompose into.

What a fused kernel can do better is an operation: `softmax` · `normalize` · `loss` · `linear` products
with a bias · `attention` · `recurrent`. Everything else is a function that places a few array operations:
`activations` · `pooling` · `resize` · `functions`. `rows` are steps that all of them share.
"""

from dlc.dialects.nn.activations import *  # noqa: F403
from dlc.dialects.nn.attention import *  # noqa: F403
from dlc.dialects.nn.functions import *  # noqa: F403
from dlc.dialects.nn.linear import *  # noqa: F403
from dlc.dialects.nn.loss import *  # noqa: F403
from dlc.dialects.nn.normalize import *  # noqa: F403
from dlc.dialects.nn.pooling import *  # noqa: F403
from dlc.dialects.nn.recurrent import *  # noqa: F403
from dlc.dialects.nn.resize import *  # noqa: F403
from dlc.dialects.nn.softmax import *  # noqa: F403
