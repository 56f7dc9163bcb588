dlc 1
## Recurrent networks over [batch, time, feature]. Each gives all outputs and the last state.

## A plain recurrent network: h' = tanh(x @ wx + h @ wh + b).
## Example: `RNN(3, 4)` f32[2, 5, 3] -> (y: f32[2, 5, 4], h: f32[2, 4])
module RNN(inputs, width, act: fn = tanh, F: dtype = f32) {
  param wx: F[inputs, width] = glorot_uniform()
  param wh: F[width, width] = orthogonal()
  param b: F[width] = zeros()

  ## One step; gx is x @ wx + b of that step.
  fn step(gx: F[B, width], h: F[B, width]) -> F[B, width] = act(gx + h @ wh)

  fn call(x: F[B, T, inputs]) -> (y: F[B, T, width], h: F[B, width]) {
    let (h, y) = scan gx in linear(x, wx, b) along 1 with h = zeros([B, width], F) {
      let h2 = step(gx, h)
      next h = h2
      yield h2
    }
    return (y = y, h = h)
  }
}

## Long short-term memory; the gates are in the order in, forget, out, new.
## Example: `LSTM(3, 4)` f32[2, 5, 3] -> (y: f32[2, 5, 4], h: f32[2, 4], c: f32[2, 4])
module LSTM(inputs, width, F: dtype = f32) {
  param wx: F[inputs, 4 * width] = glorot_uniform()
  param wh: F[width, 4 * width] = orthogonal()
  param b: F[4 * width] = zeros()

  ## One step; gx is x @ wx + b of that step.
  fn step(gx: F[B, 4 * width], h: F[B, width], c: F[B, width]) -> (h: F[B, width], c: F[B, width]) {
    let (i, f, o, g) = split(gx + h @ wh, 4, axis=-1)
    let c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    return (h = sigmoid(o) * tanh(c), c = c)
  }

  fn call(x: F[B, T, inputs]) -> (y: F[B, T, width], h: F[B, width], c: F[B, width]) =
    lstm(x, wx, wh, b, zeros([B, width], F), zeros([B, width], F))
}

## Gated recurrent unit; the gates are in the order reset, update, new.
## Example: `GRU(3, 4)` f32[2, 5, 3] -> (y: f32[2, 5, 4], h: f32[2, 4])
module GRU(inputs, width, F: dtype = f32) {
  param wx: F[inputs, 3 * width] = glorot_uniform()
  param wh: F[width, 3 * width] = orthogonal()
  param b: F[3 * width] = zeros()

  ## One step; gx is x @ wx + b of that step.
  fn step(gx: F[B, 3 * width], h: F[B, width]) -> F[B, width] {
    let (r, u, n) = split(gx, 3, axis=-1)
    let (hr, hu, hn) = split(h @ wh, 3, axis=-1)
    let keep = sigmoid(u + hu)
    let new = tanh(n + sigmoid(r + hr) * hn)
    return lerp(new, h, keep)
  }

  fn call(x: F[B, T, inputs]) -> (y: F[B, T, width], h: F[B, width]) {
    let (h, y) = scan gx in linear(x, wx, b) along 1 with h = zeros([B, width], F) {
      let h2 = step(gx, h)
      next h = h2
      yield h2
    }
    return (y = y, h = h)
  }
}
