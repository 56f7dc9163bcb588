dlc 1
## A small conv net with batch normalisation and dropout learns handwritten digits.
import nn (Conv2d, BatchNorm, Dropout, Linear)
dim B = 1..2048

module DigitsCNN {
  use features = chain(Conv2d(1, 32, kernel=3, padding=1), BatchNorm(32), relu,
                       Conv2d(32, 32, kernel=3, padding=1), BatchNorm(32), relu, max_pool2d(2),
                       Conv2d(32, 64, kernel=3, padding=1), BatchNorm(64), relu, max_pool2d(2))
  use head = chain(flatten, Dropout(0.3), Linear(256, 10))

  fn logits(image: u8[B, 8, 8, 1]) -> f32[B, 10] = f32(image) / 8 - 1 |> features |> head

  ## The digit on each picture.
  export fn predict(image: u8[B, 8, 8, 1]) -> i32[B] = argmax(logits(image), axis=-1)
}

train DigitsCNN {
  data = npz("data/digits.npz", image="images", label="labels", test=0.2)
  loss(image: u8[B, 8, 8, 1], label: i32[B]) = mean(cross_entropy(logits(image), label))
  metric accuracy = mean(f32(predict(image) == label))
  optimizer = adam(lr=cosine(peak=4e-3, steps=675, warmup=45))
  batch = 32
  epochs = 15
  seed = 1
}
