"""Long sums and running sums of floats: how far they are off, and that blocks leave no element out."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.lowering.kernel_code.blocked_sums import STEPS

Array = NDArray[np.float32]

RESULTS = {
    "N": ["sum(x)", "mean(x)", "norm(x)", "cumsum(x)", "cumsum(x, exclusive=true, reverse=true)"],
    "N, 8": ["sum(x, axis=0)", "cumsum(x, axis=0)"],
    "N, 6, 5": ["sum(x, axis=[0, 2])", "sum(x)"],
}
"""What is summed of arrays of a shape."""
TYPES = {
    "sum(x)": "f32", "mean(x)": "f32", "norm(x)": "f32", "sum(x, axis=0)": "f32[8]",
    "sum(x, axis=[0, 2])": "f32[6]", "cumsum(x, axis=0)": "f32[N, 8]",
}  # fmt: skip
CASES = [(shape, result) for shape, results in RESULTS.items() for result in results]


def compiled(shape: str, result: str, size: int | None = None, threads: int = 2) -> dlc.Model:
    head = "dim N = 0.." if size is None else f"const N = {size}"
    made = f"export fn f(x: f32[{shape}]) -> {TYPES.get(result, 'f32[N]')} = {result}"
    return dlc.compile(text=f"dlc 1\n{head}\n{made}", threads=threads)


def reference(result: str, x: Array) -> NDArray[np.float64]:
    """The same in f64."""
    wide = x.astype(np.float64)
    match result:
        case "mean(x)":
            return wide.mean()
        case "norm(x)":
            return np.sqrt((wide * wide).sum())
        case "sum(x, axis=0)":
            return wide.sum(0)
        case "sum(x, axis=[0, 2])":
            return wide.sum((0, 2))
        case "sum(x)":
            return wide.sum()
        case "cumsum(x, exclusive=true, reverse=true)":
            return wide.sum() - np.cumsum(wide)
        case _:
            return np.cumsum(wide, 0)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(("shape", "result"), CASES)
def test_a_million_times_a_tenth_is_a_hundred_thousand(
    shape: str, result: str, named: bool
) -> None:
    extents = [int(size) for size in shape.split(", ")[1:]]
    size = 1_500_000 // int(np.prod(extents))
    x = np.full((size, *extents), 0.1, np.float32)
    found = np.asarray(compiled(shape, result, None if named else size)["f"](x))
    expected = reference(result, x)
    largest = np.max(np.abs(expected))
    assert np.max(np.abs(found - expected)) < 1e-5 * largest


@pytest.mark.parametrize(("shape", "result"), [(s, r) for s, r in CASES if r != "norm(x)"])
def test_every_element_is_added_once(shape: str, result: str) -> None:
    model = compiled(shape, result)
    rng = np.random.default_rng(5)
    wide = STEPS * STEPS
    for size in (0, 1, 7, STEPS - 1, STEPS, STEPS + 1, 3 * STEPS + 5, 64 * STEPS + 33, wide + 1):
        if size == 0 and result == "mean(x)":
            continue
        x = rng.integers(-3, 4, (size, *map(int, shape.split(", ")[1:]))).astype(np.float32)
        found = np.asarray(model["f"](x))
        np.testing.assert_array_equal(found, reference(result, x).astype(np.float32))


@pytest.mark.parametrize(("shape", "result"), CASES)
def test_the_bits_do_not_depend_on_the_number_of_threads(shape: str, result: str) -> None:
    extents = [int(size) for size in shape.split(", ")[1:]]
    x = np.random.default_rng(6).random((70_001, *extents), dtype=np.float32)
    one, two = (np.asarray(compiled(shape, result, threads=count)["f"](x)) for count in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_the_variance_of_a_million_numbers_has_six_digits() -> None:
    x = np.random.default_rng(7).random(1_000_000, dtype=np.float32)
    text = "dlc 1\ndim N\nexport fn f(x: f32[N]) -> f32 = variance(x)"
    found = np.asarray(dlc.compile(text=text)["f"](x))
    np.testing.assert_allclose(found, x.astype(np.float64).var(), rtol=1e-6)
