dlc 1
## Contrastive learning of two encoders as in CLIP (Radford et al., 2021): which lower half of a digit goes
## with which upper half.
import nn (Linear, clip_loss)
dim B = 1..2048

module Halves(hidden = 128, code = 32) {
  use upper = chain(Linear(32, hidden), relu, Linear(hidden, code))
  use lower = chain(Linear(32, hidden), relu, Linear(hidden, code))
  param log_scale: f32 = 2.0

  ## The codes of the upper and of the lower halves, of length 1.
  export fn encode(image: u8[B, 8, 8, 1]) -> (above: f32[B, code], below: f32[B, code]) {
    let x = reshape(f32(image) / 16, [B, 64])
    return (above = unit(upper(x[:, :32])), below = unit(lower(x[:, 32:])))
  }

  fn unit(x: f32[.., D]) -> f32[.., D] = x / norm(x, axis=-1, keepdims=true)
}

train Halves {
  data = npz("data/digits.npz", image="images", test=0.2)
  loss(image: u8[B, 8, 8, 1]) {
    let (above, below) = encode(image)
    return clip_loss(above, below, exp(log_scale))
  }
  ## How many upper halves find theirs among the lower halves of a batch.
  metric found(image: u8[B, 8, 8, 1]) {
    let (above, below) = encode(image)
    return mean(f32(argmax(above @ transpose(below)) == arange(B)))
  }
  optimizer = adamw(lr=3e-3)
  batch = 64
  epochs = 10
  seed = 1
}
