dlc 1
## A decoder as Llama (Touvron et al., 2023; grouped queries as in Llama 2 and 3), of 55 million parameters.
## Its keys and values are `inout`: a call puts those of its tokens into the cache, and copies nothing.
import nn (Linear, RMSNorm)
dim B = 1..64
dim T = 1..4096
## How many tokens the cache has room for.
dim S = 1..131072

module Attention(D, H, G, theta = 10000, F: dtype = f32) {
  require H % G == 0, "the groups must divide the heads"
  const W = D // H
  use query = Linear(D, D, bias=false, F=F)
  use key = Linear(D, G * W, bias=false, F=F)
  use value = Linear(D, G * W, bias=false, F=F)
  use out = Linear(D, D, bias=false, F=F)

  fn heads(x: F[B, T, N], count) -> F[B, count, T, W] =
    permute(reshape(x, [B, T, count, W]), [0, 2, 1, 3])

  ## Rotary positions (Su et al., 2021): each pair of numbers, half a row apart, turns with the position.
  fn rotary(x: F[.., T, W], p: i32) -> F[.., T, W] {
    let angles = f32(p + arange(T))[:, new] * theta ** (-2 / W * f32(arange(W // 2)))
    let (c, s) = (F(cos(angles)), F(sin(angles)))
    let (a, b) = (x[.., :W // 2], x[.., W // 2:])
    return concat([a * c - b * s, a * s + b * c], axis=-1)
  }

  ## G heads of keys and values, each for H / G heads of queries.
  fn call(x: F[B, T, D], p: i32, ks: F[B, G, S, W], vs: F[B, G, S, W]) {
    let keys = update(ks, rotary(heads(key(x), G), p), at=[:, :, p + arange(T)])
    let values = update(vs, heads(value(x), G), at=[:, :, p + arange(T)])
    let q = reshape(rotary(heads(query(x), H), p), [B, G, H // G, T, W])
    let y = attention(q, keys[:, :, new], values[:, :, new], causal=true, lengths=p + T)
    let joined = reshape(permute(reshape(y, [B, H, T, W]), [0, 2, 1, 3]), [B, T, D])
    return (y = out(joined), ks = keys, vs = values)
  }
}

module Block(D, H, G, hidden, F: dtype = f32) {
  use norm1 = RMSNorm(D, F=F)
  use attn = Attention(D, H, G, F=F)
  use norm2 = RMSNorm(D, F=F)
  use gate = Linear(D, hidden, bias=false, F=F)
  use up = Linear(D, hidden, bias=false, F=F)
  use down = Linear(hidden, D, bias=false, F=F)

  fn call(x: F[B, T, D], p: i32, ks: F[B, G, S, D // H], vs: F[B, G, S, D // H]) {
    let (y, keys, values) = attn(norm1(x), p, ks, vs)
    let h = x + y
    let n = norm2(h)
    return (x = h + down(silu(gate(n)) * up(n)), ks = keys, vs = values)
  }
}

module Llama(V = 32000, D = 512, H = 8, G = 2, L = 8, hidden = 1376, F: dtype = f32) {
  param tokens: F[V, D] = normal(0.02)
  use blocks = L * Block(D, H, G, hidden, F)
  use last = RMSNorm(D, F=F)
  use head = Linear(D, V, bias=false, F=F)

  ## How likely each token comes after `ids`, of which the first stands at position `p`.
  export fn step(ids: i32[B, T], p: i32 = 0, inout ks: F[L, B, G, S, D // H],
                 inout vs: F[L, B, G, S, D // H]) -> f32[B, V] {
    let (y, keys, values) = scan (block, k, v) in (blocks, ks, vs) with x = tokens[ids] {
      let (next_x, k2, v2) = block(x, p, k, v)
      next x = next_x
      yield k2
      yield v2
    }
    set ks = keys
    set vs = values
    return f32(head(last(y[:, -1])))
  }
}
