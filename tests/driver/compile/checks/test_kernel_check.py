"""`--kernel NAME=FILE`: a kernel of a user is used if it computes what the plan says, else refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import dlc
from dlc.driver.compile.settings import Settings
from dlc.driver.report.show import Shown, show_stage
from dlc.driver.run.request import CompileRequest
from dlc.errors import DlcError

TEXT = """dlc 1
dim B = 1..1000
export fn f(x: f32[B], y: f32[B]) -> f32[B] = exp(x) * 3 + y
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with the kernel that dlc makes, in both forms."""
    (tmp_path / "f.dlm").write_text(TEXT)
    request = CompileRequest(str(tmp_path / "f.dlm"), settings=Settings())
    for stage, ending in (("llvm", "ll"), ("loop", "dlir")):
        (tmp_path / f"own.{ending}").write_text(show_stage(request, Shown(stage)))
    return tmp_path


def changed(folder: Path, old: str, new: str) -> Path:
    text = (folder / "own.ll").read_text()
    assert old in text
    (folder / "changed.ll").write_text(text.replace(old, new))
    return folder / "changed.ll"


@pytest.mark.parametrize("ending", ["ll", "dlir"])
def test_a_kernel_that_computes_the_same_is_used(own: Path, ending: str) -> None:
    model = dlc.compile(own / "f.dlm", kernels={"generic_0": str(own / f"own.{ending}")})
    x, y = np.linspace(-2, 2, 100, dtype=np.float32), np.ones(100, np.float32)
    np.testing.assert_allclose(np.asarray(model.f(x, y), np.float32), np.exp(x) * 3 + 1, rtol=1e-5)
    assert any(
        flag.startswith("--kernel=generic_0=") for flag in model.artifact.manifest.compiler.flags
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("fadd", "fsub", "the kernel generic_0 is off by"),
        ("define void @generic_0(", "define void @other(", "has no function generic_0"),
        ("  ret void", "  store i64 1, ptr %fault\n  ret void", "the kernel generic_0 fails"),
        (
            "  ret void",
            "  ret nothing",
            r"LLVM refuses line \d+ of its file: .*nothing",
        ),
    ],
)
def test_a_kernel_that_computes_something_else_is_refused(
    own: Path, old: str, new: str, message: str
) -> None:
    path = changed(own, old, new)
    with pytest.raises(DlcError, match=message) as caught:
        dlc.compile(own / "f.dlm", kernels={"generic_0": str(path)})
    assert caught.value.diagnostics[0].code in ("D0951", "D0165")


def test_a_kernel_is_taken_from_the_listing_of_several(tmp_path: Path) -> None:
    text = "dlc 1\nexport fn f(x: f32[8, 8], y: f32[8, 8]) -> f32[8, 8] = sum(exp(x @ y), axis=0) * x\n"
    (tmp_path / "f.dlm").write_text(text)
    request = CompileRequest(str(tmp_path / "f.dlm"), settings=Settings())
    listing = show_stage(request, Shown("llvm"))
    (tmp_path / "own.ll").write_text(listing)
    names = re.findall(r"define void @(\w+)\(", listing)
    assert len(names) > 1
    x = np.eye(8, dtype=np.float32)
    expected = np.asarray(dlc.compile(tmp_path / "f.dlm").f(x, x))
    for name in names:
        model = dlc.compile(tmp_path / "f.dlm", kernels={name: str(tmp_path / "own.ll")})
        np.testing.assert_array_equal(np.asarray(model.f(x, x)), expected)


@pytest.mark.parametrize(
    ("kernels", "options", "code"),
    [
        ({"generic_7": "own.ll"}, {}, "D0902"),
        ({"generic_0": "own.txt"}, {}, "D0901"),
        ({"generic_0": "gone.ll"}, {}, "D0501"),
        ({"generic_0": "own.ll"}, {"target": "cuda:sm_80"}, "D0902"),
        ({"generic_0": 3}, {}, "D0902"),
    ],
)
def test_what_cannot_be_a_kernel_is_refused(
    own: Path, kernels: dict[str, object], options: dict[str, str], code: str
) -> None:
    files = {k: str(own / v) if isinstance(v, str) else v for k, v in kernels.items()}
    with pytest.raises(DlcError) as caught:
        dlc.compile(own / "f.dlm", kernels=files, **options)  # pyright: ignore[reportArgumentType]
    assert caught.value.diagnostics[0].code in (code, "D0714")
