"""`update(x, at=[...], v)`: a place is written like an index, wherever the value stands."""

from __future__ import annotations

import numpy as np
import pytest

import dlc
from dlc.errors import ModelError
from dlc.frontend.elaborate import elaborate
from dlc.text.model.fmt import format_source
from tests.suites import every

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize(
    ("place", "where"),
    [
        ("[0]", np.s_[0]),
        ("[0, ..]", np.s_[0, ...]),
        ("[.., 1]", np.s_[..., 1]),
        ("[1, :]", np.s_[1, :]),
        ("[:, 1:3]", np.s_[:, 1:3]),
        ("[1, 2]", np.s_[1, 2]),
        ("[::2, -1]", np.s_[::2, -1]),
    ],
)
@pytest.mark.parametrize("call", every(2, ["update(x, at=PLACE, 9)", "update(x, 9, at=PLACE)"]))
def test_the_value_is_put_where_the_index_says(call: str, place: str, where: slice) -> None:
    text = f"dlc 1\nexport fn f(x: f32[3, 4]) -> f32[3, 4] = {call.replace('PLACE', place)}\n"
    wanted = X.copy()
    wanted[where] = 9
    assert np.asarray(dlc.compile(text=text).entry_points["f"](X)).tolist() == wanted.tolist()
    assert format_source(text, "f.dlm") == text


def test_a_list_behind_at_is_a_list_for_other_functions() -> None:
    text = "dlc 1\nfn g(x: f32, at: f32[2]) = x + sum(at)\nexport fn f() -> f32 = g(1, at=[2, 3])\n"
    assert dlc.compile(text=text).entry_points["f"]() == 6


def test_a_place_is_no_value() -> None:
    text = "dlc 1\nfn g(x, at) = x\nexport fn f(x: f32) -> f32 = g(x, at=[0, ..])\n"
    with pytest.raises(ModelError, match="D0320"):
        elaborate("f.dlm", text=text)


ROWS = np.asarray([[2, 0, 2], [1, 1, 0]])
COLUMNS = np.asarray([1, 3, 1])


@pytest.mark.parametrize(
    ("place", "where", "shape"),
    [
        ("[i, j]", np.s_[ROWS, COLUMNS], (2, 3)),
        ("[i]", np.s_[ROWS], (2, 3, 4)),
        ("[i, ..]", np.s_[ROWS], (4,)),
        ("[.., j]", np.s_[:, COLUMNS], (3, 3)),
        ("[1:, j]", np.s_[1:, COLUMNS], (2, 3)),
        ("[1, j]", np.s_[1, COLUMNS], (3,)),
    ],
)
@pytest.mark.parametrize(
    ("mode", "combine"),
    [("add", np.add), ("multiply", np.multiply), ("max", np.maximum), ("min", np.minimum)],
)
def test_values_meet_where_index_tensors_name_a_place_twice(
    place: str, where: slice, shape: tuple[int, ...], mode: str, combine: np.ufunc
) -> None:
    """The places are those of NumPy's index, combined with `ufunc.at`."""
    sizes = ", ".join(map(str, shape))
    head = f"export fn f(x: f32[3, 4], i: i64[2, 3], j: i32[3], v: f32[{sizes}]) -> f32[3, 4]"
    text = f'dlc 1\n{head} = update(x, v, at={place}, mode="{mode}")\n'
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 4
    wanted = X.copy()
    places = np.arange(12).reshape(3, 4)[where]
    combine.at(wanted.reshape(-1), places, np.broadcast_to(values, places.shape))
    got = dlc.compile(text=text).entry_points["f"](X, ROWS, COLUMNS.astype(np.int32), values)
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-5)


def test_the_last_value_of_a_place_stays() -> None:
    text = "dlc 1\nexport fn f(x: f32[3], i: i64[2, 2], v: f32[2, 2]) -> f32[3] = update(x, v, at=[i])\n"
    got = dlc.compile(text=text).entry_points["f"](
        np.zeros(3, np.float32),
        np.asarray([[0, 2], [2, 0]]),
        np.arange(4, dtype=np.float32)[::-1].reshape(2, 2),
    )
    assert np.asarray(got).tolist() == [0, 0, 1]


@pytest.mark.parametrize("mode", ['"sum"', "3"])
def test_an_update_of_another_mode_is_refused(mode: str) -> None:
    text = f"dlc 1\nexport fn f(x: f32[3]) -> f32[3] = update(x, 1, at=[0], mode={mode})\n"
    with pytest.raises(ModelError, match=r"(?s)D0208.*no mode .*set, add, multiply, max, min"):
        elaborate("f.dlm", text=text)


@pytest.mark.parametrize(
    ("place", "size", "fits"), [("[:, p]", "[2, 1]", "[2]"), ("[p, p]", "[1]", "[]")]
)
def test_a_value_with_more_axes_than_its_place_is_refused_with_what_fits(
    place: str, size: str, fits: str
) -> None:
    text = f"""dlc 1
export fn f(x: f32[2, 6], p: i32, v: f32{size}) -> f32[2, 6] = update(x, at={place}, v)
"""
    with pytest.raises(ModelError, match=r"D0301.*more axes than the place") as caught:
        elaborate("f.dlm", text=text)
    assert f"reshape(v, {fits})" in str(caught.value)
    elaborate("f.dlm", text=text.replace(", v)", f", reshape(v, {fits}))"))


CUBE = np.arange(2 * 4 * 5 * 3, dtype=np.float32).reshape(2, 4, 5, 3)


@pytest.mark.parametrize(
    ("place", "where"),
    [
        ("[:, p]", np.s_[:, 1]),
        ("[p, :, q]", np.s_[1, :, 3]),
        ("[p, .., 1:3]", np.s_[1, ..., 1:3]),
        ("[p, q, -1]", np.s_[1, 3, -1]),
        ("[p, ::2]", np.s_[1, ::2]),
        ("[:, p + arange(3)]", np.s_[:, 1:4]),
        ("[:, arange(3) + p, 2]", np.s_[:, 1:4, 2]),
        ("[:, p + arange(3), q]", np.s_[:, 1:4, 3]),
    ],
)
@pytest.mark.parametrize("mode", ["set", "add"])
def test_a_computed_place_takes_what_an_index_there_gives(
    place: str, where: slice, mode: str
) -> None:
    value = -CUBE[where]
    text = (
        "dlc 1\ndim S = 1..64\n"
        "export fn f(x: f32[2, S, 5, 3], p: i32, q: i32) -> f32[2, S, 5, 3] "
        f'= update(x, -x{place}, at={place}, mode="{mode}")\n'
    )
    wanted = CUBE.copy()
    wanted[where] = value if mode == "set" else wanted[where] + value
    found = dlc.compile(text=text).entry_points["f"](CUBE, np.int32(1), np.int32(3))
    assert np.asarray(found).tolist() == wanted.tolist()
