"""The first programs: small models whose results are known, in the evaluator and as machine code."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import dlc
from dlc.cli import main
from dlc.dialects import func, mem
from dlc.driver.compile.compile import lower
from dlc.driver.compile.settings import Settings
from dlc.driver.report.inspect import inspect_file
from dlc.driver.run.calls import CallRequest
from dlc.driver.run.interpret import evaluate_entry
from dlc.driver.run.request import CompileRequest
from dlc.driver.run.watch import Watch
from dlc.errors import ModelError
from dlc.runtime.artifact.certificate import read_certificate
from dlc.text.ir.printer import print_module
from tests.frontend.programs import Numbers, Program, as_list
from tests.runtime.gpu.fake_gpu import fake_gpu, no_gpu
from tests.suites import every

HERE = Path(__file__).parent
EXAMPLES = HERE.parent.parent / "examples"
GRID = np.array([[1, 2], [3, 4]], np.float32)


def operations(program: Program, entry: str, level: int = 2) -> Counter[str]:
    """How many operations of each kind an entry point has after the graph passes, without constants."""
    opened = program.opened()
    lower(opened, Settings(level=level), "graph")
    function = opened.module.symbol(entry)
    assert isinstance(function, func.Func)
    names = [op.name.removeprefix("array.") for op in function.body]
    return Counter(name for name in names if name not in ("fill", "constant", "func.return"))


# Arithmetic and derivatives by hand -----------------------------------------------------------------


def test_the_product_of_a_sum_and_its_three_gradients() -> None:
    program = Program(path=EXAMPLES / "product.dlm")
    value, dx, dy, dz = program.run("f", np.float32(-2), np.float32(5), np.float32(-4))
    assert (value, dx, dy, dz) == (-12, -4, -4, 3)
    assert operations(program, "f") == {"add": 1, "multiply": 1}


@pytest.mark.parametrize(
    ("dtype", "value", "tolerance"),
    [("f64", 6.717008537800067, 1e-12), ("f32", 6.7170086, 1e-6)],
)
def test_the_sum_of_a_product_and_a_tensor(dtype: str, value: float, tolerance: float) -> None:
    t = f"{dtype}[3, 4]"
    program = Program(f"""dlc 1
fn total(x: {t}, y: {t}, z: {t}) -> {dtype} = sum(x * y + z)
export fn value(x: {t}, y: {t}, z: {t}) -> {dtype} = total(x, y, z)
export fn slopes(x: {t}, y: {t}, z: {t}) -> ({t}, {t}, {t}) = grad(total, wrt=(x, y, z))(x, y, z)
""")
    random = np.random.RandomState(0)
    x, y, z = (random.randn(3, 4).astype(dtype.replace("f", "float")) for _ in range(3))
    assert abs(float(program.result("value", x, y, z)) - value) <= tolerance
    dx, dy, dz = program.run("slopes", x, y, z)
    assert dx.tobytes() == y.tobytes()
    assert dy.tobytes() == x.tobytes()
    np.testing.assert_array_equal(dz, np.ones((3, 4)))
    assert operations(program, "slopes") == {}


def test_a_polynomial_and_its_gradient() -> None:
    program = Program(path=EXAMPLES / "poly.dlm")
    np.testing.assert_array_equal(program.result("y", GRID), [[8, 19], [36, 59]])
    np.testing.assert_array_equal(program.result("dy", GRID), [[8, 14], [20, 26]])
    assert operations(program, "dy") == {"multiply": 1, "add": 1}


def test_the_gradient_of_a_polynomial_of_sines() -> None:
    found = Program(path=EXAMPLES / "poly.dlm").result("dy_sin", GRID)
    np.testing.assert_allclose(
        found, [[3.808497, -3.102701], [-2.818231, 1.660787]], rtol=0, atol=1e-5
    )


def test_the_gradient_of_a_sum_of_sines_is_one_cosine() -> None:
    program = Program("""dlc 1
fn total(x: f32[5]) -> f32 = sum(sin(x))
export fn slope(x: f32[5]) -> f32[5] = grad(total)(x)
""")
    x = np.linspace(-3, 3, 5).astype(np.float32)
    np.testing.assert_allclose(program.result("slope", x), np.cos(x), rtol=1e-6)
    assert operations(program, "slope") == {"cos": 1}


def test_arithmetic_that_need_not_be_done_is_not_done() -> None:
    t = "f32[7]"
    program = Program(f"""dlc 1
