dlc 1
## A residual block with batch normalisation, and a stage of n of them.
import nn (Conv2d)

module BatchNorm(C, momentum = 0.1, eps = 1e-5) {
  param scale: f32[C] = ones()
  param shift: f32[C] = zeros()
  state running_mean: f32[C] = zeros()
  state running_var: f32[C] = ones()

  fn call(x: f32[.., C]) -> f32[.., C] {
    let (m, v) = if training then moments(x, keep=-1) else (running_mean, running_var)
    set running_mean = lerp(running_mean, m, momentum)
    set running_var = lerp(running_var, v, momentum)
    return (x - m) * rsqrt(v + eps) * scale + shift
  }
}

module Residual(I, O, stride = 1, act: fn = relu) {
  use conv1 = Conv2d(I, O, kernel=3, stride=stride, padding=1, bias=false)
  use norm1 = BatchNorm(O)
  use conv2 = Conv2d(O, O, kernel=3, padding=1, bias=false)
  use norm2 = BatchNorm(O)
  use skip = if stride == 1 and I == O then identity
             else chain(Conv2d(I, O, kernel=1, stride=stride, bias=false), BatchNorm(O))

  fn call(x: f32[B, H, W, I]) -> f32[B, _, _, O] =
    act((x |> conv1 |> norm1 |> act |> conv2 |> norm2) + skip(x))
}

## n blocks; the first one changes the size, the rest are compiled once and looped.
module Stage(I, O, n, stride = 1) {
  require n >= 1, "a stage has at least one block"
  use first = Residual(I, O, stride)
  use rest = (n - 1) * Residual(O, O)
  fn call(x: f32[B, H, W, I]) -> f32[B, _, _, O] =
    scan block in rest with h = first(x) { next h = block(h) }
}
