dlc 1
## leaky_slope, imported from leaky_slope.pt2.

import nn (BatchNorm, Conv2d, Linear)

module LeakySlope from "leaky_slope.safetensors" {
  use conv1 = Conv2d(2, 4, kernel=3, padding=1, dims="nchw")
  use bn = BatchNorm(4, dims="nchw")
  use conv2 = Conv2d(4, 4, kernel=3, padding=1, dims="nchw")
  use head = Linear(64, 3)

  export fn run(x: f32[2, 2, 8, 8]) -> (linear: f32[2, 3]) =
    x
      |> conv1
      |> bn
      |> relu
      |> conv2
      |> leaky_relu(0.2)
      |> max_pool2d(2, dims="nchw")
      |> flatten
      |> head
}
