dlc 1
## Rows chosen when running.
dim N = 2..20
export fn f(x: f32[N, 3], i: i32 = 1) -> (a: f32[3], b: f32[3], c: f32[N]) =
  (a = x[i], b = x[N - 1], c = x[:, i % 3])
fn s(x: f32[N, 3], i: i32) -> f32 = sum(x[i] ** 2 * x[0])
export fn g(x: f32[N, 3], i: i32 = 1) -> f32[N, 3] = grad(s)(x, i)
