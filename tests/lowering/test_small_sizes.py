"""Parts that a tensor of a small size does not have: nothing outside of it is ever read."""

from __future__ import annotations

import numpy as np
import pytest

import dlc
from dlc.cli.values import bounds
from dlc.driver.run.calls import CallRequest
from dlc.driver.run.interpret import evaluate_entry
from dlc.driver.run.request import CompileRequest
from dlc.errors import CallError, ModelError
from tests.suites import every

PARTS = {
    "x[5]": 6,
    "x[-5]": 5,
    "x[T - 5]": 5,
    "sum(x[1:6:2])": 6,
    "sum(x[::-1][4:6])": 6,
    "top_k(x, 5).values[4]": 5,
}
"""Parts of `x: f32[T]`, and how large T must be."""


def text_of(result: str) -> str:
    return f"dlc 1\ndim T\nexport fn f(x: f32[T]) -> f32 =\n  {result}\n"


@pytest.mark.parametrize("level", every(2, [0, 2]))
@pytest.mark.parametrize("part", PARTS)
def test_a_call_fails_where_the_part_begins_in_the_text(part: str, level: int) -> None:
    model = dlc.compile(text=text_of(part), level=level)
    enough = PARTS[part]
    with pytest.raises(CallError, match=r"D0807\]: f: .*(.|\n)*model\.dlm:4"):
        model["f"](np.ones(enough - 1, np.float32))
    assert model["f"](np.ones(enough, np.float32)) in (1, 2, 3)


@pytest.mark.parametrize("part", PARTS)
def test_the_evaluator_refuses_what_machine_code_refuses(part: str) -> None:
    wanted = CompileRequest("f.dlm", text=text_of(part))
    with pytest.raises(CallError):
        evaluate_entry(wanted.open(), CallRequest("f.dlm", inputs={"x": "[1, 2, 3, 4]"}))


@pytest.mark.parametrize("level", [0, 2])
def test_a_part_whose_size_another_input_decides(level: int) -> None:
    model = dlc.compile(
        text="dlc 1\ndim T\ndim S\n"
        "export fn first(x: f32[T], y: f32[S]) -> f32[S] = x[:S] + y\n"
        "export fn rest(x: f32[T], y: f32[S]) -> f32 = sum(sort(x[S:])) + sum(y)\n",
        level=level,
    )
    three, five = np.ones(3, np.float32), np.ones(5, np.float32)
    assert np.asarray(model["first"](five, three)).tolist() == [2, 2, 2]
    assert model["rest"](five, three) == 5
    with pytest.raises(CallError, match="D0807"):
        model["first"](three, five)
    with pytest.raises(CallError, match="D0804"):
        model["rest"](three, five)


@pytest.mark.parametrize(
    ("dims", "result", "there_is_no", "way_out"),
    [
        ("T = 2..12", "sum(x[5:])", "f32[T - 5]: T - 5 is -3 where T is 2", "dim T = 5..12, or"),
        ("T", "sum(x[:-5])", "f32[T - 5]: T - 5 is -4 where T is 1", "dim T = 5.., or"),
        ("T", "sum(zeros([T - 3]))", "f32[T - 3]", 'dims={"T": (3, None)}'),
        (
            "T, S",
            "sum(zeros([T + S - 5]))",
            "is -3 where S is 1 and T is 1",
            "make the lower bounds",
        ),
        (
            "T",
            "sum(conv(x[new, :, new], ones([9, 1, 1]), stride=2))",
            "(T - 9)//2 + 1 is -3 where T is 1",
            "dim T = 7.., or",
        ),
    ],
)
def test_a_size_that_its_bounds_let_be_below_0_is_refused(
    dims: str, result: str, there_is_no: str, way_out: str
) -> None:
    with pytest.raises(ModelError) as caught:
        dlc.compile(text=text_of(result).replace("dim T", f"dim {dims}"))
    found = caught.value.diagnostics[0]
    assert found.code == "D0715"
    assert there_is_no in found.message
    assert found.place is not None
    assert found.place.line == 4
    assert way_out in str(found.help)


@pytest.mark.parametrize("way", [5, -5])
def test_what_rolls_farther_than_its_axis_is_long_comes_round(way: int) -> None:
    model = dlc.compile(text=f"dlc 1\ndim T\nexport fn f(x: f32[T]) -> f32[T] = roll(x, {way})\n")
    for size in (1, 2, 5, 7):
        x = np.arange(size, dtype=np.float32)
        assert np.asarray(model["f"](x)).tolist() == np.roll(x, way).tolist()


def test_of_many_sizes_below_0_the_one_that_needs_most_is_told_with_a_way_out_that_works() -> None:
    text = "dlc 1\ndim T, S\nexport fn f(x: f32[T], y: f32[S]) -> f32 = "
    text += " + ".join([f"sum(x[{k}:])" for k in (3, 7, 5)] + ["sum(y[2:])"])
    with pytest.raises(ModelError) as caught:
        dlc.compile(text=text)
    said = [(found.code, found.help) for found in caught.value.diagnostics]
    assert said == [
        ("D0715", f'write dim {name} = {low}.., or compile with dims={{"{name}": ({low}, None)}}')
        for name, low in (("T", 7), ("S", 2))
    ]
    model = dlc.compile(text=text, dims={"T": (7, None), **bounds(["S=2.."])})
    x = np.arange(2000, dtype=np.float32)
    assert model["f"](x, x) == 4 * x.sum() - 3 - 21 - 10 - 1


@pytest.mark.parametrize("way", ["3", "-3", "S"])
def test_what_has_perhaps_no_elements_rolls(way: str) -> None:
    rolled = f"fn g(x: f32[T], y: f32[S]) -> f32[T] = roll(x, {way})\n"
    text = f"dlc 1\ndim T = 0..64\ndim S = 0..64\n{rolled}"
    model = dlc.compile(text=f"{text}export fn f(x: f32[T], y: f32[S]) -> f32[T] = g(x, y)")
    for size in (0, 1, 2, 3, 5):
        x = np.arange(size, dtype=np.float32)
        found = np.asarray(model["f"](x, np.ones(3, np.float32)))
        assert found.tolist() == np.roll(x, 3 if way == "S" else int(way)).tolist()


def test_narrower_bounds_of_a_compilation_make_room() -> None:
    model = dlc.compile(text=text_of("sum(x[5:])"), dims={"T": (5, 64)})
    assert model["f"](np.ones(5, np.float32)) == 0
    assert model["f"](np.ones(7, np.float32)) == 2


@pytest.mark.parametrize("padding", ["[(0, 3), (0, 0)]", "[(2, 0), (0, 0)]", "[(0, 0), (1, 2)]"])
def test_rows_beside_a_picture_are_zeros_for_all_taps_of_a_window(padding: str) -> None:
    text = (
        "dlc 1\nmodule M { param w: f32[5, 3, 48, 8] = normal(0.1)\n"
        "export fn f(x: f32[2, 8, 16, 48]) -> f32 =\n"
        f"  sum(abs(conv(x, w, stride=3, padding={padding}))) }}\n"
    )
    x = np.linspace(-1, 1, 2 * 8 * 16 * 48, dtype=np.float32).reshape(2, 8, 16, 48)
    plain, panels = (
        dlc.compile(text=text, level=level, matmul="generated")["f"](x) for level in (0, 2)
    )
    np.testing.assert_allclose(np.asarray(panels), np.asarray(plain), rtol=1e-4)
