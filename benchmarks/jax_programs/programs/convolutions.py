"""Convolutions: networks for pictures."""

# pyright: basic, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.jax_programs.program import Draws, Made, program

LAYOUT = ("NHWC", "HWIO", "NHWC")


def conv(x, w, stride=1, padding="SAME", **more):
    return lax.conv_general_dilated(
        x, w, (stride, stride), padding, dimension_numbers=LAYOUT, **more
    )


def batch_norm(p, x):
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return (x - mean) * lax.rsqrt(variance + 1e-5) * p["scale"] + p["shift"]


def kernel(draw: Draws, size: int, inputs: int, outputs: int):
    return draw(size, size, inputs, outputs, scale=(size * size * inputs) ** -0.5)


def scales(draw: Draws, channels: int):
    return {"scale": 1 + draw(channels, scale=0.1), "shift": draw(channels, scale=0.1)}


@program("CNN", 8, 12, 17)
def cnn(n: int, draw: Draws) -> Made:
    def forward(p, x):
        x = jax.nn.relu(conv(x, p["first"]))
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = jax.nn.relu(conv(x, p["second"], 2))
        return x.mean((1, 2)) @ p["last"]

    p = {"first": kernel(draw, 3, 3, 8), "second": kernel(draw, 3, 8, 12), "last": draw(12, 5)}
    return forward, (p, draw(2, n, n, 3))


@program("ResNet block with batch norm", 4, 8, 13)
def resnet_block(n: int, draw: Draws) -> Made:
    def forward(p, x):
        y = jax.nn.relu(batch_norm(p["norm1"], conv(x, p["conv1"], 2)))
        y = batch_norm(p["norm2"], conv(y, p["conv2"]))
        return jax.nn.relu(y + conv(x, p["shortcut"], 2))

    p = {
        "conv1": kernel(draw, 3, 4, 8),
        "norm1": scales(draw, 8),
        "conv2": kernel(draw, 3, 8, 8),
        "norm2": scales(draw, 8),
        "shortcut": kernel(draw, 1, 4, 8),
    }
    return forward, (p, draw(2, n, n, 4))


@program("transposed convolution", 3, 5, 8)
def transposed(n: int, draw: Draws) -> Made:
    def forward(w, v, x):
        y = lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=LAYOUT)
        return lax.conv_transpose(jnp.tanh(y), v, (3, 2), "VALID", dimension_numbers=LAYOUT)

    return forward, (kernel(draw, 3, 4, 6), kernel(draw, 2, 6, 2), draw(2, n, n, 4))


@program("grouped and dilated convolutions", 9, 12, 16)
def grouped(n: int, draw: Draws) -> Made:
    def forward(w, v, x):
        y = conv(x, w, feature_group_count=4)
        return conv(jax.nn.relu(y), v, rhs_dilation=(2, 2), padding="VALID")

    return forward, (draw(3, 3, 1, 8, scale=0.3), kernel(draw, 3, 8, 4), draw(1, n, n, 4))


@program("diffusion UNet", 8, 12, 16)
def unet(n: int, draw: Draws) -> Made:
    def forward(p, x, time):
        embedded = jnp.concatenate([jnp.sin(time * p["rates"]), jnp.cos(time * p["rates"])], -1)
        down = jax.nn.silu(conv(x, p["in"]) + (embedded @ p["time"])[:, None, None])
        low = jax.nn.silu(conv(down, p["down"], 2))
        middle = jax.nn.silu(conv(low, p["middle"])) + low
        up = jax.image.resize(middle, down.shape[:3] + middle.shape[3:], "nearest")
        return conv(jnp.concatenate([conv(up, p["up"]), down], -1), p["out"])

    p = {
        "rates": draw(4),
        "time": draw(8, 8, scale=0.3),
        "in": kernel(draw, 3, 2, 8),
        "down": kernel(draw, 3, 8, 16),
        "middle": kernel(draw, 3, 16, 16),
        "up": kernel(draw, 3, 16, 8),
        "out": kernel(draw, 3, 16, 2),
    }
    return forward, (p, draw(2, n, n, 2), draw(2, 1))
