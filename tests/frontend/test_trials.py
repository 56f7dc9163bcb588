"""What the frontend elaborates on trial, to learn a type, leaves no trace."""

from __future__ import annotations

import pytest

from dlc.frontend.elaborate import elaborate
from dlc.ir.verify import verify

LOOPS = {
    "scan": "scan i in 0..3 with n = 0, a = zeros([3]) { next n = n + 1  next a = a + r }",
    "while": "while n < 3 with n = 0, a = zeros([3]) limit 9 { next n = n + 1  next a = a + r }",
    "nested": """scan i in 0..3 with n = 0, a = zeros([3]) {
    let (.., b) = scan j in 0..2 with m = 0, b = a { next m = m + n  next b = b * r }
    next n = n + 1
    next a = if all(b > 0) then b + r else r
  }""",
}


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_a_trial_uses_nothing_of_what_stands_outside_of_the_loop(loop: str) -> None:
    text = f"dlc 1\nexport fn f(x: f32[3]) -> f32[3] {{\n  let r = sin(x)\n  let (.., a) = {loop}\n"
    verify(elaborate("f.dlm", text=f"{text}  return a\n}}\n").module)
