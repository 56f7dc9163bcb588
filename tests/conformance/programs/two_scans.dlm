dlc 1
## Two scans, one backwards over what the other gave.
dim B = 1..4
dim T = 1..12
module M(I = 3, H = 4) {
  param w: f32[I, H] = glorot_uniform()
  param u: f32[H, H] = orthogonal()
  fn both(x: f32[B, T, I]) -> f32 {
    let (h, ys) = scan a in x along 1 with h = zeros([B, H]) {
      let n = tanh(a @ w + h @ u)
      next h = n
      yield n
    }
    let (k, zs) = scan (a, y) in reverse (x, ys) along 1 with k = h {
      let n = tanh(a @ w - k @ u + y)
      next k = n
      yield n * y
    }
    return sum(k ** 2) + mean(zs)
  }
  export fn f(x: f32[B, T, I]) -> f32[B, T, I] = grad(both)(x)
  export fn g(x: f32[B, T, I]) -> (w: f32[I, H], u: f32[H, H]) {
    let q = grad(both, wrt=params)(x)
    return (w = q.w, u = q.u)
  }
}
