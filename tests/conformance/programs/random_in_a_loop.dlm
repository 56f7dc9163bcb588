dlc 1
## Random numbers in a loop.
dim N = 1..6
export fn f(n: i32[N]) -> (a: f32[N, 3], b: f32) {
  let (s, ys) = scan k in n with s = 0.0 {
    let u = uniform([3])
    next s = s + sum(u)
    yield u + f32(k)
  }
  return (a = ys, b = s)
}