export fn eightfold(x: {t}) -> {t} = ((x * 2) * 2) * 2
export fn same(x: {t}) -> {t} = x * 1 + 0
export fn twice(x: {t}, y: {t}, z: {t}) -> {t} = (x + y) * z + (x + y)
""")
    random = np.random.default_rng(0)
    x, y, z = (random.standard_normal(7).astype(np.float32) for _ in range(3))
    assert operations(program, "eightfold") == {"multiply": 1}
    assert operations(program, "same") == {}
    assert operations(program, "twice")["add"] == 2, "x + y once, and the sum of both terms"
    plain, quick = (as_list(program.model(level).eightfold(x))[0] for level in (0, 2))
    assert plain.tobytes() == quick.tobytes()
    assert program.result("same", x).tobytes() == x.tobytes()
    np.testing.assert_allclose(program.result("twice", x, y, z), (x + y) * z + (x + y), rtol=1e-6)


def test_the_gradient_of_relu_at_its_kink_is_zero() -> None:
    program = Program(path=EXAMPLES / "first.dlm")
    x = np.array([-1, 0, 2], np.float32)
    np.testing.assert_array_equal(program.result("slope", x), [0, 0, 1])


# Named values and conditions ------------------------------------------------------------------------


def test_every_named_value_can_be_seen() -> None:
    program = Program(path=EXAMPLES / "first.dlm")
    expected = {
        "v1": [1, 2, 3],
        "v2": [2.7182817, 7.389056, 20.085537],
        "v3": [3.7182817, 8.389056, 21.085537],
        "v4": [10.107338, 61.98721, 423.51434],
    }
    v3, v4 = program.run("steps", np.array([1, 2, 3], np.float32))
    np.testing.assert_allclose(v3, expected["v3"], rtol=1e-6)
    np.testing.assert_allclose(v4, expected["v4"], rtol=1e-6)
    watch = Watch(names=("all",))
    evaluate_entry(program.opened(), CallRequest("first.dlm", entry="steps"), watch=watch)
    for name, values in expected.items():
        np.testing.assert_allclose(
            as_list(watch.seen[name].value)[0], values, rtol=1e-6, err_msg=name
        )


def test_a_tensor_of_conditions_is_refused_with_a_way_out() -> None:
    with pytest.raises(ModelError) as caught:
        Program("""dlc 1
export fn f(v1: f32[3]) -> f32[3] {
  let v2 = exp(v1)
  return if v2 > 1 then v2 * 2 else v2 * 0.5
}
""").opened()
    (said,) = caught.value.diagnostics
    assert "a condition is one bool, found bool[3]" in said.message
    assert said.help is not None
    assert all(way in said.help for way in ("all(", "any(", "where("))


def test_all_conditions_of_a_tensor_choose_a_branch() -> None:
    found = Program(path=EXAMPLES / "first.dlm").result("chosen", np.array([1, 2, 3], np.float32))
    np.testing.assert_allclose(found, [5.4365635, 14.778112, 40.171074], rtol=1e-6)


def test_the_wrong_value_handed_on_is_an_unused_result_and_a_wrong_type() -> None:
    with pytest.raises(ModelError) as caught:
        Program("""dlc 1
import nn (Conv2d)
dim B = 1..64
module Linear(I, O) {
  param w: f32[I, O] = glorot_uniform()
  fn call(x: f32[B, I]) -> f32[B, O] = x @ w
}
module Net() {
  use filters = Conv2d(1, 128, kernel=3)
  use head = Linear(128, 10)
  export fn f(x: f32[B, 28, 28, 1]) -> f32[B, 10] {
    let c = filters(x)
    let h = relu(c)
    return head(c)
  }
}
""").opened()
    warning = next(d for d in caught.value.diagnostics if d.severity == "warning")
    error = next(d for d in caught.value.diagnostics if d.severity == "error")
    assert "the relu's result is never used" in warning.message
    assert warning.place is not None and warning.place.line == 13
    assert "f32[B, 26, 26, 128] given where f32[B, 128] is expected" in error.message
    assert error.place is not None and error.place.line == 14


# Pictures -------------------------------------------------------------------------------------------


def test_a_picture_survives_the_way_through_a_tensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (258, 320, 3)).astype(np.uint8)
    assert pixels.nbytes == 247_680
    Image.fromarray(pixels).save("in.png")
    Path("same.dlm").write_text("dlc 1\nexport fn f(x: u8[258, 320, 3]) -> u8[258, 320, 3] = x\n")
    command = ["run", "same.dlm", "--input", "x=in.png", "--output", "f=out.png"]
    assert _dlc(*command) == 0
    with Image.open("out.png") as picture:
        np.testing.assert_array_equal(np.asarray(picture), pixels)


def test_a_hundred_pictures_are_one_tensor() -> None:
    program = Program("""dlc 1
