dlc 1
## A network of two layers learns handwritten digits.
import nn (Linear)
dim B = 1..2048

module DigitsMLP(hidden = 64) {
  use net = chain(flatten, Linear(64, hidden), relu, Linear(hidden, 10))

  fn logits(image: u8[B, 8, 8, 1]) -> f32[B, 10] = net(f32(image) / 16)

  ## The digit on each picture.
  export fn predict(image: u8[B, 8, 8, 1]) -> i32[B] = argmax(logits(image), axis=-1)
}

train DigitsMLP {
  data = npz("data/digits.npz", image="images", label="labels", test=0.2)
  loss(image: u8[B, 8, 8, 1], label: i32[B]) = mean(cross_entropy(logits(image), label))
  metric accuracy = mean(f32(predict(image) == label))
  optimizer = adam(lr=2e-3)
  batch = 32
  epochs = 15
  seed = 1
}
