dlc 1
## relu_silu, imported from relu_silu.pt2.

import nn (Linear)

module ReluSilu from "relu_silu.safetensors" {
  use layers0 = Linear(6, 8)
  use layers2 = Linear(8, 4)

  export fn run(x: f32[3, 6]) -> (linear_1: f32[3, 4]) = x |> layers0 |> silu |> layers2
}