dim N = 1..1000
export fn f(x: u8[N, 258, 320, 3]) -> f32[N] = mean(f32(x), axis=[1, 2, 3])
""")
    pictures = np.random.default_rng(1).integers(0, 256, (100, 258, 320, 3)).astype(np.uint8)
    found = as_list(program.model(2).f(pictures))[0]
    assert found.shape == (100,)
    np.testing.assert_allclose(found, pictures.mean((1, 2, 3)), rtol=1e-4)


def _dlc(*arguments: str) -> int:
    """The exit code of the command line, in a process of its own."""
    code = "import sys; from dlc.cli import main; sys.exit(main())"
    return subprocess.run([sys.executable, "-c", code, *arguments], check=False).returncode


# Programs as they are compiled ----------------------------------------------------------------------


def test_an_artifact_runs_without_its_text_and_without_llvmlite(tmp_path: Path) -> None:
    text = tmp_path / "poly.dlm"
    shutil.copy(EXAMPLES / "poly.dlm", text)
    model = dlc.compile(text)
    model.save(tmp_path / "poly.dlc")
    text.unlink()
    code = """import sys
sys.modules["llvmlite"] = None
import dlc, numpy as np
print(np.asarray(dlc.load(sys.argv[1]).dy_sin(np.float32([[1, 2], [3, 4]]))).tobytes().hex())
"""
    run = [sys.executable, "-c", code, str(tmp_path / "poly.dlc")]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == as_list(model.dy_sin(GRID))[0].tobytes().hex()


CHAIN = 5_000


@pytest.mark.long
@pytest.mark.parametrize("length", every(2, (CHAIN // 5, CHAIN)))
def test_a_chain_of_ten_thousand_operations_compiles_and_differentiates(length: int) -> None:
    steps = "\n".join(f"  let x = x * 0.999 + {k % 7}.0" for k in range(length))
    program = Program(f"""dlc 1
fn f(x: f32[2]) -> f32 {{
{steps}
  return sum(x)
}}
export fn both(x: f32[2]) -> (f32, f32[2]) = value_and_grad(f)(x)
""")
    opened = program.opened()
    printed = print_module(opened.module)
    assert printed.count('"array.multiply"') + printed.count('"array.add"') == 2 * length
    x = np.array([1, 2], np.float32)
    value, slope = as_list(program.model(1).both(x))
    expected = x.astype(np.float64)
    for k in range(length):
        expected = expected * 0.999 + k % 7
    np.testing.assert_allclose(value, expected.sum(), rtol=1e-4)
    np.testing.assert_allclose(slope, np.full(2, 0.999**length), rtol=1e-2)


@pytest.mark.long
def test_a_graph_of_a_hundred_thousand_operations_compiles_and_prints() -> None:
    random = np.random.default_rng(0)
    names, wanted = ["x"], [np.array([3, 5], np.int64)]
    lines: list[str] = []
    for k in range(100_000):
        first, second = (int(i) for i in random.integers(max(0, k - 50), k + 1, 2))
        lines.append(f"  let v{k} = {names[first]} - {names[second]}")
        wanted.append(wanted[first] - wanted[second])
        names.append(f"v{k}")
    text = "\n".join(lines)
    program = Program(
        f"dlc 1\nexport fn f(x: i64[2]) -> i64[2] {{\n{text}\n  return {names[-1]}\n}}\n"
    )
    assert print_module(program.opened().module).count('"array.subtract"') == 100_000
    (found,) = as_list(program.model(0).f(wanted[0]))
    np.testing.assert_array_equal(found, wanted[-1])


def test_the_gradient_through_a_scan_is_that_of_the_unrolled_text() -> None:
    steps = "\n".join(f"  let h = tanh(h @ w + xs[{k}])" for k in range(5))
    program = Program(f"""dlc 1
