"""`%%dlm` cells, in IPython's own shell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, cast

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell

import dlc
from dlc.driver.notebook import Shell


class Notebook(Shell, Protocol):
    """What the tests ask of IPython."""

    user_ns: dict[str, object]

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


def test_an_error_is_printed_with_its_line_of_the_cell(
    notebook: Notebook, capsys: pytest.CaptureFixture[str]
) -> None:
    assert notebook.run_cell_magic("dlm", "wrong", "\nexport fn f() -> f32 = y\n") is None
    told = capsys.readouterr().err
    assert "D0201" in told
    assert ":2:24" in told


@pytest.mark.parametrize("line", ["", "two words more", "3d"])
def test_a_cell_without_a_name_is_refused(
    notebook: Notebook, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    notebook.run_cell_magic("dlm", line, "export fn f() -> f32 = 1\n")
    assert "D0901" in capsys.readouterr().err
