"""Networks of flax."""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import jax
import jax.numpy as jnp

from benchmarks.jax_programs.program import Draws, Made, program

try:
    from flax import linen
except ImportError:
    linen = None


if linen is not None:

    class Classifier(linen.Module):
        """Convolutions with group norm, and a dense layer."""

        @linen.compact
        def __call__(self, x):
            x = linen.relu(linen.GroupNorm(2)(linen.Conv(8, (3, 3))(x)))
            x = linen.avg_pool(x, (2, 2), (2, 2))
            x = linen.gelu(linen.Conv(16, (3, 3), strides=2)(x))
            return linen.Dense(5)(x.reshape(x.shape[0], -1))

    class Encoder(linen.Module):
        """Attention and a perceptron, as layers of flax."""

        @linen.compact
        def __call__(self, x):
            x = x + linen.MultiHeadDotProductAttention(num_heads=2)(linen.LayerNorm()(x))
            return x + linen.Dense(16)(linen.swish(linen.Dense(24)(linen.LayerNorm()(x))))

    @program("flax: convolutions", 8, 12, 16)
    def classifier(n: int, draw: Draws) -> Made:
        x = draw(2, n, n, 3)
        return Classifier().apply, (Classifier().init(jax.random.key(0), x), x)

    @program("flax: encoder", 3, 8, 15)
    def encoder(n: int, draw: Draws) -> Made:
        x = draw(2, n, 16)
        return Encoder().apply, (Encoder().init(jax.random.key(0), x), x)

    @program("flax: LSTM", 2, 5, 11)
    def lstm(n: int, draw: Draws) -> Made:
        layer, x = linen.RNN(linen.LSTMCell(8)), jnp.asarray(draw(2, n, 5))
        return layer.apply, (layer.init(jax.random.key(0), x), x)
