"""What the tests of functions of JAX share: both compute, and the results are compared."""

# pyright: basic, reportMissingModuleSource=false, reportAttributeAccessIssue=false, reportIndexIssue=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportMissingImports=false
# pyright: reportArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import dlc
from dlc.dialects import func
from dlc.importers.stablehlo.importing import StableHloModel, import_program
from dlc.importers.stablehlo.opening import program_of
from dlc.ir.core import Evaluation

jax = pytest.importorskip("jax", reason="JAX is not installed: make test-jax")

import jax.numpy as jnp  # noqa: E402
from jax import export  # noqa: E402


def imported(function: Callable[..., object], *args: object) -> StableHloModel:
    """A function as `jax.export` writes it, imported."""
    exported = export.export(jax.jit(function))(*args)
    return import_program(program_of(exported.mlir_module_serialized, "function.mlir"))


def evaluated(model: StableHloModel, *args: object, **dims: int) -> list[np.ndarray]:
    """The results of an imported function by NumPy."""
    (function,) = [op for op in model.module.body if isinstance(op, func.Func)]
    arrays = [_bits(np.asarray(arg)) for arg in jax.tree_util.tree_leaves(args)]
    return list(Evaluation(dims, model.arrays).run(function.body, arrays))


def check(
    function: Callable[..., object], *args: object, at: Sequence[object] = (), **dims: int
) -> None:
    """Import the function for these arguments; compare its results at them, or at others, with JAX's."""
    model = imported(function, *args)
    given = jax.tree_util.tree_map(jnp.asarray, at or args)
    expected = jax.tree_util.tree_leaves(function(*given))
    compare(evaluated(model, *given, **dims), expected)


def compiled(function: Callable[..., object], *args: object, **options: object) -> None:
    """Compile the function; compare its results with JAX's."""
    args = jax.tree_util.tree_map(jnp.asarray, args)
    fast = dlc.from_jax(function, *args, **options)
    found, tree = jax.tree_util.tree_flatten(fast(*args))
    expected, expected_tree = jax.tree_util.tree_flatten(function(*args))
    assert tree == expected_tree
    compare(found, expected)


def compare(found: Sequence[object], expected: Sequence[object]) -> None:
    """Raise AssertionError where results differ by more than rounding."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        wanted = np.asarray(other)
        made = np.asarray(one)
        assert made.shape == wanted.shape
        if wanted.dtype == jnp.bfloat16:
            made = made.view(jnp.bfloat16).astype(np.float32)
            wanted = wanted.astype(np.float32)
            np.testing.assert_allclose(made, wanted, rtol=2e-2, atol=2e-2)
        elif wanted.dtype.kind == "f":
            narrow = wanted.dtype == np.float16
            np.testing.assert_allclose(
                made, wanted, rtol=1e-2 if narrow else 2e-4, atol=1e-2 if narrow else 1e-5
            )
        else:
            np.testing.assert_array_equal(made, wanted)


def _bits(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint16) if array.dtype == jnp.bfloat16 else array


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal numbers in f32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