fn looped(w: f64[3, 3], xs: f64[5, 3]) -> f64 {{
  let h = scan x in xs with h = xs[0] {{ next h = tanh(h @ w + x) }}
  return sum(h)
}}
fn unrolled(w: f64[3, 3], xs: f64[5, 3]) -> f64 {{
  let h = xs[0]
{steps}
  return sum(h)
}}
export fn one(w: f64[3, 3], xs: f64[5, 3]) -> (f64[3, 3], f64[5, 3]) =
  grad(looped, wrt=(w, xs))(w, xs)
export fn other(w: f64[3, 3], xs: f64[5, 3]) -> (f64[3, 3], f64[5, 3]) =
  grad(unrolled, wrt=(w, xs))(w, xs)
""")
    random = np.random.default_rng(0)
    w, xs = random.standard_normal((3, 3)), random.standard_normal((5, 3))
    looped, unrolled = program.run("one", w, xs), program.run("other", w, xs)
    for found, wanted in zip(looped, unrolled, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-10)


def test_two_independent_products_run_in_one_wave_with_the_same_bits_for_any_threads() -> None:
    t = "f32[512, 512]"
    program = Program(f"""dlc 1
export fn f(a: {t}, b: {t}, c: {t}, d: {t}) -> {t} = a @ b + c @ d
""")
    opened = program.opened()
    lower(opened, Settings(matmul="blas"), "plan")
    plan = opened.module.symbol("f")
    assert isinstance(plan, mem.Program)
    waves = [op for op in plan.body if isinstance(op, mem.Wave)]
    assert [op.name for op in waves[0].body] == ["kernel.gemm", "kernel.gemm", "mem.end"]
    model = dlc.compile(text=program.text, matmul="blas")
    (target,) = model.artifact.manifest.targets
    certificate = read_certificate(bytes(model.artifact.section(target.programs["f"].certificate)))
    first, second = [root for root in certificate.roots if root.first == 0][:2]
    assert first.last >= second.first and second.last >= first.first
    random = np.random.default_rng(0)
    given = [random.standard_normal((512, 512)).astype(np.float32) for _ in range(4)]
    bits = {as_list(_with_threads(program, n).f(*given))[0].tobytes() for n in (1, 2)}
    assert len(bits) == 1


def _with_threads(program: Program, count: int) -> dlc.Model:
    return dlc.compile(text=program.text, level=2, threads=count)


# Networks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        (EXAMPLES / "lenet.dlm", 61_706),
        (HERE / "networks" / "alexnet.dlm", 61_100_840),
        (HERE / "networks" / "vgg19.dlm", 143_667_240),
        (HERE / "networks" / "resnet50.dlm", 25_557_032),
        (HERE / "networks" / "mobilenet.dlm", 4_231_976),
    ],
    ids=lambda value: value.stem if isinstance(value, Path) else str(value),
)
def test_the_parameters_of_known_networks_are_counted(path: Path, parameters: int) -> None:
    inspection = inspect_file(CompileRequest(str(path)))
    assert inspection.parameters == parameters
    assert sum(layer.parameters for layer in inspection.layers) == parameters


def test_a_product_with_one_hot_rows_is_a_look_up() -> None:
    program = Program("""dlc 1
