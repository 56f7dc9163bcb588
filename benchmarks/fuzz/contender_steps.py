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


class Rounding(dispatch.TorchDispatchMode):
    """Changes each result of each operation, derivatives too, at random by up to `eps` of itself."""

    def __init__(self, shake: int, eps: float) -> None:
        dispatch.TorchDispatchMode.__init__(self)
        self._random = np.random.default_rng(shake)
        self._eps = eps if shake else 0.0

    def __torch_dispatch__(
        self, function: Tensor, types: object, given: Sequence[Tensor], named: Facts | None = None
    ) -> Tensor:
        made = function(*given, **(named or {}))
        # What is another view of something, or was changed in place, was rounded when it was made.
        if not self._eps or any(result.alias_info for result in function._schema.returns):
            return made
        if isinstance(made, tuple):
            return tuple(map(self._rounded, cast("tuple[Tensor, ...]", made)))
        return self._rounded(made)

    def _rounded(self, x: Tensor) -> Tensor:
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            return x
        noise = self._random.uniform(1 - self._eps, 1 + self._eps, tuple(x.shape))
        return x * torch.as_tensor(noise, dtype=x.dtype)


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
            torch.nn.utils.clip_grad_norm_(w.values(), facts["clip_norm"])
        optimizer.step()
        result = [loss.detach().numpy(), *[each.detach().numpy().copy() for each in w.values()]]
        found.append([np.asarray(each) for each in result])
    return found


def main() -> None:
    """Answer requests."""
    requests.answer(answered)


if __name__ == "__main__":
    main()
