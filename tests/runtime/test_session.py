"""Sessions: the arrays that entry points change, held from call to call."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import pytest

import dlc
from dlc.errors import CallError, DlcError, ModelError, UsageError
from dlc.runtime.model import Model
from dlc.runtime.session import Session

TEXT = """dlc 1
dim S = 1..64, T = 1..8
export fn step(x: f32, p: i32, inout seen: f32[S], inout count: i32 = 3) -> f32 {
  let new = update(seen, x, at=[p])
  set seen = new
  set count = count + 1
  return sum(new)
}
export fn prefill(xs: f32[T], inout seen: f32[S]) -> f32[T] {
  set seen = update(seen, xs, at=[arange(T)])
  return 2 * xs
}
export fn narrow(x: bf16, inout h: bf16[4]) -> bf16[4] {
  set h = h + x
  return h
}
export fn plain(x: f32) -> f32 = x + 1
"""


@pytest.fixture(scope="module")
def model() -> Model:
    return dlc.compile(text=TEXT)


def stepped(session: Session, x: float, p: int) -> float:
    return float(cast(float, session.step(x, p)))


def test_calls_go_on_where_the_last_one_stopped(model: Model) -> None:
    session = model.session(S=8)
    assert [stepped(session, 1 + k, k) for k in range(3)] == [1, 3, 6]
    assert session.arrays["seen"].tolist() == [1, 2, 3, 0, 0, 0, 0, 0]
    assert session.arrays["count"].tolist() == 6


def test_entry_points_share_what_has_one_name(model: Model) -> None:
    session = model.session(S=4)
    assert np.asarray(session.prefill(np.ones(3, np.float32))).tolist() == [2, 2, 2]
    assert stepped(session, 5, 3) == 8
    assert session.plain(1.0) == 2


def test_arguments_go_by_name_too(model: Model) -> None:
    session = model.session(S=4)
    assert session.step(p=1, x=2.0) == 2
    assert session.step(3.0, p=2) == 5


def test_a_copy_goes_its_own_way(model: Model) -> None:
    session = model.session(S=4)
    stepped(session, 1, 0)
    other = session.copy()
    assert stepped(other, 1, 1) == stepped(session, 1, 1) == 2
    assert stepped(other, 5, 2) == 7
    assert stepped(session, 1, 2) == 3


def test_a_saved_session_is_loaded(model: Model, tmp_path: Path) -> None:
    session = model.session(S=4)
    session.narrow(dlc.Tensor(1.5, "bf16"))
    stepped(session, 1, 0)
    session.save(tmp_path / "s.safetensors")
    again, other = model.session(tmp_path / "s.safetensors"), model.session(S=9)
    other.load(tmp_path / "s.safetensors")
    for loaded in (again, other):
        assert loaded.arrays["h"].tolist() == [1.5] * 4
        assert stepped(loaded, 4, 1) == 5
    with pytest.raises(ModelError, match=r"D0504.*no array"):
        model.session(_saved_alone(tmp_path))


@pytest.mark.parametrize("name", ["s.npz", "s.bin", "model.dlm", "s", ".safetensors"])
def test_a_session_is_not_saved_under_a_name_that_it_could_not_be_loaded_by(
    model: Model, tmp_path: Path, name: str
) -> None:
    with pytest.raises(UsageError, match=r"D09(01|24)"):
        model.session(S=4).save(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_the_copy_module_copies_a_session_and_pickle_says_what_to_do(model: Model) -> None:
    session = model.session(S=4)
    stepped(session, 1, 0)
    for other in (copy.copy(session), copy.deepcopy(session)):
        assert stepped(other, 5, 2) == 6
    assert stepped(session, 1, 2) == 2
    with pytest.raises(UsageError, match=r"session\.save"):
        pickle.dumps(session)


def _saved_alone(folder: Path) -> Path:
    np.savez(folder / "alone.npz", seen=np.zeros(4, np.float32))
    return folder / "alone.npz"


def test_a_reset_session_has_the_first_values(model: Model) -> None:
    session = model.session(S=4)
    before = session.arrays["seen"]
    stepped(session, 1, 0)
    session.reset()
    assert session.arrays["count"].tolist() == 3
    assert session.arrays["seen"].tolist() == [0] * 4
    assert before.tolist() == [1, 0, 0, 0]


def test_given_arrays_are_used_as_they_are(model: Model) -> None:
    seen = np.zeros(5, np.float32)
    stepped(model.session(seen=seen), 2, 4)
    assert seen.tolist() == [0, 0, 0, 0, 2]


MISTAKES: list[tuple[Callable[[Model], object], str, str]] = [
    (lambda m: m.session(), "D0801", "the size S must be given"),
    (lambda m: m.session(S=65), "D0804", "S is 65, not 1..64"),
    (lambda m: m.session(S=4, sene=1), "D0801", "no array or size sene"),
    (lambda m: m.session(S=4, h=np.zeros((2, 2), np.float32)), "D0802", "h is f32"),
    (lambda m: m.session(seen=np.zeros((2, 2), np.float32)), "D0803", "has the shape"),
    (lambda m: m.session(seen=[1.0]), "D0820", "seen is a list"),
    (lambda m: m.session(S=4).step(1.0, 0, seen=1), "D0801", "seen belongs to the session"),
    (lambda m: m.session(S=4).step(1.0, 0, 0), "D0801", "3 arguments for x, p"),
    (lambda m: m.session(S=4).step(1.0, x=0), "D0801", "x is given twice"),
    (lambda m: m.session(S=4).step(1.0, 7), "D0807", "index 7"),
    (lambda m: m.session(S=4)["stpe"], "D0904", "no entry point 'stpe'"),
]


@pytest.mark.parametrize(("make", "code", "message"), MISTAKES)
def test_mistakes_are_told(
    model: Model, make: Callable[[Model], object], code: str, message: str
) -> None:
    with pytest.raises(DlcError, match=f"{code}.*{message}"):
        make(model)


def test_a_model_that_changes_nothing_has_no_session() -> None:
    plain = dlc.compile(text="dlc 1\nexport fn f(x: f32) -> f32 = x\n")
    with pytest.raises(UsageError, match=r"D0927.*no inout parameter"):
        plain.session()


def test_one_name_has_one_type() -> None:
    text = "export fn NAME(inout h: TYPE) -> f32 {\n  set h = 2 * h\n  return sum(h)\n}\n"
    both = [
        text.replace("NAME", n).replace("TYPE", t) for n, t in (("f", "f32[2]"), ("g", "f32[3]"))
    ]
    with pytest.raises(UsageError, match=r"D0927.*h is f32\[2\] in f and is f32\[3\] in g"):
        dlc.compile(text="dlc 1\n" + "".join(both)).session()


def test_two_calls_at_once_are_refused() -> None:
    text = (
        "dlc 1\nexport fn f(n: f32, inout h: f32) -> f32 {\n"
        "  let k = while x < n with x = 0.0 limit 100000000 { next x = x + 1 }\n"
        "  set h = h + k\n  return k\n}\n"
    )
    model = dlc.compile(text=text)
    session = model.session()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            session.f(1e7)
        except CallError as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Where the first ended before the second began, both were right.
    assert all("D0821" in str(error) for error in errors)
    assert len(errors) < 2


def test_a_misspelled_entry_point_is_no_attribute(model: Model) -> None:
    with pytest.raises(AttributeError, match="no entry point 'nothing'"):
        model.session(S=4).nothing(1)


def test_one_name_has_one_first_value() -> None:
    text = """dlc 1
