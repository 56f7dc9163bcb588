dlc 1
## Gradients of pooling.
import nn (Conv2d)
dim B = 1..4
fn pooled(x: f32[B, 10, 10, 2]) -> f32 =
  sum(max_pool2d(x, 3, stride=2, padding=1) ** 2) + sum(avg_pool2d(x, 2) ** 3)
export fn f(x: f32[B, 10, 10, 2]) -> f32[B, 10, 10, 2] = grad(pooled)(x)
