"""What fuzzing has found, each a diagnostic now."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlc.driver.report.show import Shown, show_stage
from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.driver.source.open import open_model
from dlc.errors import ArtifactError, ModelError
from tests.runtime import building
from tests.runtime.artifact.sealing import put_together, take_apart

TEXTS = [
    ("export fn f(x: f32[9223372036854775808]) -> f32 = sum(x)", "D0329", r"is beyond 2\*\*62"),
    (
        "dim B = 1..4\nexport fn f(x: f32[B]) -> f32[9223372036854775807*B*2] = x",
        "D0329",
        r"is beyond 2\*\*62",
    ),
    ("export fn f(x: f32) -> f32 = on cuda:1 x { x }", "D0110", "expected `{`, found `x`"),
    ("export fn f(x: f32[2]) -> f32[2] = x + ones([2, -2])", "D0329", "a size cannot be -2"),
    (
        "dim B = a..4\nlet (a, b) = sort(no)\nexport fn f(x: f32[B]) -> f32[B] = x",
        "D0201",
        "no here",
    ),
    ("mesh m=a\nlet (a, b) = sort(no)\nexport fn f(x: f32) -> f32 = x", "D0201", "no here"),
    *[
        (
            f"module M {{\n  {params}\n  export fn f() -> f32 = 1\n}}",
            "D0214",
            "a is defined by itself",
        )
        for params in (
            "param a: a[4] = zeros()",
            "param a: f32[size(b, 0)] = zeros()\n  param b: f32[size(a, 0)] = zeros()",
            "param a: f32[4] = constant(a)",
        )
    ],
]


@pytest.mark.parametrize(("text", "code", "message"), TEXTS)
def test_a_text_is_refused(text: str, code: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        open_model("found.dlm", text=f"dlc 1\n{text}\n")
    assert caught.value.diagnostics[0].code == code


def test_an_empty_product_of_an_unknown_number_of_rows_is_compiled() -> None:
    text = """dlc 1
dim B = 1..4
module Net {
  param w: f32[3, 0] = zeros()
  param v: f32[0, 2] = zeros()
  export fn f(x: f32[B, 3]) -> f32[B, 2] = relu(x @ w + 1) @ v
}
"""
    make_artifact(CompileRequest("empty.dlm", text=text))


@pytest.mark.parametrize(
    ("written", "wrong", "message"),
    [
        ("over = array<i64: 0>", "over = array<i64: 9>", "cannot lie over the one numbered 9"),
        ("writes = 1", "writes = 7", "cannot write 7 of them"),
        ("writes = 1", "writes = -1", "cannot write -1 of them"),
    ],
)
def test_a_call_of_views_that_it_has_not_is_refused(
    tmp_path: Path, written: str, wrong: str, message: str
) -> None:
    text = "dlc 1\nexport fn f(x: f32[64]) -> f32[64] = x + 1\n"
    shown = show_stage(CompileRequest("f.dlm", text=text), Shown("loop"))
    assert "mem.call" in shown and written in shown
    path = tmp_path / "f.dlir"
    path.write_text(shown.replace(written, wrong, 1))
    with pytest.raises(ModelError, match=message):
        open_model(path)


def test_a_graph_in_an_artifact_that_is_no_text_is_refused(tmp_path: Path) -> None:
    manifest, sections = take_apart(building.tiny().artifact().to_bytes())
    file = tmp_path / "damaged.dlc"
    file.write_bytes(put_together(manifest, {**sections, "graph": b"module \xff {}"}))
    with pytest.raises(
        ArtifactError, match=r"section graph at byte \d+: it is not UTF-8"
    ) as caught:
        open_model(file)
    assert caught.value.diagnostics[0].code == "D0611"


SUM = """dlc 1
module Net {
  param w: f32[64, 32] = zeros()
  export fn f(x: f32[64, 64]) -> f32[64] = sum(sort(x @ w), axis=1)
}
"""
CHANGES = [
    ("plan", "offset = 0 : i64", "offset = 4294967296 : i64", "D0164"),
    ("loop", "offset = 8192 : i64", "offset = 8128 : i64", "D0164"),
    ("loop", '"64">, offset = 0 : i64', '"64">, offset = -1 : i64', "D0164"),
    ("loop", 'kind = "input", number = 0', 'kind = "input", number = 7', "D0164"),
    ("loop", "tiles = 1 : i64", "tiles = -1 : i64", "D0164"),
    ("loop", 'sym_name = "f"', r'sym_name = "f\00"', "D0301"),
    ("graph", "stacked = 0 : i64", "stacked = 9 : i64", "D0301"),
]


@pytest.mark.parametrize(("stage", "old", "new", "code"), CHANGES)
def test_ir_that_says_what_cannot_be_is_refused(
    stage: str, old: str, new: str, code: str, tmp_path: Path
) -> None:
    text = show_stage(CompileRequest("sum.dlm", text=SUM), Shown(stage))
    assert old in text
    file = tmp_path / "sum.dlir"
    file.write_text(text.replace(old, new))
    with pytest.raises(ModelError) as caught:
        make_artifact(CompileRequest(str(file), trust_ir=True))
    assert caught.value.diagnostics[0].code == code


def test_a_module_in_a_module_is_refused(tmp_path: Path) -> None:
    inner = '"builtin.module"() ({}) : () -> ()'
    for text in (f"{inner}\n{inner}\n", f'"builtin.module"() ({{ {inner} }}) : () -> ()'):
        path = tmp_path / "found.dlir"
        path.write_text(text)
        with pytest.raises(ModelError, match="a module is in another module"):
            open_model(path)
