"""benchmarks/zoo: files of StableHLO are run beside JAX."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.zoo import running
from benchmarks.zoo.children import GIB, Limits
from benchmarks.zoo.running import Setting

pytest.importorskip("jax")
jax: Any = importlib.import_module("jax")

SETTING = Setting(sys.executable, Limits(120, 32 * GIB), threads=1, rounds=0)


def layers(x: Any, w: Any) -> dict[str, Any]:  # noqa: ANN401 - JAX is not installed where types are checked
    return {"hidden": jax.numpy.tanh(x @ w), "sums": x.sum(0)}


def write_inputs(path: Path, *rows: int) -> None:
    for k, count in enumerate(rows):
        x = np.random.default_rng(k).standard_normal((count, 3)).astype(np.float32)
        np.savez(path.with_name(f"{path.stem}.{k}.npz"), x=x, w=np.ones((3, 4), np.float32))


@pytest.mark.parametrize("kind", ["serialized", "text", "bytecode"])
def test_a_file_of_stablehlo_is_a_row_that_agrees_with_jax(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "net.mlir"
    sizes = ("N, 3", "3, 4") if kind == "serialized" else ("2, 3", "3, 4")
    arrays = (np.ones((2, 3), np.float32), np.ones((3, 4), np.float32))
    shapes = jax.export.symbolic_args_specs(arrays, sizes)
    exported = jax.export.export(jax.jit(layers))(*shapes)
    match kind:
        case "serialized":
            path.write_bytes(exported.serialize())
        case "text":
            path.write_text(exported.mlir_module())
        case _:
            path.write_bytes(exported.mlir_module_serialized)
    write_inputs(path, *((1, 2, 5) if kind == "serialized" else (2, 2, 2)))
    (row,) = running.run(tmp_path, "*", SETTING, 1)
    assert (row.taken, row.wrong, row.message) == ("yes", "", "")
    assert row.error is not None and row.error < 1e-6