dim B = 1..64
dim T = 1..64
export fn f(ids: i32[B, T], e: f32[30000, 8]) -> f32[B, T, 8] = one_hot(ids, 30000) @ e
""")
    opened = program.opened()
    lower(opened, Settings(), "plan")
    plan = opened.module.symbol("f")
    assert isinstance(plan, mem.Program)
    rooms = [str(op.bytes) for op in plan.body if isinstance(op, mem.Root) and op.kind == "arena"]
    assert not any("30000" in room for room in rooms)
    random = np.random.default_rng(0)
    table = random.standard_normal((30_000, 8)).astype(np.float32)
    ids = random.integers(0, 30_000, (3, 5)).astype(np.int32)
    ids[0, :2] = [-1, 30_000]  # no class: a row of zeros, as one_hot says
    inside = (ids >= 0) & (ids < 30_000)
    expected = np.where(inside[..., None], table[np.where(inside, ids, 0)], 0)
    found: Numbers = as_list(program.model(2).f(ids, table))[0]
    np.testing.assert_array_equal(found, expected)


EDGE = """dlc 1
dim N = 1..8
export fn f(x: f32[N]) -> f32[N] {
  let h = on DEVICE { 3 + f32(arange(N)) }
  return h * x + h
}
"""


@pytest.mark.parametrize("device", ["cpu:1", "cuda:0"])
def test_one_edge_between_two_devices_is_one_send_and_one_recv(device: str) -> None:
    program = Program(EDGE.replace("DEVICE", device))
    for level in (0, 2):
        for stage in ("graph", "kernel"):
            opened = program.opened()
            lower(opened, Settings(level=level), stage)
            names = Counter(op.name for op in opened.module.walk())
            assert (names["comm.send"], names["comm.recv"]) == (1, 1)
    x = np.array([1, 2, 3, 4], np.float32)
    with fake_gpu() as gpu:
        found = program.result("f", x)
        copies = [way for way, count in gpu.transfers if count]
    np.testing.assert_array_equal(found, (3 + np.arange(4)) * (x + 1))
    if device == "cuda:0":
        # The notes of failing kernels, of which there are none, come back with every call.
        assert copies and set(copies) == {"down"}


def test_a_product_that_needs_more_memory_than_is_free_is_one_sentence_and_code_4(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def drawn(*_: object) -> None:
        raise AssertionError("it must be known before anything is allocated")

    monkeypatch.setattr("dlc.driver.run.calls.random_value", drawn)
    monkeypatch.setattr("dlc.runtime.system.available_memory._all_memory", lambda: 1 << 40)
    monkeypatch.setattr("dlc.runtime.system.available_memory.free_memory", lambda: 10_700_000_000)
    for device in ("cpu:0", "cpu:1"):
        given = ["examples/matrices.dlm", "--set", "n=30000", "--place", f"unit={device}"]
        monkeypatch.chdir(HERE.parent.parent)
        for verb in (["run", "--random-inputs", "0"], ["bench"]):
            assert main([verb[0], *given, *verb[1:]]) == 4
            out, err = capsys.readouterr()
            said = "a call of multiply needs 10.1 GiB of memory, and 10.0 are free on this machine"
            assert f"error[D0705]: {said}\n" in err and not out


@pytest.mark.parametrize("device", every(3, ["cpu:0", "cpu:1", "cuda:0"]))
@pytest.mark.parametrize("n", every(2, (8, 24)))
def test_a_product_is_timed_on_each_device(
    n: int, device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--set", f"n={n}", "--place", f"unit={device}", "--seconds", "0", "--json"]
    with fake_gpu() as gpu:
        assert main(["bench", str(EXAMPLES / "matrices.dlm"), *given]) == 0
    timing = json.loads(capsys.readouterr().out)
    assert timing["best_ms"] > 0
    assert bool(gpu.launched) == (device == "cuda:0")
    if device == "cuda:0":
        assert timing["device"] == "cpu+cuda:0"
        assert min(timing[f"{part}_ms"] for part in ("upload", "compute", "download")) > 0


def test_the_same_text_with_one_word_changed_is_timed_on_both_devices() -> None:
    path = EXAMPLES / "cpu_gpu.py"
    spec = importlib.util.spec_from_file_location("cpu_gpu", path)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    with fake_gpu() as gpu:
        one, other, apart = example.compare(24)
    assert gpu.launched
    assert re.fullmatch(r"on cpu     [\d.]+ s, [\d.,]+ GFLOP/s", one)
    parts = r"[\d.]+ s there, [\d.]+ s computing, [\d.]+ s back"
    assert re.fullmatch(rf"on cuda:0  [\d.]+ s, [\d.,]+ GFLOP/s; {parts}", other)
    assert float(apart.split()[1]) < 1e-4
    with no_gpu():
        one, other = example.compare(24)
    assert " GFLOP/s" in one
    assert other.endswith("needs an NVIDIA GPU with its driver, and there is none here")
