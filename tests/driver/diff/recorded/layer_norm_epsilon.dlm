dlc 1
## layer_norm_epsilon, imported from layer_norm_epsilon.pt2.

import nn (LayerNorm, Linear)

module Block {
  use norm1 = LayerNorm(6, eps=0.01)
  use up = Linear(6, 12)
  use down = Linear(12, 6)
  fn call(x) {
    let h = x |> norm1 |> up |> gelu |> down
    return x + h
  }
}

module LayerNormEpsilon from "layer_norm_epsilon.safetensors" {
  use layers0 = Linear(6, 6)
  use layers1 = Block()
  use layers2 = Linear(6, 4)

  export fn run(x: f32[3, 6]) -> (linear_3: f32[3, 4]) = x |> layers0 |> layers1 |> layers2
}
