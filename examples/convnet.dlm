dlc 1
## A small convolutional network for colour pictures, and the pixels that its answer hangs on.
import nn (BatchNorm, Conv2d, Linear)
dim B = 1..256
dim H = 16..512
dim W = 16..512

## A convolution that halves the picture.
module Halve(I, O) {
  use conv1 = Conv2d(I, O, kernel=3, stride=2, padding=1, bias=false)
  use norm1 = BatchNorm(O)
  fn call(x: f32[B, H, W, I]) -> f32[B, _, _, O] = x |> conv1 |> norm1 |> relu
}

module ConvNet(classes = 10, width = 16) {
  use body = chain(Halve(3, width), Halve(width, 2 * width), Halve(2 * width, 4 * width))
  use head = Linear(4 * width, classes)

  fn scores(x: f32[B, H, W, 3]) -> f32[B, classes] = head(mean(body(x), axis=[1, 2]))

  ## How likely each class is.
  export fn predict(picture: f32[B, H, W, 3]) -> f32[B, classes] = softmax(scores(picture))

  ## How much the best score hangs on each pixel: a grey picture, white where it does most.
  export fn saliency(picture: f32[B, H, W, 3]) -> f32[B, H, W, 1] {
    let slope = grad(best)(picture)
    let strength = max(abs(slope), axis=-1, keepdims=true)
    return strength / max(strength, axis=[1, 2], keepdims=true)
  }

  fn best(x: f32[B, H, W, 3]) -> f32 = sum(max(scores(x), axis=-1))
}
