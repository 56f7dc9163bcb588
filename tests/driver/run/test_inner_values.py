"""Inner values of machine code: what is in memory is shown as it is, the rest is recomputed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.driver.compile.entries import interfaces
from dlc.driver.compile.settings import Settings
from dlc.driver.run.calls import CallRequest, call
from dlc.driver.run.inner_values import run_watched
from dlc.driver.run.request import CompileRequest, evaluate_model, make_here
from dlc.driver.run.results import Results
from dlc.driver.run.seen import Seen
from dlc.driver.run.statistics import statistics_of
from dlc.driver.run.watch import Watch
from dlc.errors import CallError, Unsupported, UsageError
from dlc.runtime.arrays.tensor import Tensor
from tests.example_models import FOLDER, NAMES, SMALLER
from tests.suites import every

EXAMPLES = [name for name in NAMES if name != "residual"]
"""Without that which has no entry point."""

LOOPS = """dlc 1
export fn f(x: f32[3, 4]) -> (y: f32[3, 4], z: f32[4]) {
  let (z, y) = scan row in x with s = zeros([4]) {
    let d = row * 2 + s
    let (_, e) = scan k in [1.0, 2.0] with c = 0.0 { next c = c + k  yield sum(d) * k }
    next s = tanh(d + sum(e))
    yield d
  }
  return (y = y, z = z)
}
"""


def observed(path: Path, *names: str, level: int = 2) -> tuple[Results, Watch]:
    request = CompileRequest(str(path), weights="init:0", settings=Settings(level))
    watch = Watch(names)
    results, _ = run_watched(request, CallRequest(str(path), seed=1), watch)
    return results, watch


def numbers(seen: Seen) -> NDArray[np.float64]:
    return seen.value.values().astype(np.float64)


@pytest.fixture
def loops(tmp_path: Path) -> Path:
    (tmp_path / "loops.dlm").write_text(LOOPS)
    return tmp_path / "loops.dlm"


@pytest.mark.parametrize("name", every(12, EXAMPLES))
def test_values_of_machine_code_are_those_of_the_text(name: str) -> None:
    """With rounding: each is compared with its evaluation, whether it was in memory or recomputed."""
    path = FOLDER / f"{name}.dlm"
    request = CompileRequest(str(path), weights="init:0", parameters=SMALLER.get(name, {}))
    for entry in [each.name for each in interfaces(request.open().module)]:
        asked = CallRequest(str(path), entry, seed=1)
        evaluated, watch = Watch(("all",)), Watch(("all",))
        evaluate_model(request, asked, evaluated)
        run_watched(request, asked, watch)
        assert watch.seen.keys() == evaluated.seen.keys()
        for value, seen in evaluated.seen.items():
            wanted, found = numbers(seen), numbers(watch.seen[value])
            most = np.abs(wanted[np.isfinite(wanted)]).max(initial=1e-3)
            np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4 * most, err_msg=value)


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_the_artifact_that_is_observed_has_the_code_and_results_of_a_usual_one(
    loops: Path, level: int
) -> None:
    results, _ = observed(loops, "all", level=level)
    request = CompileRequest(str(loops), settings=Settings(level))
    usual = dlc.Model(make_here(request).artifact)
    x = CallRequest(str(loops), seed=1).arguments([usual.f.entry]).named
    again = call(usual, CallRequest(str(loops), seed=1))
    for (_, one), (_, other) in zip(results.values, again.values, strict=True):
        assert one.bits.tobytes() == other.bits.tobytes()
    assert usual.f.values(["d"], **x)["d"].shape == (3, 4)  # refused where the code differs


def test_a_value_in_loops_has_all_steps(loops: Path) -> None:
    results, watch = observed(loops, "d", "e*", "c", "d[2]", "c[1]")
    seen, (y, _) = watch.seen, results.named.values()
    assert {name: each.loops for name, each in seen.items()} == {
        "d": (3,),
        "e": (3,),
        "c": (3, 2),
        "d[2]": (),
        "c[1]": (2,),
    }
    np.testing.assert_array_equal(seen["d"].value.bits, y.bits)
    np.testing.assert_array_equal(seen["d[2]"].value.bits, y.bits[2])
    np.testing.assert_array_equal(seen["c[1]"].value.bits, seen["c"].value.bits[1])


def test_a_fused_value_is_said_to_be_recomputed(tmp_path: Path) -> None:
    path = tmp_path / "fused.dlm"
    path.write_text(
        "dlc 1\nexport fn f(x: f32[64]) -> f32[64] {\n  let h = exp(x)\n  let k = h[1:]\n"
        "  return h * sum(k)\n}\n"
    )
    _, watch = observed(path, "all")
    assert watch.seen["x"].source == "machine code"
    _, plain = observed(path, "all", level=0)
    assert plain.seen["h"].source == "machine code"
    for name in ("h", "k"):
        np.testing.assert_allclose(numbers(watch.seen[name]), numbers(plain.seen[name]), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dd", "no value of the call is called dd"),
        ("q*", r"no value of the call is called q\*"),
        ("d[3]", r"d is computed in 3 steps, counted from 0: there is no d\[3\]"),
        ("x[0]", r"x is in no loop: there is no x\[0\]"),
    ],
)
def test_a_value_or_a_step_that_there_is_not_is_told(loops: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        _ = observed(loops, name)[1].seen
    assert caught.value.diagnostics[0].code == "D0911"


def test_the_first_nan_is_found_with_its_step_and_line(tmp_path: Path) -> None:
    path = tmp_path / "nan.dlm"
    path.write_text(
        "dlc 1\nexport fn f(x: f32[4] = [4, 1, 0, -1]) -> f32[4] {\n"
        "  let (_, r) = scan v in x with s = 0.0 {\n    let root = sqrt(v - 0.5)\n"
        "    next s = s + root\n    yield s\n  }\n  return r\n}\n"
    )
    watch = Watch(("all",))
    run_watched(CompileRequest(str(path)), CallRequest(str(path)), watch)
    assert watch.first == {"NaN": ("root", 2)}
    assert watch.known["root"].endswith("nan.dlm:4:16")


def test_values_from_python_are_arrays_and_leave_what_a_call_changes(tmp_path: Path) -> None:
    text = """dlc 1
