dlc 1
## ResNet-50 with the stride in the middle convolution (K. He and others, arXiv:1512.03385).
import nn (BatchNorm, Conv2d, Linear)

module Normed(I, O, kernel, stride = 1, padding = 0) {
  use filters = Conv2d(I, O, kernel=kernel, stride=stride, padding=padding, bias=false)
  use scaled = BatchNorm(O)
  fn call(x: f32[B, H, W, I]) -> f32[B, _, _, O] = scaled(filters(x))
}
module Bottleneck(I, M, stride = 1) {
  use a = Normed(I, M, kernel=1)
  use b = Normed(M, M, kernel=3, stride=stride, padding=1)
  use c = Normed(M, 4 * M, kernel=1)
  use skip = if stride == 1 and I == 4 * M then identity
             else Normed(I, 4 * M, kernel=1, stride=stride)
  fn call(x: f32[B, H, W, I]) -> f32[B, _, _, 4 * M] =
    relu((x |> a |> relu |> b |> relu |> c) + skip(x))
}
module Stage(I, M, n, stride = 1) {
  use first = Bottleneck(I, M, stride)
  use rest = (n - 1) * Bottleneck(4 * M, M)
  fn call(x: f32[B, H, W, I]) -> f32[B, _, _, 4 * M] =
    scan block in rest with h = first(x) { next h = block(h) }
}
module ResNet50(classes = 1000) {
  use stem = chain(Normed(3, 64, kernel=7, stride=2, padding=3), relu,
                   max_pool2d(3, stride=2, padding=1))
  use stages = chain(Stage(64, 64, 3), Stage(256, 128, 4, stride=2), Stage(512, 256, 6, stride=2),
                     Stage(1024, 512, 3, stride=2))
  use head = Linear(2048, classes)
  export fn logits(x: f32[1, 224, 224, 3]) -> f32[1, classes] =
    x |> stem |> stages |> mean(axis=[1, 2]) |> head
}
