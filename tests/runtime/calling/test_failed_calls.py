"""A call that fails leaves every array of the caller as it was."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Mapping
from types import FrameType
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.errors import CallError
from dlc.runtime.calling.dim_binding import DimBinder
from tests.suites import each_value, every

HEAD = "dlc 1\ndim S = 1..64, T = 1..64, N = 1..9\n"

Arrays = Mapping[str, NDArray[np.generic]]


class Case(NamedTuple):
    """An entry point `f` with arguments of which some are wrong, and right ones in their place."""

    text: str
    wrong: Arrays
    right: Arrays


def ints(*values: int) -> NDArray[np.int32]:
    return np.array(values, np.int32)


def one(value: int) -> NDArray[np.int32]:
    return np.array(value, np.int32)


ROW, ROWS, CACHE = (
    np.ones(4, np.float32),
    np.ones((3, 4), np.float32),
    np.arange(12, dtype=np.float32).reshape(3, 4),
)

CASES = {
    "a row of a cache that is full": Case(
        """export fn f(row: f32[4], p: i32, inout cache: f32[S, 4], inout n: i32) -> f32[4] {
  set cache = update(cache, row, at=[p])
  set n = n + 1
  return 2 * row
}""",
        {"row": ROW, "p": one(7), "cache": CACHE, "n": one(0)},
        {"p": one(2)},
    ),
    "a counter beside a gather": Case(
        """export fn f(x: f32[4], p: i32, inout n: i32) -> f32 {
  set n = n + 1
  return x[p]
}""",
        {"x": ROW, "p": one(7), "n": one(0)},
        {"p": one(2)},
    ),
    "a place that the call changes": Case(
        """export fn f(row: f32[4], inout cache: f32[S, 4], inout n: i32) -> f32[4] {
  set cache = update(cache, row, at=[n])
  set n = n + 1
  return 2 * row
}""",
        {"row": ROW, "cache": CACHE, "n": one(3)},
        {"n": one(1)},
    ),
    "rows of which the last leave the cache": Case(
        """export fn f(rows: f32[T, 4], p: i32, inout cache: f32[S, 4]) -> f32 {
  set cache = update(cache, rows, at=[p + arange(T)])
  return sum(rows)
}""",
        {"rows": ROWS[:2], "p": one(2), "cache": CACHE},
        {"p": one(1)},
    ),
    "a scatter": Case(
        """export fn f(rows: f32[T, 4], at: i32[T], inout cache: f32[S, 4]) -> f32 {
  set cache = scatter_add(cache, at, rows)
  return sum(rows)
}""",
        {"rows": ROWS[:2], "at": ints(1, 3), "cache": CACHE},
        {"at": ints(1, 2)},
    ),
    "an index that a product computes": Case(
        """export fn f(row: f32[4], w: f32[4, 4], p: i32, inout cache: f32[S, 4]) -> f32[4] {
  set cache = update(cache, row, at=[p])
  return row[i32(row @ w)]
}""",
        {"row": ROW, "w": np.full((4, 4), 9, np.float32), "p": one(1), "cache": CACHE},
        {"w": np.zeros((4, 4), np.float32)},
    ),
    "a place that a loop counts up": Case(
        """export fn f(rows: f32[T, 4], p: i32, inout cache: f32[S, 4], inout n: i32) -> f32 {
  let (last, end) = scan row in rows with c = cache, q = p {
    next c = update(c, row, at=[q])
    next q = q + 1
  }
  set cache = last
  set n = end
  return sum(rows)
}""",
        {"rows": ROWS, "p": one(1), "cache": CACHE, "n": one(0)},
        {"p": one(0)},
    ),
    "a stack of caches": Case(
        """export fn f(row: f32[4], p: i32, inout caches: f32[5, S, 4]) -> f32 {
  let (y, new) = scan c in caches with h = row {
    next h = 0.5 * h
    yield update(c, h, at=[p])
  }
  set caches = new
  return sum(y)
}""",
        {"row": ROW, "p": one(3), "caches": np.zeros((5, 3, 4), np.float32)},
        {"p": one(2)},
    ),
    "a stack of caches that may be empty": Case(
        """export fn f(row: f32[4], ps: i32[N], inout caches: f32[N, S, 4]) -> f32 {
  let (y, new) = scan (c, p) in (caches, ps) with h = row {
    next h = 0.5 * h
    yield update(c, h, at=[p])
  }
  set caches = new
  return sum(y)
}""",
        {"row": ROW, "ps": ints(0, 1, 3), "caches": np.zeros((3, 3, 4), np.float32)},
        {"ps": ints(0, 1, 2)},
    ),
    "a branch": Case(
        """export fn f(row: f32[4], p: i32, inout cache: f32[S, 4], inout n: i32) -> f32 {
  let y = if p >= 0 then row[p] else 0
  set n = n + 1
  set cache = cache + y
  return y
}""",
        {"row": ROW, "p": one(5), "cache": CACHE, "n": one(0)},
        {"p": one(-3)},
    ),
    "a while": Case(
        """export fn f(row: f32[4], p: i32, inout cache: f32[S, 4]) -> f32 {
  let (q, c) = while q > 0 with q = p, c = cache limit 4 {
    next q = q - 1
    next c = update(c, row, at=[q])
  }
  set cache = c
  return sum(row)
}""",
        {"row": ROW, "p": one(4), "cache": CACHE},
        {"p": one(2)},
    ),
    "the condition of a while": Case(
        """export fn f(row: f32[4], p: i32, inout cache: f32[S, 4]) -> f32 {
  let (q, c) = while q < 3 and row[q] > 0 with q = p, c = cache limit 4 {
    next q = q + 1
    next c = 2 * c
  }
  set cache = c
  return sum(row)
}""",
        {"row": ROW, "p": one(-1), "cache": CACHE},
        {"p": one(1)},
    ),
    "the limit of a while": Case(
        """export fn f(row: f32[4], p: i32, inout cache: f32[S, 4]) -> f32 {
  let (q, c) = while q > 0 with q = p, c = cache limit 4 {
    next q = q - 1
    next c = c + row
  }
  set cache = c
  return sum(row)
}""",
        {"row": ROW, "p": one(5), "cache": CACHE},
        {"p": one(3)},
    ),
    "the bound of a computed size": Case(
        """export fn f(mask: bool[6], inout n: i32) -> f32 {
  let (_, count) = nonzero(mask, bound=2)
  set n = n + 1
  return f32(count)
}""",
        {"mask": np.ones(6, np.bool_), "n": one(0)},
        {"mask": np.arange(6) == 1},
    ),
}


@pytest.mark.parametrize(("name", "level", "threads"), each_value(CASES, [2, 0], [2, 1]))
def test_a_call_that_fails_changes_nothing(name: str, level: int, threads: int) -> None:
    text, wrong, right = CASES[name]
    model = dlc.compile(text=HEAD + text, level=level, threads=threads, verify_each=True)
    passed = {key: value.copy() for key, value in wrong.items()}
    with pytest.raises(CallError):
        model.f(**passed)
    assert all(np.array_equal(passed[key], wrong[key]) for key in wrong)
    before = {**wrong, **right}
    passed = {key: value.copy() for key, value in before.items()}
    model.f(**passed)
    assert any(not np.array_equal(passed[key], before[key]) for key in before)


@pytest.mark.parametrize("name", every(2, CASES))
def test_only_what_is_decided_late_keeps_an_update_from_its_place(name: str) -> None:
    request = CompileRequest("case.dlm", text=HEAD + CASES[name].text)
    notes = make_artifact(request).report.notes
    late = name == "the bound of a computed size"
    assert any("the call may fail after that" in note for note in notes) == late


TRAINED = """dlc 1
dim B = 1..64
module Words() {
  param table: f32[7, 3] = normal(0.1)
  param w: f32[3, 4] = normal(0.1)
  fn call(ids: i32[B]) -> f32[B, 4] = table[ids] @ w
}
train Words {
  data = npz("words.npz", ids="ids", label="label")
  loss(ids: i32[B], label: i32[B]) = mean(cross_entropy(call(ids), label))
  optimizer = adam(lr=0.1)
  batch = 4
  epochs = 1
}
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_a_step_of_training_that_fails_changes_no_weight(threads: int) -> None:
    trainer = dlc.trainer(text=TRAINED, threads=threads)
    before = {name: np.array(array) for name, array in trainer.weights.items()}
    for ids, label in (((0, 1, 2, 7), (0, 1, 2, 3)), ((0, 1, 2, 6), (0, 9, 0, 0))):
        with pytest.raises(CallError, match="out of range"):
            trainer.step(ids=ints(*ids), label=ints(*label))
    assert trainer.steps == 0
    for name, array in trainer.weights.items():
        assert np.array_equal(np.array(array), before[name]), name
    trainer.step(ids=ints(0, 1, 2, 6), label=ints(0, 1, 2, 3))
    assert any(not np.array_equal(np.array(a), before[name]) for name, a in trainer.weights.items())