export fn f(inout total: f32[2], x: f32[2]) -> f32[2] {
  set total = total + x
  let h = (total + x) * 2
  return h + 1
}
"""
    model = dlc.compile(text=text)
    total, x = np.ones(2, np.float32), np.array([1, 2], np.float32)
    values = model.f.values(["h"], total, x)
    np.testing.assert_array_equal(values["h"], [4, 6])
    np.testing.assert_array_equal(total, [1, 1])
    model.save(tmp_path / "f.dlc")
    again = dlc.load(tmp_path / "f.dlc").f.values(("h",), total, x=x)
    np.testing.assert_array_equal(again["h"], [4, 6])
    with pytest.raises(UsageError, match="a list of texts"):
        model.f.values("h", total, x)
    with pytest.raises(CallError):
        model.f.values(["h"], total, x, x)


def test_a_step_of_a_pattern_leaves_out_what_is_in_no_loop() -> None:
    text = """dlc 1
module Block {
  param w: f32[4] = ones()
  fn call(x: f32[4]) -> f32[4] {
    let s = tanh(x * w)
    return s + 1
  }
}
module Net {
  use blocks = 3 * Block()
  export fn f(x: f32[4]) -> f32[4] = scan block in blocks with h = x { next h = block(h) }
}
"""
    model = dlc.compile(text=text, weights="init:0")
    x = np.ones(4, np.float32)
    values = model.f.values(["blocks[1].*"], x)
    np.testing.assert_array_equal(
        values["blocks.s[1]"], model.f.values(["blocks.s"], x)["blocks.s"][1]
    )
    assert all(name.endswith("[1]") for name in values)
    with pytest.raises(UsageError, match=r"no value of the call is called x\[1\]\*"):
        model.f.values(["x[1]*"], x)


@pytest.mark.parametrize("level", [0, 2])
def test_an_argument_that_is_overwritten_at_the_end_is_seen_as_it_was(
    tmp_path: Path, level: int
) -> None:
    path = tmp_path / "counter.dlm"
    path.write_text(
        "dlc 1\nexport fn f(q: f32[4], inout n: f32[4]) -> f32[4] {\n"
        "  let next_n = n + 1\n  set n = next_n\n  return q * n\n}\n"
    )
    results, watch = observed(path, "all", level=level)
    arrays = {name: numbers(seen) for name, seen in watch.seen.items()}
    q, n = arrays["q"], arrays["n"]
    product = results.values[0][1].values().astype(np.float64)
    np.testing.assert_allclose(product, q * n, rtol=1e-6)
    np.testing.assert_allclose(arrays["next_n"], n + 1, rtol=1e-6)
    assert watch.sources["next_n"] == "machine code"


def test_code_for_a_gpu_is_not_observed(loops: Path) -> None:
    request = CompileRequest(str(loops), settings=Settings(target="cuda:sm_80"))
    with pytest.raises(Unsupported) as caught:
        run_watched(request, CallRequest(str(loops), seed=1), Watch(("all",)))
    assert caught.value.diagnostics[0].code in ("D0729", "D0714")


def test_statistics_are_of_the_finite_numbers() -> None:
    found = statistics_of(Tensor(np.array([0, 1, np.nan, 3, -np.inf, np.inf], np.float32)))
    assert (found.min, found.max, found.zeros, found.nan, found.inf) == (0, 3, 1, 1, 2)
    assert found.mean == pytest.approx(4 / 3)
    assert sum(found.histogram) == 3
    assert statistics_of(Tensor(np.array([np.nan], np.float32))).min is None
    large = statistics_of(Tensor(np.array([1e300, -1e300])))
    assert large.std == pytest.approx(1e300)
