dlc 1
## softmax_axis, imported from softmax_axis.pt2.

import nn (Linear)

module SoftmaxAxis from "softmax_axis.safetensors" {
  use q = Linear(6, 6)
  use k = Linear(6, 6)
  use v = Linear(6, 6)
  use out = Linear(6, 6)

  export fn run(x: f32[2, 5, 6]) -> (linear_3: f32[2, 5, 6]) {
    let h = x |> k |> transpose  # f32[2, 6, 5]
    return out(softmax(q(x) @ h, axis=1) @ v(x))
  }
}
