dlc 1
## MobileNet v2 (Sandler et al., 2018), 3,504,872 weights for 1,000 classes.
import nn (Conv2d, BatchNorm, Dropout, Linear)
dim B = 1..1024

fn relu6(x: f32[..]) = clip(x, 0, 6)

## A convolution of k x k, normalised, and cut at 0 and 6.
module Conv(I, O, k, stride = 1, groups = 1) {
  use filter = Conv2d(I, O, kernel=k, stride=stride, padding=k // 2, groups=groups, bias=false)
  use normed = BatchNorm(O)
  fn call(x: f32[B, H, W, I]) -> f32[B, _, _, O] = x |> filter |> normed |> relu6
}

## Up to `widen` times the channels, each by itself over 3 x 3 places, and down again.
module Inverted(I, O, widen, stride = 1) {
  use up = if widen == 1 then identity else Conv(I, widen * I, 1)
  use depth = Conv(widen * I, widen * I, 3, stride, groups=widen * I)
  use down = Conv2d(widen * I, O, kernel=1, bias=false)
  use normed = BatchNorm(O)

  fn call(x: f32[B, H, W, I]) -> f32[B, _, _, O] {
    let h = x |> up |> depth |> down |> normed
    return if stride == 1 and I == O then x + h else h
  }
}

## n blocks; the first one changes the size, the rest are compiled once and looped.
module Stage(I, O, n, widen = 6, stride = 2) {
  use first = Inverted(I, O, widen, stride)
  use rest = (n - 1) * Inverted(O, O, widen)
  fn call(x: f32[B, H, W, I]) -> f32[B, _, _, O] =
    scan block in rest with h = first(x) { next h = block(h) }
}

module MobileNetV2(classes = 1000) {
  use features = chain(Conv(3, 32, 3, stride=2), Stage(32, 16, 1, widen=1, stride=1),
                       Stage(16, 24, 2), Stage(24, 32, 3), Stage(32, 64, 4),
                       Stage(64, 96, 3, stride=1), Stage(96, 160, 3), Stage(160, 320, 1, stride=1),
                       Conv(320, 1280, 1))
  use head = chain(Dropout(0.2), Linear(1280, classes))

  fn logits(image: u8[B, 224, 224, 3]) -> f32[B, classes] =
    f32(image) / 128 - 1 |> features |> mean(axis=(1, 2)) |> head

  ## The most likely class of each picture.
  export fn predict(image: u8[B, 224, 224, 3]) -> i32[B] = argmax(logits(image), axis=-1)
}

train MobileNetV2 {
  data = pictures(test=0.02, size=224)
  loss(image: u8[B, 224, 224, 3], label: i32[B]) = mean(cross_entropy(logits(image), label))
  metric accuracy = mean(f32(predict(image) == label))
  optimizer = momentum(lr=cosine(peak=0.05), weight_decay=4e-5)
  batch = 64
  epochs = 90
  seed = 1
}