def test_a_cancelled_call_has_changed_nothing_or_all() -> None:
    model = dlc.compile(
        text=HEAD
        + """export fn f(x: f32[64, 64], inout n: f32[64, 64], inout m: f32[64, 64]) -> f32 {
  let y = scan i in 0..200 with h = x { next h = 0.1 * h @ x }
  let z = scan i in 0..200 with h = n { next h = 0.1 * h @ x + 1 }
  set n = z
  set m = m + 1
  return sum(y)
}""",
        threads=1,
    )
    outcomes = set[tuple[bool, bool]]()
    for number in range(30):
        x, n, m = (np.zeros((64, 64), np.float32) for _ in range(3))
        timer = threading.Timer(number * 7e-4, model.cancel)
        timer.start()
        cancelled = False
        try:
            model.f(x, n, m)
        except CallError as error:
            cancelled = error.diagnostics[0].code == "D0809"
        timer.join()
        changed = bool(n.any()), bool(m.any())
        assert changed == ((False, False) if cancelled else (True, True))
        outcomes.add(changed)
    assert outcomes


def message(model: dlc.Model, *arguments: NDArray[np.generic]) -> str:
    with pytest.raises(CallError) as caught:
        model.f(*arguments)
    return str(caught.value)


@pytest.mark.parametrize("level", [0, 2])
def test_a_slice_that_leaves_its_axis_is_told_with_its_start_and_the_size(level: int) -> None:
    model = dlc.compile(
        text=HEAD
        + """export fn f(x: f32[S, 4], rows: f32[T, 4], p: i32) -> f32[S, 4] =
  update(x, rows, at=[p + arange(T)])
""",
        level=level,
    )
    for start in (2, -1):
        told = message(model, CACHE, ROWS[:2], one(start))
        assert f"the slice from index {start} on leaves its axis of size 3" in told


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize(
    "text",
    [
        "export fn f(x: f32[S, 4], i: u64) -> f32[4] = x[i]",
        "export fn f(x: f32[S, 4], i: u64) -> f32[1, 4] = x[[i, ]]",
        "export fn f(x: f32[S, 4], i: u64) -> f32[S, 4] = update(x, 1, at=[i])",
        "export fn f(x: f32[S, 4], i: u64) -> f32[S, 4] = scatter_add(x, stack([i]), 1)",
    ],
)
def test_an_index_beyond_i64_is_not_told_as_a_negative_one(text: str, level: int) -> None:
    model = dlc.compile(text=HEAD + text, level=level)
    told = message(model, CACHE, np.array((1 << 64) - 1, np.uint64))
    assert "9223372036854775807 or more is out of range for an axis of size 3" in told
    assert "counts from the end" not in told
    model.f(CACHE, np.array(2, np.uint64))


