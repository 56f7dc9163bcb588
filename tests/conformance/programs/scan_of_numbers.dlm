dlc 1
## A scan over numbers that indexes outside values.
dim N = 2..20
fn s(x: f32[N]) -> f32 {
  let t = scan i in 0..N with t = 0.0 {
    next t = t * 0.5 + x[i] * f32(i) * (if i % 2 == 0 then x[N - 1 - i] else 1.0)
  }
  return t
}
export fn f(x: f32[N]) -> f32[N] = grad(s)(x)
export fn v(x: f32[N]) -> f32 = s(x)
