dlc 1
## ResNet-18 (He et al., 2015) for pictures of 32 x 32: 11,173,962 weights for ten classes.
import nn (Conv2d, BatchNorm, Linear)
dim B = 1..1024

## Two convolutions around which the picture is added again.
module Residual(I, O, stride = 1) {
  use conv1 = Conv2d(I, O, kernel=3, stride=stride, padding=1, bias=false)
  use norm1 = BatchNorm(O)
  use conv2 = Conv2d(O, O, kernel=3, padding=1, bias=false)
  use norm2 = BatchNorm(O)
  use skip = if stride == 1 and I == O then identity
             else chain(Conv2d(I, O, kernel=1, stride=stride, bias=false), BatchNorm(O))

  fn call(x: f32[B, H, W, I]) -> f32[B, _, _, O] =
    relu((x |> conv1 |> norm1 |> relu |> conv2 |> norm2) + skip(x))
}

module ResNet18(classes = 10) {
  use stem = chain(Conv2d(3, 64, kernel=3, padding=1, bias=false), BatchNorm(64), relu)
  use stages = chain(Residual(64, 64), Residual(64, 64), Residual(64, 128, stride=2),
                     Residual(128, 128), Residual(128, 256, stride=2), Residual(256, 256),
                     Residual(256, 512, stride=2), Residual(512, 512))
  use head = Linear(512, classes)

  fn logits(image: f32[B, 32, 32, 3]) -> f32[B, classes] =
    image |> stem |> stages |> mean(axis=(1, 2)) |> head

  ## The most likely class of each picture.
  export fn predict(image: f32[B, 32, 32, 3]) -> i32[B] = argmax(logits(image), axis=-1)
}

train ResNet18 {
  data = npz(image="image", label="label")
  loss(image: f32[B, 32, 32, 3], label: i32[B]) = mean(cross_entropy(logits(image), label))
  metric accuracy = mean(f32(predict(image) == label))
  optimizer = adam(lr=1e-3)
  batch = 32
  epochs = 10
  seed = 1
}
