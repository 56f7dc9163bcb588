dlc 1
## Conditions of tensors.
dim N = 1..40
export fn f(x: f32[N], y: f32[N]) -> (a: bool[N], n: i32, e: bool, q: f32) {
  let m = (x > 0 and not (y > 0)) or x == y
  return (a = m, n = sum(i32(m)), e = all(m) or any(x > 2),
          q = if any(m) then sum(where(m, x, 0)) else -1)
}
