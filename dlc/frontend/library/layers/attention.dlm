dlc 1
## Attention with several heads.
import "dense.dlm" (Linear)
import "positions.dlm" (rope)

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

## Causal attention with rotary positions in which `heads // key_heads` queries share one head of keys and
## values (Ainslie and others, 2023), as in Llama. `step` is for generation: x has the T places from
## `position` on, `keys` and `values` are caches [B, key_heads, S, d] of the places before; it gives y and
## both caches with the new places, and costs as S does.
## Example: `GroupedAttention(8, 4, 2)` f32[2, 5, 8] -> f32[2, 5, 8]
module GroupedAttention(width, heads, key_heads, bias = false, base = 10000.0, F: dtype = f32) {
  require width % heads == 0, "the heads must divide the width"
  require heads % key_heads == 0, "the heads of keys must divide the heads"
  const d = width // heads
  const group = heads // key_heads
  use q = Linear(width, width, bias=bias, F=F)
  use k = Linear(width, key_heads * d, bias=bias, F=F)
  use v = Linear(width, key_heads * d, bias=bias, F=F)
  use out = Linear(width, width, bias=bias, F=F)

  fn call(x: F[B, T, width]) -> F[B, T, width] {
    let places = arange(T)
    let (keys, values) = (rope(split_heads(k(x)), places, base=base), split_heads(v(x)))
    return attended(x, places, keys, values, none)
  }

  fn step(x: F[B, T, width], keys: F[B, key_heads, S, d], values: F[B, key_heads, S, d],
          position: i32) -> (y: F[B, T, width], keys: F[B, key_heads, S, d],
                             values: F[B, key_heads, S, d]) {
    let places = position + arange(T)
    let ks = update(keys, at=[:, :, places], rope(split_heads(k(x)), places, base=base))
    let vs = update(values, at=[:, :, places], split_heads(v(x)))
    return (y = attended(x, places, ks, vs, position + T), keys = ks, values = vs)
  }

  ## [B, T, key_heads * d] as [B, key_heads, T, d].
  fn split_heads(x) = rearrange(x, "b t (h d) -> b h t d", d=d)

  fn attended(x, places, keys, values, length) {
    let query = rearrange(q(x), "b t (h g d) -> b h g t d", g=group, d=d) |> rope(places, base=base)
    return attention(query, keys[:, :, new], values[:, :, new], causal=true, lengths=length)
             |> rearrange("b h g t d -> b t (h g d)")
             |> out
  }
}
