"""Makes the networks in an environment of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.contenders.environment import TORCH, python_with
from benchmarks.contenders.turns import ROOT

EXPORTERS = (
    *("torchvision==0.28.0", "transformers==5.23.0", "onnx==1.23.2", "onnxscript==0.7.2"),
    *("onnxruntime==1.32.0",),
)
"""What makes the networks, and what runs them beside us."""

WHEELS = "wheels"
"""What stands in place of an exporter for networks that are fetched."""
INT8 = "int8"
"""And for those of the folder that ONNX Runtime quantises."""


def python() -> str:
    """The Python of the environment that makes and runs the networks."""
    return python_with("zoo", TORCH, EXPORTERS)


def make(folder: Path, pattern: str, exporters: Sequence[str], seconds: float, limit: float) -> int:
    """Export what the pattern names, and say what was skipped and why; gives the exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    told = list(_told(folder, pattern, exporters, seconds, limit))
    skipped = [each for each in told if "skipped" in each]
    for each in skipped:
        print(f"skipped {each['name']}: {each['skipped']}")
    print(f"{len(told) - len(skipped)} networks in {folder}, {len(skipped)} skipped")
    return 0


def _told(
    folder: Path, pattern: str, exporters: Sequence[str], seconds: float, limit: float
) -> Iterator[dict[str, str]]:
    """What the programs of the other environment say, a line for each network."""
    programs: list[list[str]] = []
    if WHEELS in exporters:
        programs.append(["benchmarks.zoo.wheels", str(folder), pattern])
    if own := [each for each in exporters if each not in (WHEELS, INT8)]:
        limits = [str(seconds), str(limit)]
        programs.append(["benchmarks.zoo.exporting", str(folder), pattern, *limits, *own])
    if INT8 in exporters:
        programs.append(["benchmarks.zoo.quantizing", str(folder), pattern])
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for program in programs:
        command = [python(), "-m", *program]
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, text=True
        ) as process:
            for line in process.stdout or ():
                told: dict[str, str] = json.loads(line)
                what = "skipped" if "skipped" in told else ""
                print(told["name"], what, file=sys.stderr, flush=True)
                yield told
