dlc 1
## MobileNet v1 (Howard et al., 2017), 4,231,976 weights for 1,000 classes.
import nn (Conv2d, BatchNorm, Linear)
dim B = 1..1024

## Each channel by itself over 3 x 3 places, then all channels at each place.
module Separable(I, O, stride = 1) {
  use depth = Conv2d(I, I, kernel=3, stride=stride, padding=1, groups=I, bias=false)
  use norm1 = BatchNorm(I)
  use point = Conv2d(I, O, kernel=1, bias=false)
  use norm2 = BatchNorm(O)

  fn call(x: f32[B, H, W, I]) -> f32[B, _, _, O] =
    x |> depth |> norm1 |> relu |> point |> norm2 |> relu
}

module MobileNetV1(classes = 1000) {
  use stem = chain(Conv2d(3, 32, kernel=3, stride=2, padding=1, bias=false), BatchNorm(32), relu,
                   Separable(32, 64), Separable(64, 128, stride=2), Separable(128, 128),
                   Separable(128, 256, stride=2), Separable(256, 256),
                   Separable(256, 512, stride=2))
  use middle = 5 * Separable(512, 512)
  use last = chain(Separable(512, 1024, stride=2), Separable(1024, 1024))
  use head = Linear(1024, classes)

  fn logits(image: u8[B, 224, 224, 3]) -> f32[B, classes] {
    let h = scan block in middle with h = stem(f32(image) / 128 - 1) { next h = block(h) }
    return last(h) |> mean(axis=(1, 2)) |> head
  }

  ## The most likely class of each picture.
  export fn predict(image: u8[B, 224, 224, 3]) -> i32[B] = argmax(logits(image), axis=-1)
}

train MobileNetV1 {
  data = pictures(test=0.02, size=224)
  loss(image: u8[B, 224, 224, 3], label: i32[B]) = mean(cross_entropy(logits(image), label))
  metric accuracy = mean(f32(predict(image) == label))
  optimizer = momentum(lr=cosine(peak=0.05), weight_decay=4e-5)
  batch = 64
  epochs = 90
  seed = 1
}
