dlc 1
## A small pre-norm transformer with tied output weights.
import nn (Linear, LayerNorm)
dim B = 1..64
dim T = 1..1024

module Attention(D, H) {
  require D % H == 0, "the heads must divide the width"
  use qkv = Linear(D, 3 * D)
  use out = Linear(D, D)
  fn call(x: f32[B, T, D]) -> f32[B, T, D] {
    let (q, k, v) = rearrange(qkv(x), "b t (n h d) -> n b h t d", n=3, h=H)
    let s = einsum("bhid,bhjd->bhij", q, k) * (D / H) ** -0.5
    let a = softmax(where(tril(T), s, -inf), axis=-1)
    return einsum("bhij,bhjd->bihd", a, v) |> reshape([B, T, D]) |> out
  }
}
module Block(D, H) {
  use n1 = LayerNorm(D)  use attn = Attention(D, H)
  use n2 = LayerNorm(D)  use up = Linear(D, 4 * D)  use down = Linear(4 * D, D)
  fn call(x: f32[B, T, D]) -> f32[B, T, D] {
    let y = x + attn(n1(x))
    return y + (n2(y) |> up |> gelu |> down)
  }
}
module TinyGPT(V = 256, D = 128, H = 4, L = 6) from "tiny.safetensors" {
  param emb: f32[V, D] = normal(0.02)
  use blocks = L * Block(D, H)
  export fn logits(ids: i32[B, T]) -> f32[B, T, V] {
    let h = scan blk in blocks with h = emb[ids] { next h = blk(h) }
    return h @ transpose(emb)
  }
}
