"""`--matmul-precision` says how a GPU multiplies f32; it is kept in the artifact, and refused elsewhere."""

from __future__ import annotations

import pytest

import dlc
from dlc.driver.compile.code_maker import PTX
from dlc.driver.compile.settings import Settings
from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.errors import UsageError
from dlc.runtime.artifact.contents import Artifact

TEXT = """dlc 1
{limit}export fn f(x: f32[24, 40], y: f32[40, 16]) -> f32[24, 16] = x @ y
"""


def artifact(precision: str, limit: str = "") -> Artifact:
    settings = Settings(target="cuda", matmul_precision=precision)
    text = TEXT.format(limit=limit)
    return make_artifact(CompileRequest("model.dlm", text=text, settings=settings)).artifact


def test_f32_is_multiplied_as_tf32_where_that_is_asked_for() -> None:
    instruction = b"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
    ptx = [bytes(artifact(precision).section(PTX)) for precision in ("ieee", "tf32")]
    assert [instruction in text for text in ptx] == [False, True]


def test_the_artifact_says_which_precision_its_products_have() -> None:
    flags = [artifact(precision).manifest.compiler.flags for precision in ("ieee", "tf32")]
    assert ["--matmul-precision=tf32" in found for found in flags] == [False, True]


@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64-v3"])
def test_a_processor_has_no_tf32(target: str) -> None:
    with pytest.raises(UsageError, match=rf"D0902.*{target} multiplies f32 as it is") as caught:
        Settings(target=target, matmul_precision="tf32")
    assert "--target cuda" in str(caught.value)


def test_both_together_may_have_tf32() -> None:
    assert Settings(target="cpu+cuda", matmul_precision="tf32").options().matmul_precision == "tf32"


def test_a_precision_that_there_is_none_of_is_refused() -> None:
    with pytest.raises(UsageError, match=r"D0902.*--matmul-precision is 'half'"):
        Settings(target="cuda", matmul_precision="half")
    with pytest.raises(UsageError) as caught:
        dlc.compile(text=TEXT.format(limit=""), matmul_precision="half")
    assert 'use matmul_precision="ieee" or "tf32"' in str(caught.value)


def test_an_exact_model_refuses_it() -> None:
    with pytest.raises(UsageError, match=r"D0709.*limit exact and --matmul-precision tf32 exclude"):
        artifact("tf32", "limit exact\n")
