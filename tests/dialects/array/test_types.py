"""What the array operations refuse when they are made, and when they are evaluated."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dlc.dialects import array, rng
from dlc.dialects.func import Return
from dlc.errors import CallError, ModelError
from dlc.errors.catalog import PAGES
from dlc.ir.core import Block, Builder, Evaluation, Op, Value
from dlc.ir.dims import Shape, symbol
from dlc.ir.types import BOOL, F32, F64, I32, I64, U8, U32, TensorType
from tests.op_examples.example import HERE, Build, Example, given
from tests.suites import together

B, T = symbol("B"), symbol("T")


def f32(*shape: int) -> TensorType:
    return TensorType(F32, shape)


def refusal(types: list[TensorType], build: Build) -> ModelError:
    """The error of an operation on values of these types."""
    with pytest.raises(ModelError) as caught:
        build(*Block(types).arguments)
    return caught.value


def window(x: Value, padding: int) -> Op:
    return array.ReduceWindow(x, "max", (2,), (1,), ((padding, padding),), (1,))


def convolution(x: Value, w: Value, groups: int = 1) -> Op:
    return array.Convolution(x, w, (1,), ((0, 0),), (1,), (1,), groups, "nwc")


WRONG: list[tuple[str, list[TensorType], Build, str]] = [
    ("D0301", [f32(2), f32(3)], array.Add, "found f32[2] and f32[3]"),
    ("D0301", [f32(2), TensorType(F64, (2,))], array.Add, "found f32[2] and f64[2]"),
    ("D0301", [f32(2, 3), f32(2, 3)], array.MatMul, "the inner sizes 3 and 2 differ"),
    ("D0301", [f32(2, 3), f32(3)], array.MatMul, "the leading axes must agree"),
    ("D0301", [f32(2)], lambda x: array.Compare(x, x, "less"), "'less' is not a predicate"),
    ("D0301", [f32(2), f32(2)], lambda c, x: array.Select(c, x, x), "the condition is f32[2]"),
    (
        "D0301",
        [f32(2), TensorType(I32)],
        lambda x, v: array.Pad(x, v, (0,), (0,), (0,)),
        "found i32",
    ),
    (
        "D0301",
        [f32(2, 3), f32(3, 2)],
        lambda x, y: array.DotGeneral(x, y, (), (), (0,), (0,)),
        "the sizes of the axes [0] of the one and [0] of the other differ",
    ),
    ("D0301", [f32(1, 4, 2), f32(2, 2)], convolution, "takes tensors of 3 axes"),
    ("D0302", [TensorType(I32)], array.Sin, "array.sin has no meaning for i32"),
    ("D0302", [TensorType(BOOL, (2,))], lambda x: array.ReduceSum(x, (0,)), "no meaning for bool"),
    ("D0302", [TensorType(F32, (2,))], lambda x: array.ShiftLeft(x, x), "no meaning for f32"),
    (
        "D0303",
        [f32(2, 3)],
        lambda x: array.Reshape(x, (4,)),
        "f32[2, 3] of 6 elements to f32[4] of 4",
    ),
    (
        "D0303",
        [TensorType(F32, (B, 3))],
        lambda x: array.Reshape(x, (B, 4)),
        "f32[B, 3] of 3*B elements to f32[B, 4] of 4*B",
    ),
    ("D0304", [f32(2)], lambda x: array.Broadcast(x, (3, 3), (0,)), "f32[2] to f32[3, 3]"),
    ("D0305", [f32(2, 3)], lambda x: array.ReduceSum(x, (2,)), "it has the axes 0 to 1"),
    ("D0305", [f32(2, 3)], lambda x: array.ReduceSum(x, (1, 0)), "[1, 0] are not axes"),
    ("D0305", [f32(2, 3)], lambda x: array.ArgMax(x, -1), "f32[2, 3] has no axis -1"),
    ("D0305", [f32(2, 3)], lambda x: array.Transpose(x, (0, 0)), "[0, 0] is not an order"),
    (
        "D0306",
        [f32(4)],
        lambda x: array.Slice(x, (1,), (5,), (1,)),
        "cannot take 1 to 5 of an axis of size 4",
    ),
    ("D0306", [f32(4)], lambda x: array.Slice(x, (3,), (1,), (1,)), "cannot take 3 to 1"),
    ("D0306", [f32(4)], lambda x: array.Slice(x, (0,), (4,), (-1,)), "is positive, found -1"),
    (
        "D0306",
        [TensorType(F32, (B,))],
        lambda x: array.Slice(x, (0,), (B + 1,), (1,)),
        "cannot take 0 to B + 1 of an axis of size B",
    ),
    (
        "D0306",
        [f32(2), f32()],
        lambda x, v: array.Pad(x, v, (-1,), (0,), (0,)),
        "cannot pad f32[2] by -1",
    ),
    ("D0306", [f32(3)], lambda x: array.TopK(x, 0, 4), "the best 4 of 3"),
    (
        "D0307",
        [f32(2, 3), f32(2, 4)],
        lambda x, y: array.Concatenate((x, y), 0),
        "f32[2, 4] along axis 0",
    ),
    ("D0307", [], lambda: array.Concatenate((), 0), "nothing to concatenate"),
    ("D0308", [f32(3), f32(2)], lambda x, i: array.Gather(x, (i,), (0,)), "found (f32[2])"),
    (
        "D0308",
        [f32(3, 3), TensorType(I32, (2,)), TensorType(I64, (2,))],
        lambda x, i, j: array.Gather(x, (i, j), (0, 1)),
        "found (i32[2], i64[2])",
    ),
    (
        "D0308",
        [f32(3), f32(3), TensorType(I32, (2,))],
        lambda x, u, i: array.Scatter(x, u, (i,), (0,)),
        "the updates are f32[3], the indexed places f32[2]",
    ),
    (
        "D0309",
        [f32(3), TensorType(I32)],
        lambda x, i: array.DynamicSlice(x, (i,), (1,)),
        "takes 1 starts, each an i64; found (i32)",
    ),
    ("D0310", [f32(0)], lambda x: array.ArgMax(x, 0), "nothing to choose from"),
    ("D0312", [f32(4)], lambda x: window(x, 2), "the padding 2, 2 is not less than the window"),
    ("D0312", [f32(1)], lambda x: window(x, 0), "does not fit into an axis of 1"),
    ("D0312", [f32(1, 2, 1), f32(3, 1, 1)], convolution, "reaches over 3 elements, axis 1"),
    ("D0313", [f32(1, 4, 3), f32(2, 2, 4)], convolution, "it has 3 channels, the kernel takes 2"),
    (
        "D0313",
        [f32(1, 4, 4), f32(2, 2, 3)],
        lambda x, w: convolution(x, w, 2),
        "in 2 groups",
    ),
    ("D0314", [TensorType(U32, (3,))], lambda key: rng.Bits(key, ()), "found u32[3]"),
    ("D0314", [TensorType(I32)], rng.Key, "a seed is one u64, found i32"),
]


@together(("code", "types", "build", "says"), WRONG)
def test_a_wrong_operation_says_what_disagrees(
    code: str, types: list[TensorType], build: Build, says: str
) -> None:
    (diagnostic,) = refusal(types, build).diagnostics
    assert diagnostic.code == code
    assert says in diagnostic.message


@pytest.mark.parametrize("code", sorted({code for code, *_ in WRONG}))
def test_each_code_has_a_page(code: str) -> None:
    assert PAGES[code].why


SYMBOLIC: list[tuple[Callable[[Value], Op], Shape, Shape]] = [
    (lambda x: array.Slice(x, (1, 0), (B, 3), (1, 2)), (B, 3), (B - 1, 2)),
    (lambda x: array.Slice(x, (0,), (B,), (2,)), (B,), ((B + 1) // 2,)),
    (lambda x: array.Concatenate((x, x), 0), (B, T), (2 * B, T)),
    (lambda x: array.Reshape(x, (B, 2 * T)), (2, B, T), (B, 2 * T)),
    (lambda x: array.Transpose(x, (1, 0)), (B, T), (T, B)),
    (lambda x: array.ReduceMax(x, (0,)), (B, T), (T,)),
    (
        lambda x: array.ReduceWindow(x, "sum", (3,), (2,), ((1, 1),), (1,)),
        (2 * B,),
        ((2 * B - 1) // 2 + 1,),
    ),
]


@pytest.mark.parametrize(("build", "shape", "expected"), SYMBOLIC)
def test_sizes_may_be_symbolic(build: Callable[[Value], Op], shape: Shape, expected: Shape) -> None:
    (x,) = Block([TensorType(F32, shape)]).arguments
    type = build(x).result.type
    assert isinstance(type, TensorType)
    assert type.shape == expected


def failure(example: Example) -> CallError:
    block, _ = example.block()
    with pytest.raises(CallError) as caught:
        example.run(block)
    return caught.value


X = given(F32, [1.0, 2.0, 3.0])


@pytest.mark.parametrize("index", [3, -1])
def test_an_index_outside_its_axis_fails_the_call(index: int) -> None:
    gather = Example(
        lambda x, i: array.Gather(x, (i,), (0,)), [X, given(I64, [0, index])], lambda x, i: x
    )
    scatter = Example(
        lambda x, u, i: array.Scatter(x, u, (i,), (0,)),
        [X, given(F32, [0.0]), given(I64, [index])],
        lambda x, u, i: x,
    )
    for example in (gather, scatter):
        (diagnostic,) = failure(example).diagnostics
        assert diagnostic.code == "D0807"
        assert diagnostic.message == f"the index {index} is out of range for an axis of size 3"


def test_unsigned_indices_are_not_taken_for_negative_ones() -> None:
    example = Example(lambda x, i: array.Gather(x, (i,), (0,)), [X, given(U8, 200)], lambda x, i: x)
    assert "index 200 is out of range" in str(failure(example))


@pytest.mark.parametrize("start", [-1, 2])
def test_a_part_that_begins_outside_fails_the_call(start: int) -> None:
    example = Example(
        lambda x, i: array.DynamicSlice(x, (i,), (2,)), [X, given(I64, start)], lambda x, i: x
    )
    assert failure(example).diagnostics[0].code == "D0807"


def test_a_named_size_that_makes_a_slice_impossible_fails_the_call() -> None:
    example = Example(
        lambda x: array.Slice(x, (2,), (B,), (1,)),
        [given(F32, [1.0], (B,))],
        lambda x: x,
        dims={"B": 1},
    )
    assert failure(example).diagnostics[0].code == "D0807"


def test_more_results_than_their_bound_fail_the_call() -> None:
    example = Example(lambda x: array.NonZero(x, "N", 2), [X], lambda x: x)
    (diagnostic,) = failure(example).diagnostics
    assert diagnostic.code == "D0810"
    assert diagnostic.message == "3 elements are not 0, there is storage for 2"


def test_the_largest_of_a_named_size_that_is_0_stands_nowhere() -> None:
    example = Example(
        lambda x: array.ArgMax(x, 0), [given(F32, [], (B,))], lambda x: x, dims={"B": 0}
    )
    assert failure(example).diagnostics[0].code == "D0807"


def test_compress_keeps_the_places_where_the_mask_is_true() -> None:
    x = np.arange(6.0).reshape(2, 3)
    block = Block([TensorType(F64, (2, 3)), TensorType(BOOL, (3,))])
    emit = Builder(block, HERE)
    taken, count = array.compress(emit, *block.arguments, axis=1, dim="N")
    emit.place(Return((taken, count)))
    values, number = Evaluation().run(block, [x, np.array([True, False, True])])
    np.testing.assert_array_equal(values, x[:, [0, 2]])
    assert number == 2
    assert isinstance(taken.type, TensorType)
    assert taken.type.shape == (2, symbol("N"))
