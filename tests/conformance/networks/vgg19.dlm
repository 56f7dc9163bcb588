dlc 1
## VGG-19 (K. Simonyan, A. Zisserman, arXiv:1409.1556).
import nn (Conv2d, Linear)

module Stage(I, O, n) {
  use first = Conv2d(I, O, kernel=3, padding=1)
  use rest = (n - 1) * Conv2d(O, O, kernel=3, padding=1)
  fn call(x: f32[B, H, W, I]) -> f32[B, _, _, O] {
    let h = scan conv in rest with h = relu(first(x)) { next h = relu(conv(h)) }
    return max_pool2d(h, 2)
  }
}
module Vgg19(classes = 1000) {
  use stages = chain(Stage(3, 64, 2), Stage(64, 128, 2), Stage(128, 256, 4), Stage(256, 512, 4),
                     Stage(512, 512, 4), flatten)
  use head = chain(Linear(_, 4096), relu, Linear(4096, 4096), relu, Linear(4096, classes))
  export fn logits(x: f32[1, 224, 224, 3]) -> f32[1, classes] = x |> stages |> head
}
