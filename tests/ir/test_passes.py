"""The pass manager: names, order, what is switched off, and what happens when a pass fails."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from dlc.dialects.builtin import Module
from dlc.errors import InternalError, ModelError, UsageError
from dlc.ir.core import Op
from dlc.ir.location import UnknownLocation
from dlc.ir.passes import PASSES, Context, Manager, Options, Order, check_order, define_pass

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
    Manager(context).run(module(), ["test.one", "test.other", "test.one"])
    assert RAN == ["test.one", "test.other", "test.one"]
    assert list(context.seconds) == ["test.one", "test.other"]
    assert all(seconds >= 0 for seconds in context.seconds.values())


def test_decisions_are_logged_under_the_name_of_the_pass() -> None:
    context = Context()
    Manager(context).run(module(), ["test.one", "test.other"])
    assert [decision.pass_name for decision in context.log] == ["test.one", "test.other"]


def test_a_pass_may_be_switched_off_unless_it_is_required() -> None:
    options = Options(disabled=frozenset({"test.one", "test.needed"}))
    Manager(Context(options)).run(module(), ["test.one", "test.needed", "test.other"])
    assert RAN == ["test.needed", "test.other"]


@pytest.mark.parametrize(
    ("pipeline", "disabled"), [(["test.gone"], ()), (["test.one"], ("test.gone",))]
)
def test_a_pass_that_does_not_exist_is_refused_before_any_runs(
    pipeline: list[str], disabled: tuple[str, ...]
) -> None:
    manager = Manager(Context(Options(disabled=frozenset(disabled))))
    with pytest.raises(UsageError, match=r"(?s)there is no pass 'test\.gone'.*test\.needed"):
        manager.run(module(), ["test.one", *pipeline])
    assert RAN == []


def test_observers_see_the_module_before_and_after_each_pass() -> None:
    seen: list[str] = []
    manager = Manager(
        Context(),
        before=lambda name, _: seen.append(f"before {name}"),
        after=lambda name, _: seen.append(f"after {name}"),
    )
    manager.run(module(), ["test.one", "test.other"])
    assert seen == ["before test.one", "after test.one", "before test.other", "after test.other"]


def test_a_failure_of_ours_names_the_pass_and_the_file_that_reproduces_it() -> None:
    asked: list[str] = []

    def reproduce(name: str) -> str:
        asked.append(name)
        return "failure.dlir"

    with pytest.raises(InternalError) as caught:
        Manager(Context(), reproduce=reproduce).run(module(), ["test.one", "test.fail"])
    assert asked == ["test.fail"]
    [found] = caught.value.diagnostics
    assert found.message == "pass test.fail failed: ZeroDivisionError: one by nothing"
    assert found.help is not None
    assert "failure.dlir" in found.help
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_mistake_in_the_model_is_passed_on() -> None:
    with pytest.raises(ModelError, match="the model is wrong"):
        Manager(Context()).run(module(), ["test.refuse"])


def test_a_pass_is_described_by_its_first_line() -> None:
    assert PASSES["test.one"].doc == "Note that it ran."
    assert PASSES["test.fail"].doc.startswith("The pass manager: names, order,")


def test_a_name_is_given_once() -> None:
    with pytest.raises(AssertionError, match=r"pass test\.one is defined twice"):
        note("test.one")


REASON = Order("cse", "fuse", "equal producers can no longer be seen")


@pytest.mark.parametrize(
    "pipeline", [[], ["cse"], ["fuse"], ["cse", "fuse"], ["cse", "fuse", "cse", "fuse"]]
)
def test_a_pipeline_in_the_right_order_is_accepted(pipeline: list[str]) -> None:
    check_order(pipeline, [REASON])


def test_a_pipeline_in_the_wrong_order_is_refused_with_the_reason() -> None:
    with pytest.raises(AssertionError, match="cse must come before fuse: equal producers"):
        check_order(["dce", "fuse", "cse"], [REASON])


def test_the_rewriter_of_a_context_keeps_its_map_and_log() -> None:
    context = Context()
    assert context.rewriter.values is context.values
    assert context.rewriter.log is context.log
