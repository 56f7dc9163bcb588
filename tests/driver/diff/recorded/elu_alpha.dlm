dlc 1
## elu_alpha, imported from elu_alpha.pt2.

import nn (Linear)

module ELU {
  fn call(x) = where(x > 0, x, expm1(x) * 0.5)
}

module EluAlpha from "elu_alpha.safetensors" {
  use layers0 = Linear(6, 8)
  use layers1 = ELU()
  use layers2 = Linear(8, 4)

  export fn run(x: f32[3, 6]) -> (tanh: f32[3, 4]) = x |> layers0 |> layers1 |> layers2 |> tanh
}
