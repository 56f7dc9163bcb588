"""What a text promises with `limit` is kept, or the model is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dlc
from dlc.dialects import scalar
from dlc.driver.compile.compile import compile_model, lower
from dlc.driver.compile.settings import Settings
from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.driver.source.open import open_model
from dlc.errors import CallError, ModelError, Unsupported, UsageError
from dlc.frontend.elaborate import elaborate
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import Library
from dlc.text.ir.printer import print_module
from tests.frontend.programs import as_list


def bits(text: str, level: int, *inputs: object) -> list[bytes]:
    """The bits of the results of `f`."""
    return [found.tobytes() for found in as_list(dlc.compile(text=text, level=level).f(*inputs))]


# How they are written -------------------------------------------------------------------------------


def library_of(artifact: Artifact) -> Library | None:
    """The BLAS that the code of an artifact calls."""
    (target,) = artifact.manifest.targets
    assert target.cpu is not None
    return target.cpu.library


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("limit memry = 4KiB", "there is no limit memry"),
        ("limit memory", "limit memory takes a number of bytes"),
        ("limit memory = 3", "limit memory takes a number of bytes"),
        ("limit exact = 1", "limit exact takes no value"),
        ("limit exact\nlimit exact", "limit exact is set twice"),
    ],
)
def test_a_limit_that_is_written_wrongly_is_told(limit: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        elaborate("model.dlm", text=f"dlc 1\n{limit}\nexport fn f(x: f32) -> f32 = x\n")
    assert [found.code for found in caught.value.diagnostics] == ["D0225"]


# deterministic --------------------------------------------------------------------------------------

PRODUCT = "dlc 1\n{limit}export fn f(x: f64[4, 4]) -> f64[4, 4] = x @ x\n"


def test_a_deterministic_model_calls_no_library() -> None:
    libraries = [
        make_artifact(CompileRequest("model.dlm", text=PRODUCT.format(limit=limit))).artifact
        for limit in ("", "limit deterministic\n")
    ]
    assert [library_of(found) is None for found in libraries] == [False, True]


def test_a_deterministic_model_is_refused_with_the_library_asked_for() -> None:
    with pytest.raises(UsageError) as caught:
        dlc.compile(text=PRODUCT.format(limit="limit deterministic\n"), matmul="blas")
    (found,) = caught.value.diagnostics
    assert (found.code, str(found.place)) == ("D0709", "model.dlm:2:1")
    assert 'limit deterministic and matmul="blas" exclude each other' in found.message


def test_a_graph_that_is_compiled_again_keeps_what_its_text_promised(tmp_path: Path) -> None:
    text = PRODUCT.format(limit="limit deterministic\n")
    first = make_artifact(CompileRequest("model.dlm", text=text)).artifact
    first.write(tmp_path / "model.dlc")
    again = compile_model(open_model(tmp_path / "model.dlc"), Settings(3))
    assert library_of(again) is None
    graph = tmp_path / "model.dlir"
    graph.write_text(print_module(open_model("model.dlm", text=text).module), encoding="utf-8")
    dumped = compile_model(open_model(graph), Settings())
    assert library_of(dumped) is None


# exact ----------------------------------------------------------------------------------------------

ROUNDS = """dlc 1
dim N = 1..64
{limit}export fn f(x: f32[N, 7], y: f32[7, 5]) -> (f32[N, 7], f32[N], f32[N, 5], f32[5, 7]) {{
  let thirds = x * 0.3 * 0.7 + 0.1 + 0.2
  let wide = sqrt(sum(transpose(x) * transpose(x), axis=0))
  return (thirds / 3, wide, tanh(x @ y * 0.1) * 0.1, transpose(y * 0.7) * 0.3)
}}
"""


def test_an_exact_model_has_the_same_bits_at_every_level_as_at_the_first() -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((33, 7)).astype(np.float32)
    y = random.standard_normal((7, 5)).astype(np.float32)
    wanted = bits(ROUNDS.format(limit=""), 1, x, y)
    assert bits(ROUNDS.format(limit=""), 2, x, y) != wanted, "the limit is not needed here"
    for level in (0, 1, 2, 3):
        assert bits(ROUNDS.format(limit="limit exact\n"), level, x, y) == wanted, f"-O{level}"


def test_an_exact_model_has_the_bits_of_the_text_where_each_step_rounds_once() -> None:
    text = """dlc 1
