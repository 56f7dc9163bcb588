"""Operations of neural networks, all defined by their decomposition.

A computation is an operation if a fused kernel computes it better: `softmax` · `normalize` · `loss` ·
`linear`: products with a bias · `attention` · `recurrent`. Any other is a function that emits a few array
operations: `activations` · `pooling` · `resize` · `functions`. `rows` has steps that all of them share.
"""

from dlc.dialects.nn.activations import *  # noqa: F403
from dlc.dialects.nn.attention import *  # noqa: F403
from dlc.dialects.nn.cached_attention import *  # noqa: F403
from dlc.dialects.nn.functions import *  # noqa: F403
from dlc.dialects.nn.linear import *  # noqa: F403
from dlc.dialects.nn.loss import *  # noqa: F403
from dlc.dialects.nn.normalize import *  # noqa: F403
from dlc.dialects.nn.pooling import *  # noqa: F403
from dlc.dialects.nn.recurrent import *  # noqa: F403
from dlc.dialects.nn.resize import *  # noqa: F403
from dlc.dialects.nn.softmax import *  # noqa: F403
