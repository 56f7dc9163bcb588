"""`dlc.compile` and `dlc.load`: models as Python objects."""

from __future__ import annotations

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
    with pytest.raises(dlc.ModelError, match=r"model.dlm:2:\d+: error\[D0201\]"):
        dlc.compile(text=TEXT.replace("2 * x", "2 * y"))


def test_every_public_name_is_there_and_no_other() -> None:
    for name in dlc.__all__:
        assert getattr(dlc, name) is getattr(dlc, name)
    assert set(dlc.__all__) < set(dir(dlc))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(dlc, "nothing")  # noqa: B009 - a checker would refuse the plain form
    assert issubclass(dlc.CallError, dlc.DlcError)
