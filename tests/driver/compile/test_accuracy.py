"""`--accuracy` says how a GPU computes functions of f32; artifacts keep it, and it is refused elsewhere."""

from __future__ import annotations

import pytest

import dlc
from dlc.driver.compile.code_maker import PTX
from dlc.driver.compile.flags import settings_of_flags
from dlc.driver.compile.settings import Settings
from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.errors import UsageError
from dlc.runtime.artifact.contents import Artifact

TEXT = """dlc 1
{limit}export fn f(x: {dtype}[24, 40]) -> {dtype}[24, 40] = softmax(sqrt(abs(x) + 1))
"""


def artifact(accuracy: str, limit: str = "", dtype: str = "f32") -> Artifact:
    settings = Settings(target="cuda", accuracy=accuracy)
    text = TEXT.format(limit=limit, dtype=dtype)
    return make_artifact(CompileRequest("model.dlm", text=text, settings=settings)).artifact


@pytest.mark.parametrize("instruction", [b"ex2.approx", b"div.full.f32", b"sqrt.approx.f32"])
def test_functions_of_f32_are_approximate_where_that_is_asked_for(instruction: bytes) -> None:
    ptx = [bytes(artifact(accuracy).section(PTX)) for accuracy in ("default", "fast")]
    assert [instruction in text for text in ptx] == [False, True]


def test_a_fast_kernel_rounds_numbers_of_16_bits_once() -> None:
    roundings = [
        bytes(artifact(accuracy, dtype="bf16").section(PTX)).count(b"cvt.rn.bf16")
        for accuracy in ("default", "fast")
    ]
    assert roundings[1] < roundings[0]


def test_the_artifact_says_how_accurate_it_is() -> None:
    flags = [artifact(accuracy).manifest.compiler.flags for accuracy in ("default", "fast")]
    assert ["--accuracy=fast" in found for found in flags] == [False, True]
    assert settings_of_flags(flags[1]).accuracy == "fast"


def test_a_processor_has_no_approximate_instructions() -> None:
    with pytest.raises(UsageError, match=r"D0902.*cpu has no approximate instructions") as caught:
        Settings(target="cpu", accuracy="fast")
    assert "--target cuda" in str(caught.value)


def test_beside_a_processor_numbers_of_16_bits_are_rounded_as_there() -> None:
    found = Settings(target="cpu+cuda", accuracy="fast").options()
    assert (found.accuracy, found.fast_narrow) == ("fast", False)


def test_an_accuracy_that_there_is_none_of_is_refused() -> None:
    with pytest.raises(UsageError, match=r"D0902.*--accuracy is 'exact'"):
        Settings(target="cuda", accuracy="exact")
    with pytest.raises(UsageError) as caught:
        dlc.compile(text=TEXT.format(limit="", dtype="f32"), accuracy="exact")
    assert 'use accuracy="default" or "fast"' in str(caught.value)


def test_an_exact_model_refuses_it() -> None:
    with pytest.raises(UsageError, match=r"D0709.*limit exact and --accuracy fast exclude"):
        artifact("fast", "limit exact\n")
