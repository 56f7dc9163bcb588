dlc 1
## padding_mode, imported from padding_mode.pt2.

import nn (BatchNorm, Conv2d, Linear)

module Conv2d2 {
  use conv1 = Conv2d(4, 4, kernel=3, dims="nchw")
  fn call(x) {
    let h = arange(10, dtype=i64) - 1 |> maximum(0) |> minimum(7)
    let h2 = arange(10, dtype=i64) - 1 |> maximum(0) |> minimum(7)
    return conv1(x[:, :, h][:, :, :, h2])
  }
}

module PaddingMode from "padding_mode.safetensors" {
  use conv1 = Conv2d(2, 4, kernel=3, padding=1, dims="nchw")
  use bn = BatchNorm(4, dims="nchw")
  use conv2 = Conv2d2()
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
