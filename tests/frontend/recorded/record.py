"""Records what PyTorch and Transformers compute for layers, losses and sampling of the library.

    python tests/frontend/recorded/record.py

writes `library.npz` beside it, which `tests/frontend/test_library_values.py` reads. It was run with
PyTorch 2.13 and Transformers 5, in float64. A case has inputs `CASE/in/NAME`, weights under the names
of PyTorch's state dict `CASE/w/NAME`, results `CASE/out/N`, and the gradients of the sum of the sines of
the results by the inputs, `CASE/grad/NAME`.
"""

# pyright: basic, reportMissingModuleSource=false, reportAttributeAccessIssue=false, reportIndexIssue=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportMissingImports=false
# pyright: reportArgumentType=false, reportOperatorIssue=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

HERE = Path(__file__).parent
RANDOM = np.random.default_rng(20)
FOUND: dict[str, np.ndarray] = {}


def normal(*shape: int) -> np.ndarray:
    """Normal numbers that f32 can hold."""
    return RANDOM.standard_normal(shape).astype(np.float32).astype(np.float64)


def record(
    name: str, run: Callable[..., object], weights: nn.Module | None = None, **inputs: np.ndarray
) -> None:
    """Run a case, and keep what goes in, what comes out, and the gradients of the floats."""
    given = {k: torch.tensor(v, requires_grad=v.dtype.kind == "f") for k, v in inputs.items()}
    found = run(*given.values())
    results = found if isinstance(found, tuple) else (found,)
    sum(torch.sin(result).sum() for result in results).backward()
    for k, value in given.items():
        FOUND[f"{name}/in/{k}"] = value.detach().numpy()
        if value.grad is not None:
            FOUND[f"{name}/grad/{k}"] = value.grad.numpy()
    for k, result in enumerate(results):
        FOUND[f"{name}/out/{k}"] = result.detach().numpy()
    state: Mapping[str, torch.Tensor] = {} if weights is None else weights.state_dict()
    for k, value in state.items():
        FOUND[f"{name}/w/{k}"] = value.numpy()


def set_weights(module: nn.Module) -> nn.Module:
    """Random weights; variances are positive."""
    with torch.no_grad():
        for key, value in module.state_dict().items():
            if value.dtype.is_floating_point:
                drawn = torch.tensor(normal(*value.shape))
                value.copy_(drawn.abs() + 0.5 if "running_var" in key else drawn)
    return module.double().eval()


