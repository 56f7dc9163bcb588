dlc 1
## Sequence to sequence with attention (Bahdanau et al., 2015; Luong et al., 2015): spelling backwards.
import nn (Embedding, GRU, Linear)
dim B = 1..1024
dim T = 2..128

module Seq2Seq(V = 128, D = 32, H = 64) {
  use letters = Embedding(V, D)
  use encoder = GRU(D, H, biases=2)
  use decoder = GRU(D, H, biases=2)
  use score = Linear(H, H, bias=false)
  use mix = Linear(2 * H, H)
  use head = Linear(H, V)

  ## Logits of what follows states `h`, which look at `memory`, the states of the source.
  fn attend(h: f32[B, S, H], memory: f32[B, T, H]) -> f32[B, S, V] {
    let weight = softmax(einsum("bsd,btd->bst", score(h), memory))
    let seen = einsum("bst,btd->bsd", weight, memory)
    return head(tanh(mix(concat([h, seen], axis=-1))))
  }

  ## Logits of the target, each letter from those before it; 0 stands before the first.
  fn logits(source: u8[B, T], target: u8[B, T]) -> f32[B, T, V] {
    let r = encoder(letters(source))
    let before = pad(target[:, :-1], [(0, 0), (1, 0)])
    return attend(decoder(letters(before), r.h).y, r.y)
  }

  ## What the network makes of each source, the most likely letter at a time.
  export fn translate(source: u8[B, T]) -> u8[B, T] {
    let r = encoder(letters(source))
    let (.., text) = scan t in 0..T along 1 with h = r.h, id = zeros([B], u8) {
      let h2 = decoder(letters(id[:, new]), h).h
      let best = u8(argmax(attend(h2[:, new], r.y)[:, 0]))
      next h = h2
      next id = best
      yield best
    }
    return text
  }
}

train Seq2Seq {
  data = text("data/shakespeare.txt", ids=window(9), limit=10_000, test=0.1)
  loss(ids: u8[B, T]) = mean(cross_entropy(logits(ids, flip(ids, axis=1)), flip(ids, axis=1)))
  metric letters_right = mean(f32(translate(ids) == flip(ids, axis=1)))
  optimizer = adam(lr=cosine(peak=1e-2), clip_norm=1)
  batch = 64
  epochs = 5
  seed = 1
}
