"""`--conv` says in which form processors compute 3 x 3 convolutions; it is kept in the artifact."""

from __future__ import annotations

import pytest

from dlc.driver.compile.settings import Settings
from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.errors import Unsupported, UsageError
from dlc.runtime.artifact.contents import Artifact

TEXT = """dlc 1
{limit}module Layer {{
  param w: f32[3, 3, 16, 16] = ones()
  export fn f(x: f32[1, {size}, {size}, 16]) -> f32[1, {size}, {size}, 16] = conv(x, w, padding=1)
}}
"""


def artifact(
    conv: str, limit: str = "", *, size: int = 4, max_memory: int | None = None
) -> Artifact:
    text = TEXT.format(limit=limit, size=size)
    settings = Settings(conv=conv, max_memory=max_memory)
    return make_artifact(CompileRequest("model.dlm", text=text, settings=settings)).artifact


def test_the_artifact_says_which_form_was_asked_for() -> None:
    flags = [artifact(conv).manifest.compiler.flags for conv in ("auto", "direct", "winograd")]
    assert [[flag for flag in found if "conv" in flag] for found in flags] == [
        [],
        ["--conv=direct"],
        ["--conv=winograd"],
    ]


def test_a_form_that_there_is_none_of_is_refused() -> None:
    with pytest.raises(UsageError, match=r"D0902.*--conv is 'fft'") as caught:
        Settings(conv="fft")
    assert "use --conv direct, winograd or auto" in str(caught.value)


def test_a_gpu_has_no_winograd_form() -> None:
    with pytest.raises(UsageError, match=r"D0902.*the target cuda:sm_80 has no Winograd form"):
        Settings(target="cuda:sm_80", conv="winograd")
    assert Settings(target="cpu+cuda:sm_80", conv="winograd").options().conv == "winograd"


def test_an_exact_model_refuses_it() -> None:
    with pytest.raises(UsageError, match=r"D0709.*limit exact and --conv winograd exclude"):
        artifact("winograd", "limit exact\n")


def test_a_memory_limit_that_the_form_does_not_keep_takes_the_direct_sum() -> None:
    most = 150_000
    assert artifact("auto", size=32, max_memory=most).manifest.promise is not None
    with pytest.raises(Unsupported, match=r"D0706.*a call of f needs"):
        artifact("winograd", size=32, max_memory=most)


GRADIENT = """dlc 1
fn loss(x: f32[16, 32, 32, 16], w: f32[3, 3, 16, 16]) -> f32 {
  let a = conv(x, w, padding=1)
  let b = conv(sin(a), w, padding=1)
  let c = conv(sin(b), w, padding=1)
  return sum(sin(c))
}
export fn f(x: f32[16, 32, 32, 16], w: f32[3, 3, 16, 16]) -> f32[3, 3, 16, 16] = grad(loss, wrt=w)(x, w)
"""


@pytest.mark.long
def test_within_a_limit_gradients_keep_the_form_that_needs_no_matrix_of_windows() -> None:
    """The limit is kept with more recomputation and Winograd's form, where direct sums need 13 MB."""
    most = 4_000_000
    request = CompileRequest("gradient.dlm", text=GRADIENT, settings=Settings(max_memory=most))
    assert make_artifact(request).artifact.manifest.promise is not None


@pytest.mark.parametrize("conv", ["direct", "winograd"])
def test_no_kernel_writes_the_zeros_around_pictures(conv: str) -> None:
    plan = bytes(artifact(conv).section("plan")).decode().partition("weight.derived")[0]
    assert plan.count('"kernel.conv"') == plan.count('"mem.constant"') == 1
    assert plan.count('"mem.wave"') == 1
    assert '"kernel.generic"' not in plan
