dlc 1
## Attention with several heads.
import "dense.dlm" (Linear)

## Every place of a sequence looks at all places, or with `causal` at those up to itself.
## Example: `Attention(8, 2, causal=true)` f32[2, 5, 8] -> f32[2, 5, 8]
module Attention(width, heads, causal = false, bias = true, F: dtype = f32) {
  require width % heads == 0, "the heads must divide the width"
  use qkv = Linear(width, 3 * width, bias=bias, F=F)
  use out = Linear(width, width, bias=bias, F=F)

  fn call(x: F[B, T, width]) -> F[B, T, width] {
    let (q, k, v) = rearrange(qkv(x), "b t (n h d) -> n b h t d", n=3, h=heads)
    return attention(q, k, v, causal=causal) |> rearrange("b h t d -> b t (h d)") |> out
  }
}
