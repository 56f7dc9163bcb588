dlc 1
## A byte-level LSTM language model: learns a text, then writes more of it.
import nn (Linear)
dim B = 1..64
dim T = 2..512
dim N = 1..2000

module LSTM(I, H) {
  param wx: f32[I, 4 * H] = glorot_uniform()
  param wh: f32[H, 4 * H] = orthogonal()
  param b: f32[4 * H] = zeros()

  ## One step; gx is x @ wx + b of that step.
  fn step(gx: f32[B, 4 * H], h: f32[B, H], c: f32[B, H]) -> (f32[B, H], f32[B, H]) {
    let (i, f, o, g) = split(gx + h @ wh, 4, axis=-1)
    let c = sigmoid(f + 1) * c + sigmoid(i) * tanh(g)
    return (sigmoid(o) * tanh(c), c)
  }

  fn call(x: f32[B, T, I]) -> (y: f32[B, T, H], h: f32[B, H], c: f32[B, H]) {
    let (h, c, y) = scan gx in x @ wx + b along 1 with h = zeros([B, H]), c = zeros([B, H]) {
      let (h2, c2) = step(gx, h, c)
      next h = h2
      next c = c2
      yield h2
    }
    return (y = y, h = h, c = c)
  }
}

module ByteLM(V = 256, E = 64, H = 256) {
  param emb: f32[V, E] = normal(0.02)
  use rnn = LSTM(E, H)
  use head = Linear(H, V)

  fn scores(ids: u8[B, T]) -> f32[B, T, V] = head(rnn(emb[ids]).y)

  ## Continue each text by N bytes, drawn with the caller's `seed`.
  export fn write(ids: u8[B, T], temperature: f32 = 0.8) -> (text: u8[B, N]) {
    let r = rnn(emb[ids])
    let (.., text) = scan t in 0..N along 1 with h = r.h, c = r.c, s = head(r.h) {
      let id = u8(categorical(s / temperature))
      let (h2, c2) = rnn.step(emb[id] @ rnn.wx + rnn.b, h, c)
      next h = h2
      next c = c2
      next s = head(h2)
      yield id
    }
    return text
  }
}

train ByteLM {
  data = text("data/shakespeare.txt", ids=window(65), test=0.1)
  loss(ids: u8[B, T]) = mean(cross_entropy(scores(ids[:, :-1]), ids[:, 1:]))
  metric bits_per_byte = loss / log(2)
  optimizer = adam(lr=cosine(peak=5e-3), clip_norm=1)
  batch = 32
  epochs = 5
  seed = 1
}
