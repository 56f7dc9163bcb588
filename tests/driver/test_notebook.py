"""`%%dlm` cells, in IPython's own shell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, cast

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell

import dlc
from dlc.driver.notebook import Shell


class Formatter(Protocol):
    """What shows a result, by kinds of content."""

    def format(self, obj: object) -> tuple[dict[str, str], dict[str, object]]: ...


class Notebook(Shell, Protocol):
    """What the tests ask of IPython."""

    user_ns: dict[str, object]
    display_formatter: Formatter

    def run_line_magic(self, magic_name: str, line: str) -> object: ...
    def run_cell_magic(self, magic_name: str, line: str, cell: str) -> object: ...


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    shell = cast("Notebook", InteractiveShell.instance())
    shell.run_line_magic("load_ext", "dlc")
    yield shell
    InteractiveShell.clear_instance()


def test_a_cell_gives_a_model_that_shows_itself(notebook: Notebook) -> None:
    text = "export fn doubled(x: f32[3]) -> f32[3] = 2 * x\n"
    shown = notebook.run_cell_magic("dlm", "twice", text)
    model = notebook.user_ns["twice"]
    assert isinstance(model, dlc.Model)
    assert shown is model
    assert "doubled" in model._repr_html_()  # pyright: ignore[reportPrivateUsage] -- Jupyter calls it
    np.testing.assert_array_equal(np.asarray(model.doubled(np.ones(3, np.float32))), [2, 2, 2])


def test_a_plan_and_a_profile_show_themselves(notebook: Notebook) -> None:
    """As rich results of a cell: IPython's formatter for HTML finds and calls what they have for it."""
    text = "dim B = 1..8\nexport fn f(x: f32[B, 3]) -> f32[B] = sum(sort(exp(x), axis=1), axis=1)\n"
    notebook.run_cell_magic("dlm", "small", text)
    model = notebook.user_ns["small"]
    assert isinstance(model, dlc.Model)
    plan, profile = dlc.plan(model.f, B=4), model.f.profile(np.ones((2, 3), np.float32), rounds=2)
    assert "<svg" in notebook.display_formatter.format(plan)[0]["text/html"]
    assert "<table>" in notebook.display_formatter.format(profile)[0]["text/html"]
    assert plan.entry.dims == {"B": 4}
    assert str(plan).startswith("f at B = 4")
    assert repr(plan) == f"<memory plan of f: {plan.entry.arena:,} bytes>"
    assert dlc.plan(model.f).entry.dims == {"B": 8}


def test_a_plan_of_something_else_is_refused() -> None:
    model = dlc.compile(text="dlc 1\nexport fn f(x: f32[3]) -> f32[3] = exp(x)\n")
    with pytest.raises(dlc.UsageError, match=r"write dlc.plan\(model.predict\)"):
        dlc.plan(model)  # pyright: ignore[reportArgumentType] - that is the point
    with pytest.raises(dlc.CallError, match="the size B does not exist"):
        dlc.plan(model.f, B=3)


def test_an_error_is_printed_with_its_line_of_the_cell(
    notebook: Notebook, capsys: pytest.CaptureFixture[str]
) -> None:
    assert notebook.run_cell_magic("dlm", "wrong", "\nexport fn f() -> f32 = y\n") is None
    told = capsys.readouterr().err
    assert "D0201" in told
    assert ":2:24" in told
    assert notebook.run_cell_magic("dlm", "wrong", "export fn f() -> f32 = y\n") is None
    told = capsys.readouterr().err
    assert ":1:24" in told
    assert "| export fn f() -> f32 = y\n   |                        ^" in told


def test_a_cell_may_begin_with_documentation_or_a_comment(notebook: Notebook) -> None:
    function = "export fn f(x: f32[3]) -> f32[3] = 2 * x\n"
    documented = notebook.run_cell_magic("dlm", "net", f"## Doubles.\n{function}")
    assert isinstance(documented, dlc.Model)
    assert documented.f.__doc__ == "Doubles."
    commented = notebook.run_cell_magic("dlm", "net", f"# a comment\ndlc 1\n{function}")
    assert isinstance(commented, dlc.Model)


@pytest.mark.parametrize("line", ["", "two words more", "3d"])
def test_a_cell_without_a_name_is_refused(
    notebook: Notebook, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    notebook.run_cell_magic("dlm", line, "export fn f() -> f32 = 1\n")
    assert "D0901" in capsys.readouterr().err
