dlc 1
## A second derivative through a scan with a branch.
dim T = 2..8
fn r(x: f64[T, 2]) -> f64 {
  let h = scan a in x with h = zeros([2], f64) {
    next h = if sum(h) > 0.3 then sin(h + a) else h * a + a
  }
  return sum(h * h)
}
fn gn(x: f64[T, 2]) -> f64 = sum(grad(r)(x) ** 2)
export fn f(x: f64[T, 2]) -> f64[T, 2] = grad(gn)(x)
