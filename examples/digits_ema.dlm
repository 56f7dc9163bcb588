dlc 1
## Gradients of four batches in a step, and an average of the weights that is measured and saved.
import nn (Conv2d, GroupNorm, Linear)
dim B = 1..2048

module Small(C = 32) {
  use net = chain(Conv2d(1, C, kernel=3, padding=1), GroupNorm(4, C), relu, max_pool2d(2),
                  Conv2d(C, 2 * C, kernel=3, padding=1), GroupNorm(4, 2 * C), relu)
  use head = Linear(2 * C, 10)

  fn logits(image: u8[B, 8, 8, 1]) -> f32[B, 10] = head(mean(net(f32(image) / 16), axis=[1, 2]))

  ## The digit on each picture.
  export fn predict(image: u8[B, 8, 8, 1]) -> i32[B] = argmax(logits(image))
}

train Small {
  data = npz("data/digits.npz", image="images", label="labels", test=0.2)
  loss(image: u8[B, 8, 8, 1], label: i32[B]) = mean(cross_entropy(logits(image), label))
  metric accuracy = mean(f32(predict(image) == label))
  optimizer = momentum(lr=0.1)
  batch = 8
  accumulate = 4
  average = ema(decay=0.99)
  epochs = 8
  seed = 1
  stop = early(loss, patience=3)
}
