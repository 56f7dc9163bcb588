"""Records what PyTorch's mixed precision, its scheduler on a plateau and a GAN's gradients come to.

    python tests/frontend/recorded/record_training.py

needs PyTorch 2.3 or later and writes `training.npz`; `tests/frontend/training/test_recorded.py` compares.
"""

# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportMissingModuleSource=false, reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

STEPS, BATCH = 8, 16
HUGE = 2
"""The step whose batch is too large for f16."""


def network() -> tuple[nn.Module, dict[str, np.ndarray]]:
    """A layer, a normalisation, a layer; weights as dlc has them: [inputs, outputs]."""
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(12, 24), nn.LayerNorm(24), nn.GELU(), nn.Linear(24, 5))
    return net, {f"start.{name}": value for name, value in weights(net).items()}


def weights(net: nn.Module) -> dict[str, np.ndarray]:
    """The weights under dlc's names."""
    names = {"0.weight": "net.0.w", "0.bias": "net.0.b", "1.weight": "net.1.scale",
             "1.bias": "net.1.shift", "3.weight": "net.3.w", "3.bias": "net.3.b"}  # fmt: skip
    own = {names[key]: value.detach().numpy().copy() for key, value in net.state_dict().items()}
    return {n: np.ascontiguousarray(v.T) if n.endswith(".w") else v for n, v in own.items()}


def batches() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    x = random.normal(size=(STEPS, BATCH, 12)).astype(np.float32)
    x[HUGE] *= 1e5
    return x, random.integers(0, 5, (STEPS, BATCH)).astype(np.int32)


def mixed(dtype: torch.dtype | None, name: str) -> dict[str, np.ndarray]:
    """Losses, scales and weights of a training with autocast and, for f16, a scaler."""
    net, _ = network()
    x, y = batches()
    if dtype is not torch.float16:
        x[HUGE] /= 1e5
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler(
        "cpu", init_scale=1024.0, growth_interval=3, enabled=dtype is torch.float16
    )
    losses, scales = [], []
    for k in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
            told = net(torch.from_numpy(x[k]))
            loss = F.cross_entropy(told.float(), torch.from_numpy(y[k]).long())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
        scales.append(scaler.get_scale())
    found = {"losses": np.array(losses), "scales": np.array(scales), **weights(net)}
    return {f"{name}.{key}": value for key, value in found.items()}


PLATEAUS = (
    {"factor": 0.5, "patience": 1},
    {"factor": 0.1, "patience": 0, "cooldown": 2, "min_lr": 0.05},
    {"factor": 0.5, "patience": 1, "mode": "max", "threshold": 0.1},
    {"factor": 0.5, "patience": 2, "threshold": 0.05, "threshold_mode": "abs"},
)


def plateaus() -> dict[str, np.ndarray]:
    """The learning rates, of 1 at first, after each of some measures."""
    random = np.random.default_rng(7)
    measures = np.round(np.linspace(1, 0.2, 40) + random.normal(size=40) / 10, 3)
    measures[11] = np.nan
    found = {"plateau.measures": measures}
    for k, settings in enumerate(PLATEAUS):
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, eps=0.0, **settings)
        rates = []
        for measure in measures:
            schedule.step(measure)
            rates.append(optimizer.param_groups[0]["lr"])
        found[f"plateau.{k}"] = np.array(rates)
    return found


def gan() -> dict[str, np.ndarray]:
    """The gradients of both sides of examples/digits_gan.dlm, of one batch with this noise."""
    torch.manual_seed(11)
    generator = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.Sigmoid())
    discriminator = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    image = np.random.default_rng(2).integers(0, 17, (8, 8, 8, 1)).astype(np.uint8)
    z = torch.randn(8, 16)
    real = torch.from_numpy(image.astype(np.float32) / 16).reshape(8, 64)
    found = {"gan.image": image, "gan.z": z.numpy()}
    sides = {"generator": generator, "discriminator": discriminator}
    for side, net in sides.items():
        for name, value in net.state_dict().items():
            found[f"gan.start.{side}.{gan_name(name)}"] = turned(value)
    belief = F.softplus(-discriminator(real)) + F.softplus(discriminator(generator(z)))
    losses = {
        "discriminate": (belief.mean(), discriminator, "discriminator"),
        "generate": (F.softplus(-discriminator(generator(z))).mean(), generator, "generator"),
    }
    for block, (loss, net, side) in losses.items():
        gradients = torch.autograd.grad(loss, list(net.parameters()))
        found[f"gan.{block}.loss"] = loss.detach().numpy()
        for (name, _), gradient in zip(net.named_parameters(), gradients, strict=True):
            found[f"gan.{block}.{side}.{gan_name(name)}"] = turned(gradient)
    return found


def gan_name(name: str) -> str:
    return name.replace("weight", "w").replace("bias", "b")


def turned(value: torch.Tensor) -> np.ndarray:
    array = value.detach().numpy()
    return np.ascontiguousarray(array.T if array.ndim == 2 else array)


def main() -> None:
    _, start = network()
    x, y = batches()
    found = {**start, "x": x, "y": y, **plateaus(), **gan()}
    found |= mixed(None, "f32") | mixed(torch.bfloat16, "bf16") | mixed(torch.float16, "f16")
    np.savez_compressed(Path(__file__).with_name("training.npz"), **found)


if __name__ == "__main__":
    main()
