"""einsum against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.dialects import array
from dlc.dialects.func import Return
from dlc.errors import ModelError
from dlc.ir.core import Block, Builder, Evaluation
from dlc.ir.dims import Shape, symbol
from dlc.ir.types import F64, TensorType
from tests.op_examples.example import HERE, Numbers
from tests.suites import together

SIZES = {letter: size for size, letter in enumerate("ijkbhd", 2)}


def build(equation: str, shapes: list[Shape]) -> Block:
    block = Block([TensorType(F64, shape) for shape in shapes])
    emit = Builder(block, HERE)
    emit.place(Return((array.einsum(emit, equation, block.arguments),)))
    return block


def run(block: Block, arrays: list[Numbers]) -> Numbers:
    (result,) = Evaluation().run(block, arrays)
    return result


@together(
    "equation",
    [
        "ij,jk->ik",
        "ij,jk",
        "ji,jk -> ki",
        "i,j->ij",
        "ij,ij->ij",
        "ij,ij->",
        "ij->ji",
        "ij->",
        "ij->j",
        "ii->i",
        "ii",
        "iji,j->j",
        "bhid,bhjd->bhij",
        "bhij,bhjd->bihd",
        "ij,jk,kb->ib",
        "ij,jk,k->i",
        "bij,bjk,bk->bi",
        "ij,kb->ik",
    ],
)
def test_it_is_numpys(equation: str) -> None:
    parts = equation.replace(" ", "").split("->")[0].split(",")
    shapes = [tuple(SIZES[letter] for letter in part) for part in parts]
    arrays = [np.random.default_rng(len(shape)).normal(size=shape) for shape in shapes]
    found = run(build(equation, list(shapes)), arrays)
    np.testing.assert_allclose(found, np.einsum(equation, *arrays), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("...ij,...jk->...ik", [(4, 2, 3), (4, 3, 2)]),
        ("...ij,...jk->...ik", [(4, 1, 2, 3), (5, 3, 2)]),
        ("...ii->...i", [(2, 3, 3)]),
        ("...i->...", [(2, 3)]),
        ("i...,...i", [(2, 3), (3, 2)]),
    ],
)
def test_dots_are_any_axes_aligned_at_the_right(
    equation: str, shapes: list[tuple[int, ...]]
) -> None:
    arrays = [np.random.default_rng(k).normal(size=shape) for k, shape in enumerate(shapes)]
    expected = np.einsum(equation, *arrays)
    for spelling in (equation, equation.replace("...", "..")):
        found = run(build(spelling, list(shapes)), arrays)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_sizes_may_be_symbolic() -> None:
    t = symbol("T")
    block = build("bid,bjd->bij", [(2, t, 3), (2, t, 3)])
    (value,) = block.terminator.operands
    assert value.type is TensorType(F64, (2, t, t))


@pytest.mark.parametrize(
    ("equation", "shapes", "says"),
    [
        ("ij,jk>ik", [(2, 3), (3, 4)], "it is not of the form"),
        ("ij,jk->ik", [(2, 3)], "it is about 2 tensors, found 1"),
        ("ij,jk->ik", [(2, 3), (4, 4)], "'j' is 3 in one tensor, 4 in another"),
        ("ij->ik", [(2, 3)], "must name axes of the operands"),
        ("ij->ii", [(2, 3)], "each once"),
        ("ij->i", [(2, 3, 4)], "'ij' does not name the axes of f64[2, 3, 4]"),
        ("ii->i", [(2, 3)], "whose sizes differ"),
    ],
)
def test_a_wrong_equation_says_why(equation: str, shapes: list[Shape], says: str) -> None:
    with pytest.raises(ModelError, match="D0311") as caught:
        build(equation, shapes)
    assert says in str(caught.value)