limit exact
export fn f(x: f32[64]) -> f32[64] = sqrt(abs(x * 0.3 * 0.7 + 0.1 + 0.2)) / 3 - x * 1.1
"""
    x = np.random.default_rng(1).standard_normal(64).astype(np.float32)
    f = np.float32
    wanted = np.sqrt(np.abs(x * f(0.3) * f(0.7) + f(0.1) + f(0.2))) / f(3) - x * f(1.1)
    assert bits(text, 3, x) == [wanted.astype(f).tobytes()]


def test_exact_and_fast_exclude_each_other() -> None:
    with pytest.raises(ModelError, match="limit exact and limit fast_narrow") as caught:
        dlc.compile(text="dlc 1\nlimit fast_narrow\nlimit exact\nexport fn f(x: f16) -> f16 = x\n")
    assert str(caught.value.diagnostics[0].place) == "model.dlm:3:1"


# fast_narrow ----------------------------------------------------------------------------------------

NARROW = "dlc 1\n{limit}export fn f(x: {t}[9], y: {t}[9]) -> {t}[9] = (x * y + x) * y - x\n"


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_sixteen_bits_are_rounded_once_in_a_kernel_that_may_be_fast(dtype: str) -> None:
    counts: list[int] = []
    for limit in ("", "limit fast_narrow\n"):
        opened = open_model("model.dlm", text=NARROW.format(limit=limit, t=dtype))
        lower(opened, Settings(), "kernel")
        casts = [op for op in opened.module.walk() if isinstance(op, scalar.Cast)]
        counts.append(sum(str(op.result.type) == dtype for op in casts))
    assert counts == [4, 1]


def test_results_that_may_be_fast_are_those_of_wider_numbers() -> None:
    random = np.random.default_rng(2)
    x, y = (random.standard_normal(9).astype(np.float16) for _ in range(2))
    wide = (x.astype(np.float32) * y + x) * y - x
    (found,) = bits(NARROW.format(limit="limit fast_narrow\n", t="f16"), 2, x, y)
    assert found == wide.astype(np.float16).tobytes()
    assert bits(NARROW.format(limit="", t="f16"), 2, x, y) != [found]


# memory ---------------------------------------------------------------------------------------------

SORTED = """dlc 1
limit memory = {most}
dim N = 1..{largest}
export fn f(x: f32[N, N]) -> f32[N, N] {{
  let a = sort(x)
  let b = sort(a * x, axis=0)
  return a + b
}}
"""


def compiled(text: str, settings: Settings | None = None) -> Artifact:
    return make_artifact(
        CompileRequest("model.dlm", text=text, settings=settings or Settings())
    ).artifact


def test_a_limit_of_memory_that_holds_at_the_largest_sizes_is_noted_in_the_artifact() -> None:
    promise = compiled(SORTED.format(most="1MiB", largest=64)).manifest.promise
    assert promise is not None and promise.memory == 1 << 20
    assert (
        compiled(SORTED.format(most="1MiB", largest=64).replace("limit", "#")).manifest.promise
        is None
    )


def test_a_limit_of_memory_is_refused_with_the_numbers_and_the_values_at_the_peak() -> None:
    with pytest.raises(Unsupported) as caught:
        compiled(SORTED.format(most="1MiB", largest=4096))
    (found,) = caught.value.diagnostics
    array = 4 * 4096**2
    assert (found.code, str(found.place)) == ("D0706", "model.dlm:2:1")
    assert "at N = 4096" in found.message and "the limit is 1,048,576 bytes" in found.message
    assert f"{array:,} bytes of results, {3 * array:,} bytes of values on the way" in found.message
    told = {str(label.place): label.text for label in found.labels}
    assert told["model.dlm:5:11"].startswith(f"a: f32[N, N] takes {array:,} bytes until add")
    assert "model.dlm:6:18" in told


def test_a_limit_of_memory_needs_bounds_and_takes_them_from_the_command() -> None:
    text = SORTED.format(most="1MiB", largest="")
    with pytest.raises(ModelError) as caught:
        compiled(text)
    (found,) = caught.value.diagnostics
    assert found.code == "D0708" and found.help is not None and "--dim N=1..64" in found.help
    artifact = compiled(text, Settings(dims={"N": (1, 64)}))
    assert artifact.manifest.promise is not None
    assert artifact.manifest.entries[0].dims[0].upper == 64


def test_the_command_may_ask_for_less_memory_than_the_text() -> None:
    small = Settings(max_memory=4096)
    with pytest.raises(Unsupported, match="the limit is 4,096 bytes"):
        compiled(SORTED.format(most="1MiB", largest=64), small)
    with pytest.raises(Unsupported, match="the limit is 1,048,576 bytes"):
        compiled(SORTED.format(most="1MiB", largest=4096), Settings(max_memory=1 << 40))


WEIGHTS = """dlc 1
module M {
  param w: f32[64, 64] = normal(1)
  export fn f(x: f32[2, 64]) -> f32[2, 64] = x @ w
}
"""


@pytest.mark.usefixtures("avx2")
def test_weights_and_results_count() -> None:
    bare = 64 * 64 * 4 + 2 * 64 * 4
    with pytest.raises(Unsupported, match=r"16,384|32,768") as caught:
        compiled(WEIGHTS, Settings(max_memory=bare - 1))
    assert "512 bytes of results" in caught.value.diagnostics[0].message


@pytest.mark.parametrize("mesh", ["", "mesh stage = 2\n"])
def test_programs_of_ranks_are_compiled_again_with_less_memory(mesh: str) -> None:
    text = f"""dlc 1
