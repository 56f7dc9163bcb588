"""Random networks trained by PyTorch: losses and weights after each step.

It answers pickled requests on stdin until the end of the input, in an environment of its own; it imports
nothing of ours. Optimizers are those of `torch.optim`; schedules are written down from docs/training.md.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

# PyTorch is not installed where types are checked.
torch: Any = importlib.import_module("torch")
f: Any = torch.nn.functional
dispatch: Any = importlib.import_module("torch.utils._python_dispatch")
weak: Any = importlib.import_module("torch.utils.weak")
requests: Any = importlib.import_module("contender_requests")

Array: TypeAlias = Any
Tensor: TypeAlias = Any
Optimizer: TypeAlias = Any
Facts: TypeAlias = Mapping[str, Any]


def rate(schedule: Facts, step: int, total: int) -> float:
    """The learning rate of a step."""
    peak, warmup = schedule["peak"], schedule["warmup"]
    rising = min((step + 1) / warmup, 1.0) if warmup else 1.0
    done = min(max((step - warmup) / max(total - warmup, 1), 0.0), 1.0)
    match schedule["kind"]:
        case "cosine" if step >= warmup:
            return peak * 0.5 * (1 + math.cos(math.pi * done))
        case "slope" if step >= warmup:
            return peak * (1 - done)
        case "staircase":
            return peak * rising * schedule["factor"] ** (step // schedule["every"])
        case _:
            return peak * rising


def optimizer_of(facts: Facts, weights: list[Array]) -> Optimizer:
    """One of `torch.optim`."""
    optim, lr, decay = torch.optim, 1.0, facts["weight_decay"]
    match facts["kind"]:
        case "sgd":
            return optim.SGD(weights, lr, weight_decay=decay)
        case "momentum":
            return optim.SGD(weights, lr, momentum=0.9, weight_decay=decay)
        case "nesterov":
            return optim.SGD(weights, lr, momentum=0.9, weight_decay=decay, nesterov=True)
        case "rmsprop":
            return optim.RMSprop(weights, lr, alpha=0.9, eps=1e-8, weight_decay=decay)
        case "adagrad":
            return optim.Adagrad(weights, lr, weight_decay=decay)
        case "adam":
            return optim.Adam(weights, lr, weight_decay=decay)
        case _:
            return optim.AdamW(weights, lr, weight_decay=decay)


LINEAR = ("mm", "bmm", "addmm", "sum", "mean", "convolution")
"""Sums whose terms are products of elements: with magnitudes for operands they give that of the terms."""


class Rounding(dispatch.TorchDispatchMode):
    """Changes each result of each operation, derivatives too, at random by up to `eps` of itself.

    A sum is changed by up to `eps` of the sum of its terms' magnitudes, which bounds the running error of a
    sum in any order (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.3 and 4.2).
    The derivative of softmax subtracts a sum from each cotangent. Where the cotangent is a sum as well, its
    terms count: another implementation may sum them in each of the two by itself.
    """

    def __init__(self, shake: int, eps: float) -> None:
        dispatch.TorchDispatchMode.__init__(self)
        self._random = np.random.default_rng(shake)
        self._eps = eps if shake else 0.0
        self._magnitudes: Any = weak.WeakTensorKeyDictionary()
        """Of the terms of each sum."""

    def __torch_dispatch__(
        self, function: Tensor, types: object, given: Sequence[Tensor], named: Facts | None = None
    ) -> Tensor:
        named = named or {}
        made = function(*given, **named)
        aliases = [result.alias_info for result in function._schema.returns if result.alias_info]
        if not self._eps:
            return made
        if aliases:  # it was rounded when what it is a view of, or is written over, was made
            if given[0] in self._magnitudes and not any(alias.is_write for alias in aliases):
                self._magnitudes[made] = function(self._magnitudes[given[0]], *given[1:], **named)
            return made
        if isinstance(made, tuple):
            return tuple([self._rounded(each, None) for each in cast("tuple[Tensor, ...]", made)])
        return self._rounded(made, self._terms(function, given, named))

    def _terms(self, function: Tensor, given: Sequence[Tensor], named: Facts) -> Tensor | None:
        """The sum of the magnitudes of what an operation sums for each element; None if it does not."""
        match function.overloadpacket.__name__:
            case name if name in LINEAR:
                return function(
                    *[x.abs() if isinstance(x, torch.Tensor) else x for x in given], **named
                )
            case "_softmax_backward_data":
                dy, y, axis = given[:3]
                terms = self._magnitudes.get(dy, dy.abs())
                return y * (terms + (terms * y).sum(axis, keepdim=True))
            case _:
                return None

    def _rounded(self, x: Tensor, terms: Tensor | None) -> Tensor:
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            return x
        noise = self._random.uniform(-self._eps, self._eps, tuple(x.shape))
        rounded = x + torch.as_tensor(noise, dtype=x.dtype) * (x.abs() if terms is None else terms)
        if terms is not None:
            self._magnitudes[rounded] = terms
        return rounded


def answered(
    text: str,
    given: Mapping[str, Array],
    batches: Facts,
    facts: Facts,
    dtype: str,
    shake: int,
    eps: float,
) -> list[list[Array]]:
    """For each step the loss before it and all weights behind it.

    With another `shake` than 0 each result is rounded at random by up to `eps` of itself.
    """
    names: dict[str, Any] = {"torch": torch, "f": f}
    exec(text, names)  # the text comes from our own generator
    torch.set_num_threads(1)
    wide = getattr(torch, dtype)
    rounding = Rounding(shake, eps)
    w = {key: torch.tensor(array, dtype=wide) for key, array in given.items()}
    for each in w.values():
        each.requires_grad_()
    inputs = {key: torch.as_tensor(array) for key, array in batches.items()}
    inputs = {k: x.to(wide) if x.is_floating_point() else x.long() for k, x in inputs.items()}
    optimizer = optimizer_of(facts, list(w.values()))
    found: list[list[Array]] = []
    total = facts["steps"]
    for step in range(total):
        for group in optimizer.param_groups:
            group["lr"] = rate(facts["schedule"], step, total)
        optimizer.zero_grad()
        with rounding:
            loss = names["loss"](w, **{key: x[step] for key, x in inputs.items()})
            loss.backward()
        for each in w.values():
            if each.grad is None:
                each.grad = torch.zeros_like(each)
        if facts["clip_value"]:
            torch.nn.utils.clip_grad_value_(w.values(), facts["clip_value"])
        if facts["clip_norm"]:
            shorten([each.grad for each in w.values()], facts["clip_norm"])
        optimizer.step()
        result = [loss.detach().numpy(), *[each.detach().numpy().copy() for each in w.values()]]
        found.append([np.asarray(each) for each in result])
    return found


def shorten(gradients: Sequence[Any], limit: float) -> None:
    """Scale gradients to the norm `limit` if theirs is larger.

    `torch.nn.utils.clip_grad_norm_` adds 1e-6 to the norm before it divides, dlc and optax do not.
    """
    norm = torch.linalg.vector_norm(torch.cat([each.flatten() for each in gradients]))
    for each in gradients:
        each.mul_((limit / norm).clamp(max=1))


def main() -> None:
    """Answer requests."""
    requests.answer(answered)


if __name__ == "__main__":
    main()
