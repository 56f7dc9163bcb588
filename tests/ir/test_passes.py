"""The pass manager: names, order, what is switched off, and what happens when a pass fails."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from dlc.dialects.builtin import Module
from dlc.errors import InternalError, ModelError, UsageError
from dlc.ir.core import Op
from dlc.ir.location import UnknownLocation
from dlc.ir.passes import (
    PASSES,
    Context,
    Manager,
    Options,
    Order,
    Pass,
    check_order,
    define_pass,
    parse_passes,
)
from dlc.passes.graph.cse import cse
from dlc.passes.kernel.fuse import fuse

RAN: list[str] = []


def note(name: str, *, required: bool = False) -> None:
    @define_pass(name, required=required)
    def run(module: Op, context: Context) -> None:
        """Note that it ran.

        And nothing else.
        """
        RAN.append(name)
        context.log.did("ran", module)


def fail(module: Op, context: Context) -> None:
    raise ZeroDivisionError("one by nothing")


def refuse(module: Op, context: Context) -> None:
    raise ModelError("the model is wrong", code="D0301")


@pytest.fixture(autouse=True)
def passes() -> Generator[None]:
    before = dict(PASSES)
    note("test.one")
    note("test.other")
    note("test.needed", required=True)
    define_pass("test.fail")(fail)
    define_pass("test.refuse")(refuse)
    RAN.clear()
    yield
    PASSES.clear()
    PASSES.update(before)


def module() -> Module:
    return Module.empty(UnknownLocation("a test"))


def test_passes_run_in_order_and_are_timed() -> None:
    context = Context()
    Manager(context).run(module(), parse_passes("test.one,test.other,test.one"))
    assert RAN == ["test.one", "test.other", "test.one"]
    assert list(context.seconds) == ["test.one", "test.other"]
    assert all(seconds >= 0 for seconds in context.seconds.values())


def test_decisions_are_logged_under_the_name_of_the_pass() -> None:
    context = Context()
    Manager(context).run(module(), parse_passes("test.one,test.other"))
    assert [decision.pass_name for decision in context.log] == ["test.one", "test.other"]


def test_a_pass_may_be_switched_off_unless_it_is_required() -> None:
    options = Options(disabled=frozenset({"test.one", "test.needed"}))
    Manager(Context(options)).run(module(), parse_passes("test.one,test.needed,test.other"))
    assert RAN == ["test.needed", "test.other"]


def test_a_disabled_pass_that_does_not_exist_is_refused_before_any_runs() -> None:
    manager = Manager(Context(Options(disabled=frozenset({"test.gone"}))))
    with pytest.raises(UsageError, match=r"(?s)there is no pass 'test\.gone'.*test\.needed"):
        manager.run(module(), parse_passes("test.one"))
    assert RAN == []


def test_observers_see_the_module_before_and_after_each_pass() -> None:
    seen: list[str] = []
    manager = Manager(
        Context(),
        before=lambda name, _: seen.append(f"before {name}"),
        after=lambda name, _: seen.append(f"after {name}"),
    )
    manager.run(module(), parse_passes("test.one,test.other"))
    assert seen == ["before test.one", "after test.one", "before test.other", "after test.other"]


def test_a_failure_of_ours_names_the_pass_and_the_file_that_reproduces_it() -> None:
    asked: list[str] = []

    def reproduce(failed: Pass[...]) -> str:
        asked.append(failed.name)
        return "failure.dlir"

    with pytest.raises(InternalError) as caught:
        Manager(Context(), reproduce=reproduce).run(module(), parse_passes("test.one,test.fail"))
    assert asked == ["test.fail"]
    [found] = caught.value.diagnostics
    assert found.message == "pass test.fail failed: ZeroDivisionError: one by nothing"
    assert found.help is not None
    assert "failure.dlir" in found.help
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_mistake_in_the_model_is_passed_on() -> None:
    with pytest.raises(ModelError, match="the model is wrong"):
        Manager(Context()).run(module(), parse_passes("test.refuse"))


def test_a_pass_is_described_by_its_first_line() -> None:
    assert PASSES["test.one"].doc == "Note that it ran."
    assert PASSES["test.fail"].doc.startswith("The pass manager: names, order,")


def test_a_name_is_given_once() -> None:
    with pytest.raises(AssertionError, match=r"pass test\.one is defined twice"):
        note("test.one")


REASON = Order(cse, fuse, "cse cannot see equal producers")


@pytest.mark.parametrize("pipeline", ["", "cse", "fuse", "cse,fuse", "cse,fuse,cse,fuse"])
def test_a_pipeline_in_the_right_order_is_accepted(pipeline: str) -> None:
    check_order(parse_passes(pipeline), [REASON])


def test_a_pipeline_in_the_wrong_order_is_refused_with_the_reason() -> None:
    with pytest.raises(AssertionError, match="cse must come before fuse: cse cannot see"):
        check_order(parse_passes("dce,fuse,cse"), [REASON])


@define_pass("test.choose")
def choose(
    module: Op,
    context: Context,
    *,
    count: int = 4,
    share: float | None = None,
    gpu_only: bool = False,
) -> None:
    """Note its options."""
    RAN.append(f"{count} {share} {gpu_only}")


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("test.choose", "4 None False"),
        ("test.choose{}", "4 None False"),
        ("test.choose{count=7,gpu_only=true}", "7 None True"),
        (" test.choose { share = 0.25 , count=1 } ,", "1 0.25 False"),
    ],
)
def test_a_pass_runs_with_the_options_of_its_text(text: str, seen: str) -> None:
    pipeline = parse_passes(text)
    Manager(Context()).run(module(), pipeline)
    assert [seen] == RAN
    assert parse_passes(",".join(map(str, pipeline))) == pipeline


def test_a_pass_with_options_prints_as_it_is_read() -> None:
    assert str(choose.using(count=2, share=0.5, gpu_only=True)) == (
        "test.choose{count=2,share=0.5,gpu_only=true}"
    )
    assert choose.using(count=2) == parse_passes("test.choose{count=2}")[0]


def test_a_pass_says_which_options_it_takes() -> None:
    assert [str(option) for option in choose.options] == ["count=4", "share", "gpu_only=false"]
    assert [option.kind for option in choose.options] == [int, float, bool]


def test_a_pass_is_left_out_by_its_name_whatever_its_options_are() -> None:
    context = Context(Options(disabled=frozenset({"test.choose"})))
    Manager(context).run(module(), parse_passes("test.choose{count=2},test.one"))
    assert RAN == ["test.one"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("test.one,test.gone", r"there is no pass 'test\.gone'.*test\.needed"),
        ("test.one{count=1}", r"has no option 'count'.*takes no options"),
        ("test.choose{cuont=1}", r"has no option 'cuont'.*did you mean count\? its options are"),
        ("test.choose{count=1,count=2}", r"option count of test\.choose is given twice"),
        ("test.choose{count=many}", r"count of test\.choose is 'many'.*as in .*\{count=4\}"),
        ("test.choose{count=0}", "an integer of at least 1"),
        ("test.choose{count=1.5}", "an integer of at least 1"),
        ("test.choose{share=-1}", r"not negative, as in test\.choose\{share=1\.0\}"),
        ("test.choose{share=inf}", "a number that is not negative"),
        ("test.choose{share=nan}", "a number that is not negative"),
        ("test.choose{gpu_only=1}", "true or false"),
        ("test.choose{count}", "is not how passes are written"),
        ("test.choose{count=}", "is not how passes are written"),
        ("test.choose{count=1", "'test.choose{count=1' is not how passes are written"),
        ("test.one,,test.one", "',test.one' is not how passes are written"),
        ("test.one test.one", "is not how passes are written"),
        ("}", "is not how passes are written"),
    ],
)
def test_what_is_wrong_with_the_text_of_passes_is_named(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"(?s){message}"):
        parse_passes(text)


def test_the_rewriter_of_a_context_keeps_its_map_and_log() -> None:
    context = Context()
    assert context.rewriter.values is context.values
    assert context.rewriter.log is context.log
