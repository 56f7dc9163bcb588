"""Tensors of PyTorch as arguments and results of a compiled entry point, without copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CallError
from dlc.runtime.arrays.tensor import Tensor

if TYPE_CHECKING:
    import torch

Array = NDArray[np.generic]


def argument(tensor: torch.Tensor, order: Sequence[int] | None = None) -> object:
    """A tensor as an argument: its memory, if it lies on the CPU and its axes lie in this order.

    One with gaps is copied first.
    """
    import torch

    if order is not None and list(order) != sorted(order):
        tensor = tensor.permute(*order)
    plain = tensor.detach()
    if plain.device.type != "cpu":
        raise CallError(
            f"a tensor is on {plain.device}, and the model was compiled for the CPU",
            code="D0805",
            help="move it there: tensor.cpu()",
        )
    if plain.is_conj() or plain.is_neg():
        plain = plain.resolve_conj().resolve_neg()
    plain = plain.contiguous()
    if plain.dtype is torch.bfloat16:
        return Tensor.from_bits(plain.view(torch.uint16).numpy(), "bf16")
    return plain.numpy()


def tensor_of(result: object, order: Sequence[int] | None = None) -> torch.Tensor:
    """A result as a tensor on the same memory, which lives as long as the tensor does."""
    import torch

    if isinstance(result, Tensor):
        found = torch.from_numpy(result.bits).view(torch.bfloat16)
    elif isinstance(result, np.ndarray):
        array = cast("Array", result)
        found = (
            torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
            if array.dtype.name == "bfloat16"
            else torch.from_numpy(array)
        )
    else:
        found = torch.as_tensor(result)
    if order is not None and list(order) != sorted(order):
        found = found.permute(*_inverse(order))
    return found


def _inverse(order: Sequence[int]) -> list[int]:
    found = [0] * len(order)
    for place, axis in enumerate(order):
        found[axis] = place
    return found


def results_of(
    entry: Callable[..., object],
    arguments: Sequence[object],
    sizes: Mapping[str, object] | None = None,
) -> Sequence[object]:
    """The results of a call, as a sequence; `sizes` are those that no tensor tells."""
    found = entry(*arguments, **(sizes or {}))
    return cast("Sequence[object]", found) if isinstance(found, tuple) else (found,)
