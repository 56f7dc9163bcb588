dlc 1
## A decoder as Llama (Touvron et al., 2023; grouped queries as in Llama 2 and 3), of 55 million parameters.
## Its keys and values are `inout`: a call puts those of its tokens into the cache, and copies nothing.
import nn (GroupedAttention, Linear, RMSNorm)
dim B = 1..64
## How many tokens one call takes: a longer prompt comes in several.
dim T = 1..1024
## How many tokens the cache has room for.
dim S = 1..131072

module Block(D, H, G, hidden, F: dtype = f32) {
  use norm1 = RMSNorm(D, F=F)
  use attn = GroupedAttention(D, H, G, F=F)
  use norm2 = RMSNorm(D, F=F)
  use gate = Linear(D, hidden, bias=false, F=F)
  use up = Linear(D, hidden, bias=false, F=F)
  use down = Linear(hidden, D, bias=false, F=F)

  fn call(x: F[B, T, D]) -> F[B, T, D] = mlp(x + attn(norm1(x)))

  ## The same of tokens from position `p` on; those before them are in the caches.
  fn step(x: F[B, T, D], ks: F[B, G, S, D // H], vs: F[B, G, S, D // H], p: i32) {
    let (y, keys, values) = attn.step(norm1(x), ks, vs, p)
    return (x = mlp(x + y), keys = keys, values = values)
  }

  fn mlp(x: F[B, T, D]) -> F[B, T, D] {
    let n = norm2(x)
    return x + down(silu(gate(n)) * up(n))
  }
}

module Llama(V = 32000, D = 512, H = 8, G = 2, L = 8, hidden = 1376, F: dtype = f32) {
  param tokens: F[V, D] = normal(0.02)
  use blocks = L * Block(D, H, G, hidden, F)
  use last = RMSNorm(D, F=F)
  use head = Linear(D, V, bias=false, F=F)

  ## How likely each token comes after each place of `ids`.
  fn logits(ids: u8[B, T]) -> f32[B, T, V] {
    let h = scan block in blocks with x = tokens[ids] { next x = block(x) }
    return f32(head(last(h)))
  }

  ## How likely each token comes after `ids`, of which the first stands at position `p`.
  export fn step(ids: i32[B, T], p: i32 = 0, inout ks: F[L, B, G, S, D // H],
                 inout vs: F[L, B, G, S, D // H]) -> f32[B, V] {
    let (y, keys, values) = scan (block, k, v) in (blocks, ks, vs) with x = tokens[ids] {
      let (h, k2, v2) = block.step(x, k, v, p)
      next x = h
      yield (k2, v2)
    }
    set ks = keys
    set vs = values
    return f32(head(last(y[:, -1])))
  }
}

## The bytes of a text are its tokens: `--set V=256`, and what else makes it small.
train Llama {
  data = text("data/shakespeare.txt", ids=window(65), test=0.1)
  loss(ids: u8[B, T]) = mean(cross_entropy(logits(ids[:, :-1]), ids[:, 1:]))
  metric bits_per_byte = loss / log(2)
  optimizer = adamw(lr=cosine(peak=3e-3, warmup=50), clip_norm=1)
  batch = 32
  epochs = 5
  seed = 1
}
