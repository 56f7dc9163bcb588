"""A pair of compiled functions, forward and backward, as a function that PyTorch differentiates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    import torch

Tensors: TypeAlias = "Sequence[torch.Tensor]"
Forward: TypeAlias = "Callable[[Tensors, Sequence[int]], list[torch.Tensor]]"
"""From tensors and the seed of random numbers, if one is drawn, to results."""
Backward: TypeAlias = (
    "Callable[[Tensors, Sequence[int], Sequence[torch.Tensor | None]], list[torch.Tensor | None]]"
)
"""From the same and a cotangent for each result that the loss depends on, None for others, to one for each
tensor, None for those that these results do not depend on."""


def differentiable(
    forward: Forward,
    backward: Backward,
    wanted: Sequence[int],
    tensors: Tensors,
    seed: Sequence[int],
) -> Sequence[torch.Tensor]:
    """The results of `forward`, whose gradients `backward` computes, from the same tensors and seed.

    `wanted` are the numbers of the results that have one. There is no derivative of the second order.
    """
    return _function().apply(forward, backward, wanted, tuple(seed), *tensors)


class _Context(Protocol):
    """What PyTorch keeps between the two passes, with what is kept here."""

    saved_tensors: Sequence[torch.Tensor]
    backward_pass: Backward
    seed: Sequence[int]

    def save_for_backward(self, *tensors: torch.Tensor) -> None: ...
    def mark_non_differentiable(self, *results: torch.Tensor) -> None: ...
    def set_materialize_grads(self, value: bool) -> None: ...


@cache
def _function() -> type[torch.autograd.Function]:
    """The class for PyTorch, made when PyTorch is there."""
    import torch

    class Compiled(torch.autograd.Function):
        @staticmethod
        def forward(
            ctx: _Context,
            forward: Forward,
            backward: Backward,
            wanted: Sequence[int],
            seed: Sequence[int],
            *tensors: torch.Tensor,
        ) -> tuple[torch.Tensor, ...]:
            results = forward(tensors, seed)
            ctx.backward_pass, ctx.seed = backward, seed
            ctx.save_for_backward(*tensors)
            ctx.set_materialize_grads(False)
            others = [each for number, each in enumerate(results) if number not in wanted]
            ctx.mark_non_differentiable(*others)
            return tuple(results)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: _Context, *of_results: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
            found = ctx.backward_pass(ctx.saved_tensors, ctx.seed, of_results)
            return None, None, None, None, *found

    return Compiled
