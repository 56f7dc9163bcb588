dlc 1
## The product of two n x n matrices: `--set n=30000` for the classic comparison of devices, which takes
## 10.8 GB for the matrices alone, and `--place unit=cpu:1` for another device.
module Product {
  fn call(a: f32[N, N], b: f32[N, N]) -> f32[N, N] = a @ b
}

module Matrices(n = 256) {
  use unit = Product()
  export fn multiply(a: f32[n, n], b: f32[n, n]) -> f32[n, n] = unit(a, b)
}
