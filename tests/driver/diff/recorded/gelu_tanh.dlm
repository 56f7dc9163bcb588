dlc 1
## gelu_tanh, imported from gelu_tanh.pt2.

import nn (LayerNorm, Linear)

module Block {
  use norm1 = LayerNorm(6)
  use up = Linear(6, 12)
  use down = Linear(12, 6)
  fn call(x) {
    let h = x |> norm1 |> up |> gelu |> down
    return x + h
  }
}

module Block2 {
  use norm1 = LayerNorm(6)
  use up = Linear(6, 12)
  use down = Linear(12, 6)
  fn call(x) {
    let h = x |> norm1 |> up |> gelu(tanh=true) |> down
    return x + h
  }
}

module GeluTanh from "gelu_tanh.safetensors" {
  use layers0 = Block()
  use layers1 = Block2()
  use layers2 = Linear(6, 4)

  export fn run(x: f32[3, 6]) -> (linear_4: f32[3, 4]) = x |> layers0 |> layers1 |> layers2
}
