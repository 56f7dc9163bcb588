dlc 1
## A small transformer learns Shakespeare byte by byte, then writes more of it.
import nn (Linear, LayerNorm, Attention, Dropout)
dim B = 1..64
dim T = 2..256
dim N = 1..2000

module Block(D, H) {
  use n1 = LayerNorm(D)
  use attn = Attention(D, H, causal=true)
  use n2 = LayerNorm(D)
  use up = Linear(D, 4 * D)
  use down = Linear(4 * D, D)
  use drop = Dropout(0.1)

  fn call(x: f32[B, T, D]) -> f32[B, T, D] {
    let y = x + drop(attn(n1(x)))
    return y + drop(n2(y) |> up |> gelu |> down)
  }
}

module CharGPT(V = 128, D = 64, H = 4, L = 2, context = 64) {
  param emb: f32[V, D] = normal(0.02)
  param place: f32[context, D] = normal(0.02)
  use blocks = L * Block(D, H)
  use final = LayerNorm(D)

  ## How likely each byte comes next, behind each of the bytes.
  fn scores(ids: u8[B, T]) -> f32[B, T, V] {
    let h = scan block in blocks with h = emb[ids] + place[:T] { next h = block(h) }
    return final(h) @ transpose(emb)
  }

  ## Continue each text by N bytes, drawn with the caller's `seed`; the last `context` bytes are seen.
  export fn write(ids: u8[B, T], temperature: f32 = 0.8) -> (text: u8[B, N]) {
    let before = full([B, context], 10, u8)
    let (.., text) = scan t in 0..N
        along 1
        with window = concat([before, ids], axis=1)[:, -context:] {
      let id = u8(categorical(scores(window)[:, -1] / temperature))
      next window = concat([window[:, 1:], id[:, new]], axis=1)
      yield id
    }
    return text
  }
}

train CharGPT {
  data = text("data/shakespeare.txt", ids=window(65), test=0.1)
  loss(ids: u8[B, T]) = mean(cross_entropy(scores(ids[:, :-1]), ids[:, 1:]))
  metric bits_per_byte = loss / log(2)
  optimizer = adamw(lr=cosine(peak=3e-3, warmup=50), clip_norm=1)
  batch = 32
  epochs = 5
  seed = 1
}
