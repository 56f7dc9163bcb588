dlc 1
## The product of two n x n matrices on a device: `cpu`, or with that one word changed `cuda:0`.
module Matrices(n = 512) {
  export fn multiply(a: f32[n, n], b: f32[n, n]) -> f32[n, n] = on cpu { a @ b }
}
