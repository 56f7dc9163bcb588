dlc 1
## A transformer that foretells the next token, as GPT-2 (Radford et al., 2019): pre-norm blocks,
## learned positions, output weights tied to the embedding.
import nn (Linear, LayerNorm, Attention)
dim B = 1..256
dim T = 1..128

module Block(D, H, F: dtype = f32) {
  use norm1 = LayerNorm(D, F=F)
  use attn = Attention(D, H, causal=true, F=F)
  use norm2 = LayerNorm(D, F=F)
  use up = Linear(D, 4 * D, F=F)
  use down = Linear(4 * D, D, F=F)

  fn call(x: F[B, T, D]) -> F[B, T, D] {
    let y = x + attn(norm1(x))
    return y + (norm2(y) |> up |> gelu |> down)
  }
}

module GPT(V = 256, D = 256, H = 4, L = 4, F: dtype = f32) {
  param tokens: F[V, D] = normal(0.02)
  param positions: F[128, D] = normal(0.02)
  use blocks = L * Block(D, H, F)
  use last = LayerNorm(D, F=F)

  ## How likely each token is to come next, at every place.
  export fn logits(ids: i32[B, T]) -> f32[B, T, V] {
    let x = tokens[ids] + positions[0:T]
    let y = scan block in blocks with h = x { next h = block(h) }
    return f32(last(y) @ transpose(tokens))
  }
}

train GPT {
  data = npz(ids="ids")
  loss(ids: i32[B, T + 1]) = mean(cross_entropy(logits(ids[:, :-1]), ids[:, 1:]))
  optimizer = adam(lr=1e-3)
  batch = 8
  epochs = 10
  seed = 1
}
