"""The cases: each operation of JAX with arguments, exported once and kept with JAX's own results.

A kept case is an npz file: the module, what its `main` takes, and what JAX gives. Arrays are kept as their
bytes, since npz knows no bf16.
"""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np

from benchmarks.contenders.environment import cache_folder

Array: TypeAlias = Any
Harness: TypeAlias = Any
Module: TypeAlias = Any

SEED = 0
BYTECODE_EVERY = 16
"""One case in this many is kept as portable bytecode, the others as text."""


class NotMade(Exception):
    """JAX itself does not export or run a case on the CPU."""


@dataclass(frozen=True, slots=True)
class Case:
    """A module with arguments and JAX's results; `is_text` unless it is bytecode."""

    name: str
    module: bytes
    is_text: bool
    inputs: Sequence[Array]
    wanted: Sequence[Array]


@cache
def _jax(x64: bool) -> Module:
    # JAX is not installed where types are checked.
    jax: Any = importlib.import_module("jax")
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", x64)
    return jax


@cache
def harnesses(*, x64: bool) -> dict[str, Harness]:
    """JAX's cases by name: 5,594 in version 0.10.2, and 7,526 with types of 64 bits."""
    _jax(x64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: Any = importlib.import_module("jax._src.internal_test_util.test_harnesses")
    return {harness.fullname: harness for harness in found.all_harnesses}


def primitive_of(name: str, *, x64: bool) -> str:
    """The operation that a case is about."""
    return str(harnesses(x64=x64)[name].group_name)


def kept_case(name: str, *, x64: bool) -> Case:
    """A case from the cache, or made now. Raises NotMade."""
    jax = _jax(x64)
    folder = cache_folder() / "stablehlo" / f"jax-{jax.__version__}{'-x64' if x64 else ''}"
    path = (
        folder / f"{name[:80]}-{crc32(name.encode()):08x}.npz"
    )  # names are longer than files' may be
    if path.exists():
        return _read(path, name)
    case = _made(name, x64=x64)
    folder.mkdir(parents=True, exist_ok=True)
    _write(path, case)
    return case


def _arguments(harness: Harness) -> Sequence[Array]:
    return harness.dyn_args_maker(np.random.RandomState(SEED))


def _made(name: str, *, x64: bool) -> Case:
    jax = _jax(x64)
    harness = harnesses(x64=x64)[name]
    if not harness.filter("cpu"):
        raise NotMade("JAX does not implement it on the CPU")
    try:
        arguments = [jax.numpy.asarray(each) for each in _arguments(harness)]
        exported = jax.export.export(jax.jit(harness.dyn_fun))(*arguments)
        wanted = jax.tree.leaves(exported.call(*arguments))
    except Exception as error:
        raise NotMade(f"{type(error).__name__}: {error}") from error
    leaves = jax.tree.leaves(arguments)
    is_text = crc32(name.encode()) % BYTECODE_EVERY != 0
    module = exported.mlir_module().encode() if is_text else exported.mlir_module_serialized
    inputs = [np.asarray(leaves[k]) for k in exported.module_kept_var_idx]
    return Case(name, module, is_text, inputs, [np.asarray(each) for each in wanted])


def precise_results(name: str, *, x64: bool) -> Sequence[Array]:
    """What JAX computes with floats of 64 bits from the same arguments."""
    jax = _jax(x64)
    harness = harnesses(x64=x64)[name]
    arguments = [np.asarray(jax.numpy.asarray(each)) for each in _arguments(harness)]
    with jax.enable_x64(True):
        wide = [_widened(jax, each) for each in arguments]
        return [np.asarray(each) for each in jax.tree.leaves(jax.jit(harness.dyn_fun)(*wide))]


def _widened(jax: Module, array: Array) -> Array:
    is_float = jax.numpy.issubdtype(array.dtype, jax.numpy.floating)
    return jax.numpy.asarray(array.astype(np.float64) if is_float else array)


def _write(path: Path, case: Case) -> None:
    arrays = [*case.inputs, *case.wanted]
    facts = {
        "is_text": case.is_text,
        "inputs": len(case.inputs),
        "types": [(each.dtype.name, each.shape) for each in arrays],
    }
    kept: dict[str, Any] = {
        f"a{k}": np.frombuffer(each.tobytes(), np.uint8) for k, each in enumerate(arrays)
    }
    kept["module"] = np.frombuffer(case.module, np.uint8)
    kept["facts"] = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    partial = path.with_suffix(".partial.npz")
    np.savez_compressed(partial, **kept)
    partial.rename(path)


def _read(path: Path, name: str) -> Case:
    importlib.import_module("ml_dtypes")  # NumPy knows the names of its dtypes then
    with np.load(path) as kept:
        facts = json.loads(kept["facts"].tobytes())
        arrays = [
            np.frombuffer(kept[f"a{k}"].tobytes(), np.dtype(dtype)).reshape(shape)
            for k, (dtype, shape) in enumerate(facts["types"])
        ]
        count = facts["inputs"]
        module = kept["module"].tobytes()
    return Case(name, module, facts["is_text"], arrays[:count], arrays[count:])
