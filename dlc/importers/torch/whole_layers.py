"""Recurrent layers of PyTorch as one operator each: `torch.export` writes every step of them out otherwise.

While a module is exported, the functions that its layers call are replaced by the operator `dlc.recurrent`,
which is imported as a loop. A layer with projections, with dropout between its layers in training mode, or
of packed sequences is written out as before.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from torch import Tensor

KINDS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
SCHEMA = (
    "(str kind, Tensor x, Tensor[] states, Tensor[] weights, bool has_biases, int layers, "
    "bool bidirectional, bool batch_first) -> Tensor[]"
)


@contextmanager
def whole_layers() -> Generator[None]:
    """Within it, layers of the kinds in `KINDS` are one operator."""
    from torch import _VF

    for kind, usual in _functions().items():
        setattr(_VF, kind, partial(_called, kind, usual))
    try:
        yield
    finally:
        for kind, usual in _functions().items():
            setattr(_VF, kind, usual)


@cache
def _functions() -> dict[str, Callable[..., object]]:
    """What the layers call outside of `whole_layers`."""
    from torch import _VF

    return {kind: getattr(_VF, kind) for kind in KINDS}


def _called(kind: str, usual: Callable[..., object], *given: object) -> object:
    """What a layer of PyTorch calls: the operator, or the usual function for what it does not have.

    The arguments are the source, the states, the weights, whether there are biases, the number of layers,
    the dropout, whether it is training, bidirectional, and has the batch first.
    """
    import torch

    x, states, weights, has_biases, layers, dropout, training, bidirectional, batch_first = given
    if isinstance(states, torch.Tensor) and kind == "lstm":
        return usual(*given)  # a packed sequence
    held = list(cast("Sequence[Tensor]", states if kind == "lstm" else [states]))
    arrays = cast("Sequence[Tensor]", weights)
    ways = 2 if bidirectional else 1
    is_packed = not isinstance(arrays, list | tuple)
    each = 4 if has_biases else 2
    if is_packed or len(arrays) != each * ways * cast("int", layers) or (dropout and training):
        return usual(*given)
    found = operator()(kind, x, held, list(arrays), has_biases, layers, bidirectional, batch_first)
    return tuple(found)


@cache
def operator() -> Callable[..., Sequence[Tensor]]:
    """The operator: the outputs of all steps, and the last states."""
    import torch

    def computed(
        kind: str,
        x: Tensor,
        states: Sequence[Tensor],
        weights: Sequence[Tensor],
        has_biases: bool,
        layers: int,
        bidirectional: bool,
        batch_first: bool,
    ) -> list[Tensor]:
        held = list(states) if kind == "lstm" else states[0]
        settings = (has_biases, layers, 0.0, False, bidirectional, batch_first)
        found = _functions()[kind](x, held, list(weights), *settings)
        return list(cast("Sequence[Tensor]", found))

    def shaped(kind: str, x: Tensor, states: Sequence[Tensor], *rest: object) -> list[Tensor]:
        width = states[0].shape[-1] * (2 if rest[3] else 1)
        return [x.new_empty((*x.shape[:-1], width)), *map(torch.empty_like, states)]

    made = torch.library.custom_op("dlc::recurrent", computed, mutates_args=(), schema=SCHEMA)
    made.register_fake(shaped)
    made.register_autograd(_cotangents, setup_context=_keep)
    return cast("Callable[..., Sequence[Tensor]]", torch.ops.dlc.recurrent.default)


class _Context(Protocol):
    """What autograd keeps of a call."""

    settings: Sequence[object]
    counts: tuple[int, int]
    saved_tensors: Sequence[Tensor]

    def save_for_backward(self, *tensors: Tensor) -> None: ...


def _keep(ctx: _Context, inputs: Sequence[object], output: Sequence[Tensor]) -> None:
    kind, x, states, weights, *rest = inputs
    held = [*cast("Sequence[Tensor]", states), *cast("Sequence[Tensor]", weights)]
    ctx.settings = (kind, *rest)
    ctx.counts = len(cast("Sequence[Tensor]", states)), len(cast("Sequence[Tensor]", weights))
    ctx.save_for_backward(cast("Tensor", x), *held, *output)


def _cotangents(ctx: _Context, given: Sequence[Tensor | None]) -> tuple[object, ...]:
    """Those of the arguments, by the operator `dlc.recurrent_backward`."""
    import torch

    kind, *rest = ctx.settings
    x, *held = ctx.saved_tensors
    count, more = ctx.counts
    states, weights, outputs = held[:count], held[count : count + more], held[count + more :]
    dy = [
        torch.zeros_like(y) if each is None else each
        for each, y in zip(given, outputs, strict=True)
    ]
    found = backward_operator()(dy, kind, x, states, weights, *rest)
    return (None, found[0], found[1 : 1 + count], found[1 + count :], *[None] * len(rest))


@cache
def backward_operator() -> Callable[..., Sequence[Tensor]]:
    """The operator that gives the cotangents of the source, the states and the weights."""
    import torch

    def computed(
        dy: Sequence[Tensor], kind: str, x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor],
        *rest: object,
    ) -> list[Tensor]:  # fmt: skip
        raise NotImplementedError("only graphs have this operator")

    def shaped(
        dy: Sequence[Tensor], kind: str, x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor],
        *rest: object,
    ) -> list[Tensor]:  # fmt: skip
        return [*map(torch.empty_like, (x, *states, *weights))]

    schema = SCHEMA.replace("(", "(Tensor[] dy, ", 1)
    made = torch.library.custom_op(
        "dlc::recurrent_backward", computed, mutates_args=(), schema=schema
    )
    made.register_fake(shaped)
    return cast("Callable[..., Sequence[Tensor]]", torch.ops.dlc.recurrent_backward.default)