def test_arguments_of_ctc_that_are_no_places_are_errors_where_it_is_called() -> None:
    model = dlc.compile(
        text="""dlc 1
import nn (ctc)
export fn f(x: f32[2, 5, 4], y: i32[2, 3], times: i32[2], lengths: i32[2]) -> f32 =
  ctc(x, y, times, lengths)
"""
    )
    x, y = np.zeros((2, 5, 4), np.float32), np.ones((2, 3), np.int32)
    assert np.isfinite(np.asarray(model.f(x, y, ints(5, 1), ints(3, 1))))
    for times in (0, 6, -1):
        told = message(model, x, y, ints(5, times), ints(3, 1))
        assert "model.dlm:4:3" in told
        assert "an argument of ctc" in told
        assert f"index {times - 1} is out of range for an axis of size 5" in told
    for labels, lengths in ((y + 3, ints(3, 1)), (y, ints(4, 1))):
        assert "an argument of ctc" in message(model, x, labels, ints(5, 5), lengths)


NESTED = """
export fn f(x: f32[T, 4], ps: i32[T], q: i32, inout cache: f32[S, 4], inout n: i32) -> f32 {
  let c1 = scan (row, p) in (x, ps) with c = cache {
    next c = if p >= 0 then {
      let inner = scan i in 0..2 with d = c { next d = update(d, row + f32(i), at=[p + i * q]) }
      return inner
    } else c
  }
  let (k, c2) = while k < 3 with k = 0, c = c1 limit 5 {
    next k = k + 1
    next c = update(c, c[k], at=[q + k])
  }
  set cache = c2
  set n = n + sum(ps)
  return sum(c2)
}
"""