def recurrent() -> None:
    x, h, c = normal(2, 5, 3), normal(1, 2, 4), normal(1, 2, 4)
    gru = set_weights(nn.GRU(3, 4, batch_first=True).double())
    record("gru", gru, gru, x=x, h=h)
    lstm = set_weights(nn.LSTM(3, 4, batch_first=True).double())

    def all_of(
        x: torch.Tensor, h: torch.Tensor, c: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y, (h, c) = lstm(x, (h, c))
        return y, h, c

    record("lstm", all_of, lstm, x=x, h=h, c=c)
    rnn = set_weights(nn.RNN(3, 4, batch_first=True).double())
    record("rnn", rnn, rnn, x=x, h=h)
    both = set_weights(nn.LSTM(3, 4, batch_first=True, bidirectional=True).double())
    record("bidirectional", lambda x: both(x)[0], both, x=x)


def losses() -> None:
    x, y = normal(4, 3), normal(4, 3)
    target = RANDOM.random((4, 3)).astype(np.float32).astype(np.float64)
    record("smooth_l1", lambda x, y: F.smooth_l1_loss(x, y, beta=0.5), x=x, y=y)
    record("bce", F.binary_cross_entropy_with_logits, x=3 * x, target=target)

    def focal(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        p = torch.sigmoid(x)
        loss = F.binary_cross_entropy_with_logits(x, target, reduction="none")
        weight = (0.25 * target + 0.75 * (1 - target)) * (
            1 - p * target - (1 - p) * (1 - target)
        ) ** 2
        return (weight * loss).mean()

    record("focal", focal, x=3 * x, target=(target > 0.5).astype(np.float64))
    record("triplet", lambda a, b, c: F.triplet_margin_loss(a, b, c, 1.5), a=x, b=y, c=target)
    labels = np.array([0, 2, 1, 2])
    record(
        "smoothing", lambda x: F.cross_entropy(x, torch.tensor(labels), label_smoothing=0.1), x=x
    )
    rows = np.abs(y) / np.abs(y).sum(-1, keepdims=True)
    record(
        "soft_smoothing",
        lambda x, rows: F.cross_entropy(x, rows, label_smoothing=0.1),
        x=x,
        rows=rows,
    )

    def contrast(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        logits = F.normalize(x) @ F.normalize(y).T / 0.07
        return F.cross_entropy(logits, torch.arange(4))

    def clip(x: torch.Tensor, y: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        logits = scale * F.normalize(y) @ F.normalize(x).T
        each = torch.arange(4)
        return (F.cross_entropy(logits, each) + F.cross_entropy(logits.T, each)) / 2

    record("info_nce", contrast, x=x, y=y)
    record("clip_loss", clip, x=x, y=y, scale=np.array(5.0))

    def ctc(x: torch.Tensor) -> torch.Tensor:
        labels = torch.tensor([[1, 1, 3], [2, 4, 0], [3, 0, 0], [1, 0, 0]])
        times, lengths = torch.tensor([8, 6, 7, 3]), torch.tensor([3, 2, 1, 0])
        rows = F.log_softmax(x, -1).transpose(0, 1)
        return F.ctc_loss(rows, labels, times, lengths)

    record("ctc", ctc, x=normal(4, 8, 5))


def layers() -> None:
    x = normal(2, 4, 6, 6)
    block = set_weights(
        nn.Sequential(
            nn.Conv2d(4, 8, 1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU6(),
            nn.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU6(),
            nn.Conv2d(8, 4, 1, bias=False),
            nn.BatchNorm2d(4),
        ).double()
    )
    record("inverted_residual", lambda x: x + block(x), block, x=x)
    apart = set_weights(
        nn.Sequential(
            nn.Conv2d(4, 4, 3, 2, 1, groups=4, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Conv2d(4, 6, 1, bias=False),
            nn.BatchNorm2d(6),
            nn.ReLU(),
        ).double()
    )
    record("depthwise_separable", apart, apart, x=x)
    excite = set_weights(
        nn.Sequential(nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 4), nn.Sigmoid()).double()
    )
    record("squeeze", lambda x: x * excite(x.mean((2, 3)))[:, :, None, None], excite, x=x)
    record("instance_norm", F.instance_norm, x=x)


def attention() -> None:
    q, k, v = normal(2, 4, 3, 8), normal(2, 2, 5, 8), normal(2, 2, 5, 8)
    record(
        "grouped",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        q=q,
        k=k,
        v=v,
    )
    square = normal(2, 2, 3, 8), normal(2, 2, 3, 8)
    record(
        "causal_grouped",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
        q=q,
        k=square[0],
        v=square[1],
    )
    mask = np.arange(5)[None, :] < np.array([2, 4])[:, None]
    record(
        "lengths",
        lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, attn_mask=torch.tensor(mask)[:, None, None], enable_gqa=True
        ),
        q=q,
        k=k,
        v=v,
    )
    # The paper's turn of pairs, as a product of complex numbers.
    turn = np.exp(1j * np.array([0, 1, 4])[:, None] * 10000.0 ** (-np.arange(4) / 4))

    def turned(pairs: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.tensor(turn))

    halves = (-1, -2)
    record(
        "rope",
        lambda q: turned(q.unflatten(-1, (2, 4)).transpose(*halves)).transpose(*halves).flatten(-2),
        q=q,
    )
    record("rope_interleaved", lambda q: turned(q.unflatten(-1, (4, 2))).flatten(-2), q=q)


def graphs() -> None:
    """Graph layers as products with matrices of the graph."""
    src, dst = np.array([0, 1, 2, 3, 1, 4]), np.array([1, 0, 1, 2, 3, 1])
    edges = torch.zeros(5, 5, dtype=torch.float64)
    edges[dst, src] = 1
    looped = edges + torch.eye(5, dtype=torch.float64)
    d = looped.sum(1) ** -0.5

    def gcn(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (d[:, None] * looped * d) @ (x @ w) + b

    def gat(
        x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, one: torch.Tensor, two: torch.Tensor
    ):
        h = torch.einsum("ni,iho->nho", x, w)
        scores = (h * one).sum(-1)[None, :] + (h * two).sum(-1)[:, None]
        scores = F.leaky_relu(scores, 0.2).masked_fill(looped[:, :, None] == 0, -torch.inf)
        return torch.einsum("dsh,sho->dho", scores.softmax(1), h).flatten(1) + b

    x = normal(5, 3)
    record("gcn", gcn, x=x, w=normal(3, 4), b=normal(4))
    record("gat", gat, x=x, w=normal(3, 2, 4), b=normal(8), one=normal(2, 4), two=normal(2, 4))


def sampling() -> None:
    """The scores from which Transformers draws, -inf where it does not."""
    from transformers.generation import logits_process as process

    scores = 3 * normal(3, 12)
    steps = {
        "top_k": [process.TopKLogitsWarper(5)],
        "top_p": [process.TopPLogitsWarper(0.7)],
        "min_p": [process.MinPLogitsWarper(0.2)],
        "all": [
            process.TemperatureLogitsWarper(1.5),
            process.TopKLogitsWarper(6),
            process.TopPLogitsWarper(0.8),
            process.MinPLogitsWarper(0.1),
        ],
    }
    FOUND["sample/in"] = scores
    for name, warpers in steps.items():
        left = torch.tensor(scores)
        for warper in warpers:
            left = warper(None, left)
        FOUND[f"sample/{name}"] = left.numpy()


def optimizers() -> None:
    """Ten steps of a matrix and of a vector, of which step t receives `sin(t * p)`."""
    for name, make in {
        "adafactor": lambda p: torch.optim.Adafactor(
            p, lr=0.1, weight_decay=0.1, eps=(torch.finfo(torch.float32).eps, 1e-3)
        ),
        "muon": lambda p: torch.optim.Muon(p, lr=0.02, weight_decay=0.1),
    }.items():
        start = {"w": np.random.default_rng(4).standard_normal((4, 6)).astype(np.float32)}
        if name == "adafactor":
            start["b"] = np.random.default_rng(5).standard_normal(3).astype(np.float32)
        weights = {k: nn.Parameter(torch.tensor(v, dtype=torch.float64)) for k, v in start.items()}
        optimizer = make(list(weights.values()))
        for step in range(1, 11):
            for key, p in weights.items():
                p.grad = torch.sin(step * p.detach())
                FOUND[f"optimizer/{name}/{key}"] = start[key]
            optimizer.step()
        for key, p in weights.items():
            FOUND[f"optimizer/{name}/{key}/10"] = p.detach().numpy()


if __name__ == "__main__":
    for part in (recurrent, losses, layers, attention, graphs, sampling, optimizers):
        part()
    np.savez_compressed(HERE / "library.npz", **FOUND)
