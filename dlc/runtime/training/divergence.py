"""Whether a training has diverged: a loss, a weight or a state that is infinite or no number.

Losses are looked at after every step. Weights are looked at so often that it costs about as much as reading
a mebibyte for each step: a model of 5 MiB after every fifth step, and any model at the end of an epoch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from dlc.errors import CallError
from dlc.runtime.arrays.dtypes import DTYPES
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.training.trained_weights import TrainedWeights

_BYTES = 1 << 20
"""Bytes of weights that are looked at for each step, on average."""


def interval(weights: TrainedWeights) -> int | None:
    """How many steps lie between two looks at the weights; None where they are on a GPU."""
    if weights.are_on_gpu:
        return None
    return max(1, -(-sum(row.bytes for row in weights.table) // _BYTES))


def check_loss(loss: float, step: int) -> None:
    """Raises CallError (D0815) for a loss that is infinite or no number."""
    if not math.isfinite(loss):
        raise diverged_error(f"the loss is {loss} after step {step}")


def check_scale(scale: float, step: int) -> None:
    """Raises CallError (D0815) for a loss scale that many skipped steps have halved to below 1."""
    if scale < 1:
        what = "the gradients are infinite or NaN, even of a loss that is hardly scaled any more,"
        raise diverged_error(f"{what} after step {step}")


def diverged(tensors: Mapping[str, Tensor], step: int, seen: int) -> str | None:
    """What is to be said of the first element that is infinite or no number; None if there is none.

    `seen` is the step after which the weights were looked at before.
    """
    for name, tensor in tensors.items():
        if not _is_finite(tensor):
            since = "" if seen >= step - 1 else f", and was not after step {seen}"
            return f"{_first(name, tensor)} after step {step}{since}"
    return None


def _is_finite(tensor: Tensor) -> bool:
    if DTYPES[tensor.dtype].kind != "f":
        return True
    values = tensor.values()
    with np.errstate(all="ignore"):  # a sum of large numbers may overflow: then each is looked at
        return bool(np.isfinite(values.sum())) or bool(np.isfinite(values).all())


def _first(name: str, tensor: Tensor) -> str:
    """The first element that left the range: `net.0.w[3, 7] is inf`."""
    values = tensor.values()
    position = np.unravel_index(int(np.argmin(np.isfinite(values))), values.shape)
    where = f"[{', '.join(str(int(k)) for k in position)}]" if values.ndim else ""
    return f"{name}{where} is {values[position]}"


def diverged_error(what: str) -> CallError:
    """The error (D0815) of a training that has diverged."""
    return CallError(
        what,
        code="D0815",
        help="lower the learning rate or clip: adam(lr=..., clip_norm=1); "
        "dlc train --check-nan names the operation that it came from",
    )
