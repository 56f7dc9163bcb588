"""Which value each size has in a call: what the shapes of inputs tell, and what is given by name."""

from __future__ import annotations

import numpy as np
import pytest

import dlc
from dlc.errors import CallError
from dlc.runtime.artifact.manifest import Dim, Entry, Input, Output
from dlc.runtime.calling.dim_binding import DimBinder, Shape

SCALAR = Output("y", "f32", ())


def binder(*shapes: tuple[str, ...], dims: str = "TSN") -> DimBinder:
    """That of an entry point with inputs of these shapes and dims of these names."""
    inputs = tuple([Input(f"x{k}", "f32", shape) for k, shape in enumerate(shapes)])
    return DimBinder(Entry("f", inputs, (SCALAR,), tuple([Dim(name, 1, 64) for name in dims])))


@pytest.mark.parametrize(
    ("shapes", "free"),
    [
        ([("T", "S", "N")], ""),
        ([("T - S",)], "TN"),
        ([("T - S", "S")], "N"),
        ([("T - S", "T + S")], "TN"),
        ([("T//2",), ("T + S",)], "TN"),
        ([("T*T", "2*T")], "SN"),
        ([("T*T",)], "TSN"),
        ([("S*T", "N - T")], "T"),
        ([("N + S + T", "N + S", "N")], ""),
        ([("max(T, S)", "S", "N")], "T"),
    ],
)
def test_sizes_that_no_shape_tells_are_given_by_name(
    shapes: list[tuple[str, ...]], free: str
) -> None:
    assert "".join(binder(*shapes).free) == free


@pytest.mark.parametrize(
    ("shape", "have", "given", "found"),
    [
        (("T - S",), (4,), {"T": 7}, {"T": 7, "S": 3}),
        (("T*T", "2*T"), (9, 6), {"S": 1}, {"T": 3, "S": 1}),
        (("T//2", "T + S"), (4, 12), {"T": 9}, {"T": 9, "S": 3}),
    ],
)
def test_one_size_given_by_name_tells_the_others(
    shape: tuple[str, ...], have: Shape, given: dict[str, int], found: dict[str, int]
) -> None:
    assert binder(shape, dims="TS").bind([have], given) == found


@pytest.mark.parametrize(
    ("shape", "have", "given", "said"),
    [
        (("T - S",), (4,), {}, "D0801]: f: the size T must be given\n   = help: write T=8"),
        (("T - S",), (4,), {"T": 4}, "S is 0 in x0, outside its bounds 1..64"),
        (("T*S",), (4,), {"T": 3}, "no value of S gives the inputs these shapes"),
        (("T//2", "S"), (4, 1), {"T": 7}, "where T//2 is 3 (T = 7)"),
    ],
)
def test_sizes_that_do_not_go_with_the_shapes_are_refused(
    shape: tuple[str, ...], have: Shape, given: dict[str, int], said: str
) -> None:
    with pytest.raises(CallError) as caught:
        binder(shape, dims="TS").bind([have], given)
    assert said in str(caught.value)


def test_a_difference_of_sizes_as_the_only_input_is_called_with_one_of_them() -> None:
    model = dlc.compile(
        text="dlc 1\ndim T = 1..64, S = 1..64\n"
        "export fn f(x: f32[T - S]) -> f32[T] = concat([x, zeros([S])], axis=0)"
    )
    x = np.array([1, 2, 3], np.float32)
    np.testing.assert_array_equal(np.asarray(model["f"](x, T=5)), [1, 2, 3, 0, 0])
    with pytest.raises(CallError, match="the size T must be given"):
        model["f"](x)