def nested(
    x: NDArray[np.float32], ps: NDArray[np.int32], q: int, cache: NDArray[np.float32]
) -> bool:
    """What `NESTED` does to the cache; False where an index is out of range."""
    size = len(cache)
    for row, p in zip(x, ps.tolist(), strict=True):
        for i in range(2 if p >= 0 else 0):
            if not 0 <= p + i * q < size:
                return False
            cache[p + i * q] = row + i
    for k in range(3):
        if not 0 <= q + k < size or k >= size:
            return False
        cache[q + k] = cache[k]
    return True


@pytest.mark.parametrize(("level", "threads"), [(0, 1), (2, 2)])
def test_loops_and_branches_in_each_other_change_all_or_nothing(level: int, threads: int) -> None:
    model = dlc.compile(text=HEAD + NESTED, level=level, threads=threads)
    random = np.random.default_rng(0)
    outcomes = [0, 0]
    for _ in range(100):
        size, steps = (int(random.integers(3, 7)), int(random.integers(1, 4)))
        ps = random.integers(-2, size, steps).astype(np.int32)
        q, x = int(random.integers(-1, 4)), random.standard_normal((steps, 4), np.float32)
        before = np.arange(4 * size, dtype=np.float32).reshape(size, 4)
        wanted, cache, n = before.copy(), before.copy(), one(5)
        fits = nested(x, ps, q, wanted)
        if fits:
            model.f(x, ps, q, cache, n)
        else:
            with pytest.raises(CallError, match="D0807"):
                model.f(x, ps, q, cache, n)
        assert np.array_equal(cache, wanted if fits else before)
        assert n == (5 + ps.sum() if fits else 5)
        outcomes[fits] += 1
    assert min(outcomes) > 10


def test_sizes_that_conflict_are_refused_by_few_functions() -> None:
    """A count, because times vary: the first refused call of a process takes 2 µs for each of them."""
    model = dlc.compile(
        text=f"{HEAD}export fn f(x: f32[N, 4], y: f32[N, 5]) -> f32[N, 9] = concat([x, y], axis=1)"
    )
    x, y = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)
    called: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.append(frame.f_code.co_qualname)

    entry = model["f"]
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        with pytest.raises(CallError, match="N is 3 in x but 4 in y"):
            entry(x, y)
    finally:
        sys.setprofile(before)
    begin, end = called.index("EntryPoint.__call__"), called.index("DlcError.__init__")
    assert end - begin <= 12, called


REQUIRED = """dlc 1
dim H = 1..64
export fn f(x: f32[H]) -> f32[H] {
  require H % 16 == 0
  return 2 * x
}"""


def test_sizes_that_were_refused_once_are_refused_again_at_once_with_the_same_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = dlc.compile(text=REQUIRED)
    with pytest.raises(CallError, match="possible where H is 16") as first:
        model.f(np.ones(17, np.float32))

    def looked_for(*_: object) -> None:
        raise AssertionError("the reason is known")

    monkeypatch.setattr(DimBinder, "bind", looked_for)
    with pytest.raises(CallError) as second:
        model.f(np.zeros(17, np.float32))
    assert str(second.value) == str(first.value)
    with pytest.raises(AssertionError, match="is known"):
        model.f(np.ones(18, np.float32))


def test_a_refusal_keeps_none_of_the_callers_arrays() -> None:
    model = dlc.compile(text=REQUIRED)
    x = np.ones(17, np.float32)
    held = weakref.ref(x)
    with pytest.raises(CallError):
        model.f(x)
    del x
    gc.collect()
    assert held() is None
