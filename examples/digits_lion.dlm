dlc 1
## Lion (Chen et al., 2023) trains a classifier of digits, whose labels are smoothed.
import nn (LayerNorm, Linear, label_smoothing)
dim B = 1..2048

module Residual(D) {
  use norm = LayerNorm(D)
  use up = Linear(D, 2 * D)
  use down = Linear(2 * D, D)
  fn call(x: f32[B, D]) -> f32[B, D] = x + down(silu(up(norm(x))))
}

module Classifier(D = 64, L = 2) {
  use embed = Linear(64, D)
  use blocks = L * Residual(D)
  use head = Linear(D, 10)

  fn logits(image: u8[B, 8, 8, 1]) -> f32[B, 10] {
    let x = embed(reshape(f32(image) / 16, [B, 64]))
    return head(scan block in blocks with h = x { next h = block(h) })
  }

  ## The digit on each picture.
  export fn predict(image: u8[B, 8, 8, 1]) -> i32[B] = argmax(logits(image))
}

train Classifier {
  data = npz("data/digits.npz", image="images", label="labels", test=0.2)
  loss(image: u8[B, 8, 8, 1], label: i32[B]) =
    mean(cross_entropy(logits(image), label_smoothing(label, 10)))
  metric accuracy = mean(f32(predict(image) == label))
  optimizer = lion(lr=cosine(peak=5e-4), weight_decay=0.1)
  batch = 32
  epochs = 10
  seed = 1
}
