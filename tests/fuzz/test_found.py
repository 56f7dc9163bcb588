"""What fuzzing has found, each a diagnostic now."""

from __future__ import annotations

import pytest

from dlc.driver.open import open_model
from dlc.errors import ModelError

TEXTS = [
    ("export fn f(x: f32[9223372036854775808]) -> f32 = sum(x)", "D0329", "does not fit 64 bits"),
    (
        "dim B = 1..4\nexport fn f(x: f32[B]) -> f32[9223372036854775807*B*2] = x",
        "D0329",
        "does not fit 64 bits",
    ),
    ("export fn f(x: f32) -> f32 = on cuda:1 x { x }", "D0110", "expected `{`, found `x`"),
]


@pytest.mark.parametrize(("text", "code", "message"), TEXTS)
def test_a_text_is_refused(text: str, code: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        open_model("found.dlm", text=f"dlc 1\n{text}\n")
    assert caught.value.diagnostics[0].code == code
