dlc 1
## group_norm_groups, imported from group_norm_groups.pt2.

import nn (Conv2d)

module GroupNormGroups from "group_norm_groups.safetensors" {
  use layers0 = Conv2d(2, 4, kernel=3, dims="nchw")
  param weight: f32[4]
  param bias: f32[4]

  export fn run(x: f32[2, 2, 8, 8]) -> (relu: f32[2, 4, 6, 6]) =
    x |> layers0 |> group_norm(weight, bias, 4, axis=1, eps=1e-5) |> relu
}
