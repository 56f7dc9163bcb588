dlc 1
## MobileNet, version 1 at full width (A. Howard and others, arXiv:1704.04861).
import nn (BatchNorm, Conv2d, Linear)

module Normed(I, O, kernel, stride = 1, padding = 0, groups = 1) {
  use filters = Conv2d(I, O, kernel=kernel, stride=stride, padding=padding, groups=groups,
                       bias=false)
  use scaled = BatchNorm(O)
  fn call(x: f32[B, H, W, I]) -> f32[B, _, _, O] = relu(scaled(filters(x)))
}
## One filter for each channel, then a mixture of the channels.
module Separable(I, O, stride = 1) {
  use depth = Normed(I, I, kernel=3, stride=stride, padding=1, groups=I)
  use point = Normed(I, O, kernel=1)
  fn call(x: f32[B, H, W, I]) -> f32[B, _, _, O] = x |> depth |> point
}
module MobileNet(classes = 1000) {
  use stem = Normed(3, 32, kernel=3, stride=2, padding=1)
  use blocks = [for (i, o, s) in [(32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2),
                                  (256, 256, 1), (256, 512, 2), (512, 512, 1), (512, 512, 1),
                                  (512, 512, 1), (512, 512, 1), (512, 512, 1), (512, 1024, 2),
                                  (1024, 1024, 1)]: Separable(i, o, s)]
  use head = Linear(1024, classes)
  export fn logits(x: f32[1, 224, 224, 3]) -> f32[1, classes] {
    let h = scan block in blocks with h = stem(x) { next h = block(h) }
    return h |> mean(axis=[1, 2]) |> head
  }
}
