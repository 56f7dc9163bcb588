dlc 1
## The gradient through a while in a scan, and a branch.
dim N = 1..10
fn go(x: f32[N, 3]) -> f32 {
  let s = scan row in x with s = zeros([3]) {
    let h = while sum(h) < 5 with h = abs(row) + 0.1 limit 20 { next h = h * 1.5 }
    next s = if sum(s) > 6 then s + h * h else s - sin(h)
  }
  return sum(s * s)
}
export fn f(x: f32[N, 3]) -> f32[N, 3] = grad(go)(x)
