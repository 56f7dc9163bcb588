"""What a call of onnxruntime takes of the machine's memory, for `benchmarks.memory`.

    python -m benchmarks.memory.contender HOW MODEL INPUTS.npz

HOW is `onnxruntime` (as it comes) or `onnxruntime, no arena`, which allocates each tensor by itself and
gives it back. Prints one JSON object: `grown` is by how many bytes the process was larger at the peak of
the first call than before it, and of the second, as the operating system counts pages. Inputs and weights
are there before.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
CALLS = 2


def status(word: str) -> int:
    """A line of the process's status, in bytes."""
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith(f"{word}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(word)


def grown(call: Callable[[], object]) -> int:
    """How much larger the process was at most during a call than before."""
    Path("/proc/self/clear_refs").write_text("5", "ascii")  # the peak is counted anew
    before = status("VmRSS")
    call()
    return status("VmHWM") - before


def onnxruntime(path: Path, inputs: Mapping[str, Array], *, arena: bool) -> Callable[[], object]:
    import onnxruntime as peer

    options: Any = peer.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.enable_cpu_mem_arena = options.enable_mem_pattern = arena
    session: Any = peer.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, dict(inputs))


def main(how: str, model: str, given: str) -> None:
    """Open the model, call it, and tell."""
    with np.load(given) as file:
        inputs: dict[str, Array] = {key: file[key] for key in file.files}
    call = onnxruntime(Path(model), inputs, arena=how == "onnxruntime")
    print(json.dumps({"grown": [grown(call) for _ in range(CALLS)]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
