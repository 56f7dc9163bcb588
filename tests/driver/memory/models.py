"""Small models whose memory can be told by hand, and what `dlc memory` finds in them."""

from __future__ import annotations

from functools import cache

from dlc.driver.memory.asked import MemoryRequest, ModelMemory, memory_of
from dlc.driver.run.request import CompileRequest

CHAIN = """dlc 1
dim B = 1..64
## Sorted running sums.
export fn f(x: f32[B, 16]) -> f32[B, 16] {
  let sums = cumsum(x, axis=1)
  let sorted = sort(sums, axis=1)
  let twice = exp(sorted)
  return cumsum(twice, axis=1)
}
export fn small(x: f32[4]) -> f32[4] = x * 2
"""
"""At each of the two inner moments two arrays of 64 bytes a row are in use; `twice` is in place."""

TRAINED = """dlc 1
import nn (Linear)
dim B = 1..4096

module Small(hidden = 32) {
  use a = Linear(16, hidden)
  use b = Linear(hidden, 4)
  fn call(x: f32[B, 16]) -> f32[B, 4] = b(tanh(a(x)))
  export fn best(x: f32[B, 16]) -> i32[B] = argmax(call(x), axis=1)
}

train Small {
  data = npz("data.npz", x="x", label="label")
  loss(x: f32[B, 16], label: i32[B]) = mean(cross_entropy(call(x), label))
  optimizer = adam()
  batch = 64
}
"""


@cache
def chain(**dims: int) -> ModelMemory:
    """What is found in the chain, compiled as it is written."""
    return found(CHAIN, None, **dims)


def asked(text: str, entry: str | None = None, **dims: int) -> MemoryRequest:
    """A question about a text."""
    return MemoryRequest(CompileRequest("m.dlm", text=text), entry, dims)


def found(text: str, entry: str | None = None, **dims: int) -> ModelMemory:
    """The answer."""
    return memory_of(asked(text, entry, **dims))
