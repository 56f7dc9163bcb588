dlc 1
## Dense layers, tables of vectors, and layers without weights that go with them.

## Every row through a dense layer: `x @ w + b`.
## Example: `Linear(3, 4)` f32[2, 3] -> f32[2, 4]
module Linear(inputs, outputs, bias = true, F: dtype = f32) {
  param w: F[inputs, outputs] = glorot_uniform()
  param b: F[if bias then outputs else 0] = zeros()
  fn call(x: F[.., inputs]) -> F[.., outputs] = linear(x, w, if bias then b else none)
}

## A row of `width` numbers for each of `count` ids.
## Example: `Embedding(100, 8)` i32[2, 5] -> f32[2, 5, 8]
module Embedding(count, width, F: dtype = f32) {
  param w: F[count, width] = normal(0.02)
  fn call(ids) -> F[.., width] = w[ids]
}

## Where `training` is true, sets elements to 0 with probability `rate` and scales the others up.
## Example: `Dropout(0.1)` f32[2, 3] -> f32[2, 3]
module Dropout(rate = 0.5) {
  require rate >= 0 and rate <= 1, "the rate is a probability"
  fn call(x) = dropout(x, rate)
}

## All axes from `start` on as one.
## Example: `Flatten()` f32[2, 3, 4] -> f32[2, 12]
module Flatten(start = 1) {
  fn call(x) = flatten(x, start)
}
