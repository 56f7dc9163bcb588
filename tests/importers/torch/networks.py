"""Small modules of PyTorch for the tests."""

# pyright: basic, reportMissingModuleSource=false, reportAttributeAccessIssue=false, reportIndexIssue=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportMissingImports=false

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")
nn = torch.nn
functional = nn.functional


class Block(nn.Module):
    """A residual block of a transformer's kind."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(functional.gelu(self.up(self.norm(x))))


class Blocks(nn.Module):
    """Some blocks between two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.blocks = nn.ModuleList([Block(16) for _ in range(3)])
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, stride=2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.ConvTranspose2d(8, 8, 3, 2, 1, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
    )


def transformer(dropout: float = 0.0) -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


class Choice(nn.Module):
    """A loop with a computed number of rounds, then one of two branches."""

    def forward(self, x, n):
        from torch._higher_order_ops import while_loop

        _, y = while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 0.5 + 1), (n, x))
        return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (y,))


class Scanned(nn.Module):
    """A running sum, and what it was multiplied with."""

    def forward(self, x):
        from torch._higher_order_ops import scan

        return scan(lambda c, x: (c + x, c * x), torch.zeros(3), x)


class Nested(nn.Module):
    """Takes and returns tensors that are nested in tuples and dictionaries."""

    def forward(self, pair, *, table):
        one, other = pair
        return {"sum": one + table["bias"], "rest": (other * 2, None, 3)}