dim B = 1..64
{mesh}
module M {{
  param w: f32[64, 64] = normal(1)
  export fn f(x: f32[B, 64]) -> f32[B, 64] {{
    let h = tanh(x @ w)
    return h * 2 + x
  }}
}}
"""
    if mesh:
        text = text.replace("tanh(x @ w)", "on stage 0 { tanh(x @ w) }")
        text = text.replace("return h * 2 + x", "return on stage 1 { h * 2 + x }")
    request = CompileRequest("m.dlm", text=text, ranks=2, settings=Settings(max_memory=4096))
    with pytest.raises(Unsupported, match=r"D0706.*the part of (a rank|stage 0) in f needs"):
        make_artifact(request)


def test_a_model_that_promises_little_memory_runs_on_few_threads(tmp_path: Path) -> None:
    text = "dlc 1\ndim N = 1..64\nexport fn f(x: f32[N, 4096]) -> f32[N, 4096] = sort(x)\n"
    with pytest.raises(Unsupported) as caught:
        compiled(text, Settings(max_memory=1))
    least = int(caught.value.diagnostics[0].message.split()[5].replace(",", ""))
    artifact = compiled(text, Settings(max_memory=least))
    artifact.write(tmp_path / "f.dlc")
    model = dlc.load(tmp_path / "f.dlc", threads=2)
    assert model.threads == 1
    x = np.random.default_rng(3).standard_normal((64, 4096)).astype(np.float32)
    np.testing.assert_array_equal(model.f(x), np.sort(x))


def test_a_call_beyond_the_promise_is_refused_before_it_runs() -> None:
    artifact = compiled(SORTED.format(most="1MiB", largest=64))
    promise = artifact.manifest.promise
    assert promise is not None
    tight = artifact.manifest._replace(promise=promise._replace(memory=12_000))
    model = dlc.Model(Artifact.of(tight, dict(artifact.sections)))
    with pytest.raises(CallError, match="the model promises to need no more than 12000"):
        model.f(np.zeros((64, 64), np.float32))


@pytest.mark.parametrize(("dims", "code"), [({"M": (1, 2)}, "D0906"), ({"N": (1, 65)}, "D0930")])
def test_bounds_of_a_command_are_those_of_a_size_and_inside_the_text(
    dims: dict[str, tuple[int, int]], code: str
) -> None:
    with pytest.raises(UsageError) as caught:
        compiled(SORTED.format(most="1MiB", largest=64), Settings(dims=dims))
    assert caught.value.diagnostics[0].code == code
