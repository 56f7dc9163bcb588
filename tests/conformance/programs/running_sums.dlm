dlc 1
## Gradients of running sums and extremes.
dim N = 1..40
fn l(x: f32[N, 5]) -> f32 =
  sum(cumsum(x, axis=0) * cumsum(x, axis=1, reverse=true)) + sum(max(x, axis=0) * min(x, axis=0))
export fn f(x: f32[N, 5]) -> f32[N, 5] = grad(l)(x)
export fn p(x: f32[N, 5]) -> f32[N, 5] = cumprod(x, axis=0)
