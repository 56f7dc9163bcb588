dlc 1
## Sentences as vectors of length 1, with the sizes of all-MiniLM-L6-v2: six layers as in BERT (Devlin et
## al., 2018), which norm what they have added, and the mean over all tokens; 22,564,608 weights.
import nn (Linear, LayerNorm, Attention)
dim B = 1..256
dim T = 1..512

module Block(D, H, F: dtype = f32) {
  use attn = Attention(D, H, F=F)
  use norm1 = LayerNorm(D, F=F)
  use up = Linear(D, 4 * D, F=F)
  use down = Linear(4 * D, D, F=F)
  use norm2 = LayerNorm(D, F=F)

  fn call(x: F[B, T, D]) -> F[B, T, D] {
    let y = norm1(x + attn(x))
    return norm2(y + (y |> up |> gelu |> down))
  }
}

module MiniLM(V = 30522, D = 384, H = 12, L = 6, F: dtype = f32) {
  param tokens: F[V, D] = normal(0.02)
  param positions: F[512, D] = normal(0.02)
  use first = LayerNorm(D, F=F)
  use blocks = L * Block(D, H, F)

  ## What each sentence is about; sentences that mean the same have a product of about 1.
  export fn meaning(ids: i32[B, T]) -> f32[B, D] {
    let x = first(tokens[ids] + positions[0:T])
    let y = scan block in blocks with h = x { next h = block(h) }
    let middle = mean(f32(y), axis=1)
    return middle / sqrt(sum(middle * middle, axis=-1, keepdims=true))
  }
}
