dlc 1
## VGG-19 (Simonyan and Zisserman, 2014), 143,667,240 weights for 1,000 classes.
import nn (Conv2d, Linear, Dropout)
dim B = 1..1024

## n convolutions to O channels, then a picture of half the size.
module Stage(I, O, n) {
  use first = Conv2d(I, O, kernel=3, padding=1)
  use rest = (n - 1) * Conv2d(O, O, kernel=3, padding=1)

  fn call(x: f32[B, H, W, I]) -> f32[B, _, _, O] {
    let h = scan conv in rest with h = relu(first(x)) { next h = relu(conv(h)) }
    return max_pool2d(h, 2)
  }
}

module VGG19(classes = 1000) {
  use features = chain(Stage(3, 64, 2), Stage(64, 128, 2), Stage(128, 256, 4), Stage(256, 512, 4),
                       Stage(512, 512, 4))
  use head = chain(flatten, Linear(7 * 7 * 512, 4096), relu, Dropout(0.5), Linear(4096, 4096), relu,
                   Dropout(0.5), Linear(4096, classes))

  fn logits(image: u8[B, 224, 224, 3]) -> f32[B, classes] = f32(image) / 128 - 1 |> features |> head

  ## The most likely class of each picture.
  export fn predict(image: u8[B, 224, 224, 3]) -> i32[B] = argmax(logits(image), axis=-1)
}

train VGG19 {
  data = pictures(test=0.02, size=224)
  loss(image: u8[B, 224, 224, 3], label: i32[B]) = mean(cross_entropy(logits(image), label))
  metric accuracy = mean(f32(predict(image) == label))
  optimizer = momentum(lr=cosine(peak=0.01), weight_decay=5e-4)
  batch = 64
  epochs = 74
  seed = 1
}
