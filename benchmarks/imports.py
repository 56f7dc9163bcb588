"""How long `dlc import` and `dlc compile` take for whole networks, and how much memory.

    python -m benchmarks imports make FOLDER
    python -m benchmarks imports FOLDER [NAME ...]

`make` exports a Llama-like network of 60 MB, ViT-B/16, Swin-T and DETR with random weights, by tracing,
and needs PyTorch and transformers: the environment of the zoo has them. The other form prints, for every
`.onnx` of a folder, seconds of a processor of `dlc import`, of `dlc compile` without a cache, of the same
once more and of compiling the text, with the seconds on the clock in parentheses, and the most memory that
each process but the third had beyond the weights.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

MIB = 1 << 20


def make(folder: Path) -> None:
    """Export the four networks."""
    catalogue: Any = importlib.import_module("benchmarks.zoo.catalogue")
    importlib.import_module("benchmarks.zoo.vision").opened()
    torch, hf = catalogue.torch, importlib.import_module("transformers")
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    words = {
        "input_ids": torch.randint(0, 8000, (2, 16)),
        "attention_mask": torch.ones(2, 16, dtype=torch.int64),
    }
    picture = {"pixel_values": torch.randn(2, 3, 224, 224)}
    llama = hf.LlamaConfig(
        vocab_size=8000,
        hidden_size=256,
        num_hidden_layers=14,
        num_attention_heads=8,
        num_key_value_heads=4,
        intermediate_size=688,
        use_cache=False,
    )
    detr = hf.DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=hf.ResNetConfig(out_features=["stage4"]),
    )
    networks = {
        "llama": (hf.LlamaForCausalLM(llama), words, {0: "batch", 1: "tokens"}),
        "vit_b16": (hf.ViTForImageClassification(hf.ViTConfig()), picture, {0: "batch"}),
        "swin_t": (hf.SwinForImageClassification(hf.SwinConfig()), picture, {0: "batch"}),
        "detr": (hf.DetrForObjectDetection(detr), picture, {0: "batch"}),
    }
    for name, (module, inputs, axes) in networks.items():
        named = catalogue.Named(module.eval(), list(inputs), {"return_dict": False})
        torch.onnx.export(
            named,
            tuple(inputs.values()),
            folder / f"{name}.onnx",
            input_names=list(inputs),
            dynamic_axes=dict.fromkeys(inputs, axes),
            dynamo=False,
        )
        print(folder / f"{name}.onnx", flush=True)


@dataclass(frozen=True, slots=True)
class Spent:
    """What a process took: seconds of processors, seconds, and the most memory in bytes."""

    busy: float
    clock: float
    memory: int

    @property
    def text(self) -> str:
        """Both times."""
        return f"{self.busy:5.1f} ({self.clock:4.1f})"


def spent(command: Sequence[str], environment: Mapping[str, str]) -> Spent:
    """Run a command to its end."""
    start = monotonic()
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    told = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}: {told.decode()}")
    return Spent(usage.ru_utime + usage.ru_stime, monotonic() - start, usage.ru_maxrss * 1024)


def measure(path: Path) -> str:
    """A line of the table."""
    dlc = [sys.executable, "-m", "dlc"]
    with tempfile.TemporaryDirectory() as scratch:
        environment = {**os.environ, "DLC_CACHE": f"{scratch}/cache"}
        imported = spent([*dlc, "import", str(path), "-o", f"{scratch}/net.dlm"], environment)
        verb = [*dlc, "compile", str(path), "-o", f"{scratch}/net.dlc"]
        cold, warm = spent(verb, environment), spent(verb, environment)
        verb = [*dlc, "compile", f"{scratch}/net.dlm", "-o", f"{scratch}/text.dlc"]
        text = spent(verb, environment)
    weights = sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))
    over = [max(0, each.memory - weights) // MIB for each in (imported, cold, text)]
    columns = "  ".join(each.text for each in (imported, cold, warm, text))
    return f"{path.stem:14} {weights // MIB:6}  {columns}  {over[0]:5} {over[1]:5} {over[2]:5}"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks imports")
    parser.add_argument("arguments", nargs="+", metavar="[make] FOLDER [NAME ...]")
    first, *rest = parser.parse_args().arguments
    if first == "make":
        make(Path(rest[0]))
        return
    times = "  ".join(f"{name:>12}" for name in ("import", "compile", "again", "of the text"))
    print(f"{'network':14} {'MiB':>6}  {times}  MiB beyond the weights")
    for path in sorted(Path(first).glob("*.onnx")):
        if not rest or path.stem in rest:
            print(measure(path), flush=True)


if __name__ == "__main__":
    main()