export fn f(inout n: i32 = 1) -> i32 {
  set n = n + 1
  return n
}
export fn g(inout n: i32 = 2) -> i32 {
  set n = n + 1
  return n
}
"""
    with pytest.raises(UsageError, match=r"D0927.*n begins as 1 in f and begins as 2 in g"):
        dlc.compile(text=text).session()


def test_an_entry_point_that_only_reads_takes_the_array_of_its_name() -> None:
    text = """dlc 1
dim N = 1..9
export fn add(x: f32[N], inout total: f32[N]) -> f32 {
  set total = total + x
  return sum(x)
}
## How much there is in all, scaled.
export fn read(scale: f32, total: f32[N]) -> f32[N] = scale * total
"""
    session = dlc.compile(text=text).session(N=2)
    session.add(np.array([1, 2], np.float32))
    assert np.array_equal(np.asarray(session.read(2.0)), [2, 4])
    assert np.array_equal(np.asarray(session.read(scale=2.0)), [2, 4])
    assert np.array_equal(np.asarray(session.read(2.0, np.array([5, 5], np.float32))), [10, 10])


def test_an_array_of_a_session_is_written_not_replaced(model: Model) -> None:
    session = model.session(S=4)
    with pytest.raises(CallError, match=r"D0820.*(?s:.*)session.arrays\['seen'\]\[...\] = x"):
        session.arrays["seen"] = 1  # pyright: ignore[reportIndexIssue]
    session.arrays["seen"][...] = 1  # pyright: ignore[reportIndexIssue]
    assert np.array_equal(np.asarray(session.step(0, 3)), 3)
