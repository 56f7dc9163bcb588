dlc 1
## A while that carries its own condition.
export fn f(x: f32[5]) -> (y: f32[5], n: i32, ok: bool) {
  let (y, n, ok) = while ok and n < 20 with y = x, n = 0, ok = true {
    let z = y * 1.3 + 0.1
    next y = z
    next n = n + 1
    next ok = max(z) < 10
  }
  return (y = y, n = n, ok = ok)
}
