dlc 1
## A vision transformer (Dosovitskiy et al., 2021) reads handwritten digits as sixteen patches.
import nn (Attention, LayerNorm, LearnedPositions, Linear)
dim B = 1..2048

module Block(D, H) {
  use norm1 = LayerNorm(D)
  use attn = Attention(D, H)
  use norm2 = LayerNorm(D)
  use mlp = chain(Linear(D, 4 * D), gelu, Linear(4 * D, D))

  fn call(x: f32[B, T, D]) -> f32[B, T, D] {
    let y = x + attn(norm1(x))
    return y + mlp(norm2(y))
  }
}

module ViT(D = 48, H = 4, L = 3, P = 2) {
  const patches = (8 // P) * (8 // P)
  param class_token: f32[D] = normal(0.02)
  use embed = Linear(P * P, D)
  use positions = LearnedPositions(patches + 1, D)
  use blocks = L * Block(D, H)
  use last = LayerNorm(D)
  use head = Linear(D, 10)

  fn logits(image: u8[B, 8, 8, 1]) -> f32[B, 10] {
    let pieces = rearrange(f32(image) / 16, "b (h p) (w q) c -> b (h w) (p q c)", p=P, q=P)
    let first = broadcast(class_token, [B, 1, D])
    let x = positions(concat([first, embed(pieces)], axis=1))
    let h = scan block in blocks with h = x { next h = block(h) }
    return head(last(h[:, 0]))
  }

  ## The digit on each picture.
  export fn predict(image: u8[B, 8, 8, 1]) -> i32[B] = argmax(logits(image))
}

train ViT {
  data = npz("data/digits.npz", image="images", label="labels", test=0.2)
  loss(image: u8[B, 8, 8, 1], label: i32[B]) = mean(cross_entropy(logits(image), label))
  metric accuracy = mean(f32(predict(image) == label))
  optimizer = adamw(lr=cosine(peak=3e-3, warmup=45), clip_norm=1)
  batch = 32
  epochs = 15
  seed = 1
}
