"""`dlc why MODEL QUESTION`: answers with the reason, the figures and what would change it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dlc
from dlc.driver.compile.settings import Settings
from dlc.driver.report.questions import fused, kernel
from dlc.driver.report.questions.answers import Answer
from dlc.driver.report.questions.registry import (
    QUESTIONS,
    Asked,
    ValueQuestion,
    answer_about_values,
    answer_question,
    check_is_no_question,
    question_of,
)
from dlc.driver.report.questions.traced import Traced, entries_of, trace
from dlc.driver.run.calls import CallRequest
from dlc.driver.run.inner_values import run_watched
from dlc.driver.run.request import CompileRequest
from dlc.driver.run.watch import Watch
from dlc.errors import UsageError
from tests.example_models import FOLDER, NAMES, SMALLER
from tests.suites import every

NETWORKS = tuple(sorted(str(path.relative_to(FOLDER)) for path in FOLDER.glob("networks/**/*.dlm")))

TEXT = """dlc 1
export fn f(x: f32[64, 64], w: f32[64, 64]) -> f32[64, 64] {
  let product = x @ w
  let positive = relu(product)
  let total = sum(positive, axis=1)
  let other = exp(x)
  let turned = other[::-1]
  return positive * total[:, new] + other + turned
}
"""


def requested(name: str) -> CompileRequest:
    return CompileRequest(str(FOLDER / name), parameters=SMALLER.get(Path(name).stem, {}))


def traces(request: CompileRequest) -> list[Traced]:
    names = entries_of(request.open())
    return [trace(request.open(), request.settings, name) for name in names]


@pytest.fixture
def model(tmp_path: Path) -> CompileRequest:
    (tmp_path / "f.dlm").write_text(TEXT)
    return CompileRequest(str(tmp_path / "f.dlm"))


def ask(request: CompileRequest, *words: str) -> Answer:
    question = question_of(words)
    assert isinstance(question, ValueQuestion)
    return answer_about_values(question, asked(request, *words[1:]))[1]


def asked(request: CompileRequest, *names: str, **inputs: str) -> Asked:
    return Asked(request, names, CallRequest(request.path, inputs=inputs, seed=0))


@pytest.mark.parametrize("name", every(60, [*[f"{name}.dlm" for name in NAMES], *NETWORKS]))
def test_two_neighbouring_operations_are_fused_or_there_is_a_reason(name: str) -> None:
    for traced in traces(requested(name)):
        for one, other in traced.neighbours():
            answer = fused.answer(traced, [traced.nodes[one], traced.nodes[other]])
            assert answer.verdict in ("yes", "no")
            assert answer.reason, (one, other)
            shared = traced.kernels.get(one, set()) & traced.kernels.get(other, set())
            assert answer.verdict == "no" or shared


def test_every_question_has_an_answer_about_every_value(model: CompileRequest) -> None:
    (traced,) = traces(model)
    for row in [each for each in QUESTIONS.values() if isinstance(each, ValueQuestion)]:
        for node in traced.nodes.values():
            answer = row.answer(traced, [node] * len(row.about))
            assert answer.verdict and answer.reason and answer.text.startswith(answer.verdict)


def test_an_epilogue_is_fused_and_a_reduction_is_not(model: CompileRequest) -> None:
    yes = ask(model, "fused", "product", "positive")
    assert (yes.verdict, yes.evidence) == (
        "yes",
        ("+ fuse: fuse as epilogue (of kernel.gemm)",),
    )
    assert ask(model, "fused", "positive", "product") == yes
    no = ask(model, "fused", "positive", "total")
    assert (no.verdict, no.reason) == ("no", "its reader is not a formula of single elements")


def test_slow_is_measured_on_the_inputs_of_the_call(model: CompileRequest) -> None:
    question = question_of(["slow"])
    assert question is not None
    assert question.measures
    reply = answer_question(question, asked(model, x="zeros"))
    assert reply.entry == "f"
    assert "roof" in reply.text
    assert list(reply.data)[:4] == ["model", "entry", "question", "about"]


def test_what_would_change_a_refusal_is_told(tmp_path: Path) -> None:
    path = tmp_path / "f.dlm"
    path.write_text(
        "dlc 1\nexport fn f(x: f32[8]) -> (f32[8], f32[8]) {\n"
        "  let h = exp(x)\n  let a = sort(h)\n  let b = sum(h) * x\n  return (a, b)\n}\n"
    )
    none = ask(CompileRequest(str(path), settings=Settings(0)), "fused", "h", "a")
    assert none.verdict == "no"
    without = CompileRequest(str(path), settings=Settings(disabled=frozenset({"fuse"})))
    assert ask(without, "fused", "h", "reduce_sum").change == "leave out --disable-pass=fuse"


def test_memory_is_told_with_waves_bytes_and_readers(model: CompileRequest) -> None:
    alive = ask(model, "alive", "positive")
    assert "16384 bytes" in alive.reason and "waves" in alive.reason
    assert any(line.startswith("read by generic") for line in alive.evidence)
    assert ask(model, "alive", "x").verdict == "always"
    assert ask(model, "alive", "product").verdict == "never"
    assert ask(model, "layout", "positive").reason.startswith("f32[64, 64], row-major")
    assert ask(model, "copied", "turned").verdict == "no"
    assert ask(model, "on-gpu", "total").verdict == "no"


def test_a_value_is_named_by_its_line_too(model: CompileRequest) -> None:
    assert ask(model, "kernel", "4") == ask(model, "kernel", "f.dlm:4")
    assert ask(model, "kernel", "4") == ask(model, "kernel", "positive")


def test_every_value_that_is_shown_may_be_asked_about(tmp_path: Path) -> None:
    """Names count within an entry point; those of loops are known, and those that simplifying removes."""
    path = tmp_path / "two.dlm"
    path.write_text(
        "dlc 1\nexport fn f(x: f32[4]) -> f32[4] {\n  let h = exp(x)\n  return h\n}\n"
        "export fn g(x: f32[4]) -> f32[4] {\n  let h = sin(x)\n  let same = h * 1\n"
        "  let r = scan row in same with s = 0.0 { let q = row * 2  next s = s + q }\n"
        "  return same * r\n}\n"
    )
    request = CompileRequest(str(path))
    shown = Watch(("all",))
    run_watched(request, CallRequest(str(path), "g", seed=0), shown)
    assert list(shown.seen) == ["x", "h", "same", "s", "row", "q", "r", "g"]
    traced = trace(request.open(), request.settings, "g")
    for name in set(shown.seen) - {"g"}:
        assert kernel.answer(traced, [traced.node(name)]).reason
    assert kernel.answer(traced, [traced.node("row")]).reason.endswith("in the memory of h")
    arrays = dlc.compile(path).g.values(["all"], np.ones(4, np.float32))
    # The graph of an artifact is simplified.
    assert list(arrays) == ["x", "h", "s", "row", "q", "r", "g"]


def test_wrong_questions_have_a_way_out(model: CompileRequest) -> None:
    with pytest.raises(UsageError, match="did you mean positive") as caught:
        ask(model, "kernel", "positve")
    assert caught.value.diagnostics[0].code == "D0911"
    with pytest.raises(UsageError, match="write dlc why MODEL fused A B"):
        question_of(("fused", "a"))
    with pytest.raises(UsageError, match="slow asks about the whole model, found h"):
        question_of(("slow", "h"))
    with pytest.raises(UsageError, match="write dlc why MODEL fused A B"):
        check_is_no_question(("fused",))
    with pytest.raises(UsageError, match="did you mean the question kernel"):
        check_is_no_question(("kernal", "positive"))
    check_is_no_question(("fuse",))
    check_is_no_question(("words", "to look for"))
    assert question_of(("fuse", "a")) is None
    assert question_of(("kernel",)) is None
    assert question_of(()) is None
