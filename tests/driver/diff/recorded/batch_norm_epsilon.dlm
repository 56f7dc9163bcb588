dlc 1
## batch_norm_epsilon, imported from batch_norm_epsilon.pt2.

import nn (BatchNorm, Conv2d, Linear)

module BatchNormEpsilon from "batch_norm_epsilon.safetensors" {
  use conv1 = Conv2d(2, 4, kernel=3, padding=1, dims="nchw")
  use bn = BatchNorm(4, eps=0.001, dims="nchw")
  use conv2 = Conv2d(4, 4, kernel=3, padding=1, dims="nchw")
  use head = Linear(64, 3)

  export fn run(x: f32[2, 2, 8, 8]) -> (linear: f32[2, 3]) =
    x
      |> conv1
      |> bn
      |> relu
      |> conv2
      |> leaky_relu(0.01)
      |> max_pool2d(2, dims="nchw")
      |> flatten
      |> head
}
