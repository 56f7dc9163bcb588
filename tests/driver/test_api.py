"""`dlc.compile` and `dlc.load`: models as Python objects."""

from __future__ import annotations

import inspect
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import dlc

TEXT = "dlc 1\nexport fn twice(x: f32[3]) -> f32[3] = 2 * x\n"


def test_a_text_is_compiled_called_saved_and_loaded(tmp_path: Path) -> None:
    model = dlc.compile(text=TEXT)
    x = np.array([1, 2, 3], np.float32)
    assert np.asarray(model(x)).tolist() == [2, 4, 6]
    model.save(tmp_path / "twice.dlc")
    again = dlc.load(tmp_path / "twice.dlc")
    assert list(again.entry_points) == ["twice"]
    np.testing.assert_array_equal(np.asarray(again.twice(x)), 2 * x)


def test_a_file_is_compiled(tmp_path: Path) -> None:
    (tmp_path / "twice.dlm").write_text(TEXT, encoding="utf-8")
    model = dlc.compile(tmp_path / "twice.dlm", level=0)
    assert "twice(x: f32[3]) -> f32[3]" in repr(model)


def test_a_path_or_a_text_is_given_and_not_both() -> None:
    for path, text in ((None, None), ("a.dlm", TEXT)):
        with pytest.raises(dlc.UsageError, match="by its path or by its text"):
            dlc.compile(path, text=text)


def test_a_wrong_model_raises_with_its_place() -> None:
    with pytest.raises(dlc.ModelError, match=r"(?s)error\[D0201\].*model.dlm:2:\d+"):
        dlc.compile(text=TEXT.replace("2 * x", "2 * y"))


def test_every_public_name_is_there_and_no_other() -> None:
    for name in dlc.__all__:
        assert getattr(dlc, name) is getattr(dlc, name)
    assert set(dlc.__all__) < set(dir(dlc))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(dlc, "nothing")  # noqa: B009 - a checker would refuse the plain form
    assert issubclass(dlc.CallError, dlc.DlcError)


def test_defaults_are_shown_as_they_are_written() -> None:
    model = dlc.compile(
        text="dlc 1\nexport fn f(x: f32 = 0.8, y: f16[2] = [0.1, -2], z: bool = true) -> f32 = x\n"
    )
    assert repr(model) == (
        "Model model.dlm: no weights\n"
        "  f(x: f32 = 0.8, y: f16[2] = [0.1, -2.0], z: bool = true) -> f32"
    )
    assert str(inspect.signature(model.f)).startswith("(x: 'f32' = 0.8, y: 'f16[2]' = [0.1, -2.0]")


def test_a_text_given_as_a_path_is_recognised() -> None:
    with pytest.raises(dlc.UsageError, match=r"write dlc\.compile\(text=\.\.\.\)"):
        dlc.compile(TEXT)


@pytest.mark.parametrize("name", ["a.dlm", "a.dlir", "a.onnx"])
def test_only_artifacts_are_loaded(name: str) -> None:
    with pytest.raises(dlc.UsageError, match=r"(?s)must be compiled first.*dlc\.compile\(path\)"):
        dlc.load(name)


@pytest.mark.parametrize("threads", [0, -1, 10**6, "two", 2.5])
def test_a_number_of_threads_that_cannot_be_had_is_refused(threads: object) -> None:
    with pytest.raises(dlc.UsageError, match=r"error\[D0918\]: threads is .*, outside 1\.\."):
        dlc.compile(text=TEXT, threads=threads)  # pyright: ignore[reportArgumentType]


def test_options_that_do_not_exist_are_refused_with_those_that_do() -> None:
    for options in ({"level": 7}, {"target": "tpu"}, {"matmul": "slow"}, {"disable": ["nothing"]}):
        with pytest.raises(dlc.UsageError, match=r"use |passes are "):
            dlc.compile(text=TEXT, **options)  # pyright: ignore[reportArgumentType]


def test_many_threads_may_compile_at_once() -> None:
    def compiled(factor: int) -> dlc.Model:
        return dlc.compile(text=TEXT.replace("2 * x", f"{factor} * x"))

    with ThreadPoolExecutor(4) as pool:
        models = list(pool.map(compiled, range(2, 6)))
    x = np.ones(3, np.float32)
    assert [float(np.asarray(model(x))[0]) for model in models] == [2, 3, 4, 5]
