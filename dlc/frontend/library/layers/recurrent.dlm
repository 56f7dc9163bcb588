dlc 1
## Recurrent networks over [batch, time, feature]. Each gives all outputs and the last state.
##
## A call may give the first state; without one it is 0. `biases=2` adds the second bias `bh` that PyTorch
## has, of the product with the state. PyTorch's weights are then read by
##
##     names {
##       "gru.weight_ih_l0" = gru.wx.T  "gru.bias_ih_l0" = gru.b
##       "gru.weight_hh_l0" = gru.wh.T  "gru.bias_hh_l0" = gru.bh
##     }

## A plain recurrent network: h' = tanh(x @ wx + h @ wh + b), from the state h of a call `layer(x, h)`, or 0.
## `biases=2` adds the bias `bh` of the product with the state, as PyTorch has it.
## Example: `RNN(3, 4)` f32[2, 5, 3] -> (y: f32[2, 5, 4], h: f32[2, 4])
module RNN(inputs, width, act: fn = tanh, biases = 1, F: dtype = f32) {
  require biases == 1 or biases == 2, "there is one bias, or two as in PyTorch"
  param wx: F[inputs, width] = glorot_uniform()
  param wh: F[width, width] = orthogonal()
  param b: F[width] = zeros()
  param bh: F[if biases == 2 then width else 0] = zeros()

  ## One step; gx is x @ wx + b of that step.
  fn step(gx: F[B, width], h: F[B, width]) -> F[B, width] =
    act(gx + linear(h, wh, if biases == 2 then bh else none))

  fn call(x: F[B, T, inputs], h = none) -> (y: F[B, T, width], h: F[B, width]) {
    let first = if h == none then zeros([B, width], F) else h
    let (h, y) = scan gx in linear(x, wx, b) along 1 with h = first {
      let h2 = step(gx, h)
      next h = h2
      yield h2
    }
    return (y = y, h = h)
  }
}

## Long short-term memory, from the states of a call `layer(x, h, c)`, or 0. The gates of the weights are in
## the order of `gates`: in, forget, out, new are "ifog". PyTorch has "ifgo", and a second bias `bh`
## (`biases=2`).
## Example: `LSTM(3, 4)` f32[2, 5, 3] -> (y: f32[2, 5, 4], h: f32[2, 4], c: f32[2, 4])
module LSTM(inputs, width, biases = 1, gates = "ifog", F: dtype = f32) {
  require biases == 1 or biases == 2, "there is one bias, or two as in PyTorch"
  require gates == "ifog" or gates == "ifgo", "the gates are \"ifog\", or \"ifgo\" as in PyTorch"
  param wx: F[inputs, 4 * width] = glorot_uniform()
  param wh: F[width, 4 * width] = orthogonal()
  param b: F[4 * width] = zeros()
  param bh: F[if biases == 2 then 4 * width else 0] = zeros()

  ## A weight with its gates in the order in, forget, out, new.
  fn in_order(w) = if gates == "ifog" then w
                   else {
                     let (i, f, g, o) = split(w, 4, axis=-1)
                     return concat([i, f, o, g], axis=-1)
                   }

  ## The sum of the biases.
  fn bias() = in_order(if biases == 2 then b + bh else b)

  ## One step; gx is x @ wx + b of that step, with the gates in the order in, forget, out, new.
  fn step(gx: F[B, 4 * width], h: F[B, width], c: F[B, width]) -> (h: F[B, width], c: F[B, width]) {
    let (i, f, o, g) = split(gx + h @ in_order(wh), 4, axis=-1)
    let c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    return (h = sigmoid(o) * tanh(c), c = c)
  }

  fn call(x: F[B, T, inputs], h = none, c = none) -> (y: F[B, T, width], h: F[B, width],
                                                      c: F[B, width]) {
    let h1 = if h == none then zeros([B, width], F) else h
    let c1 = if c == none then zeros([B, width], F) else c
    return lstm(x, in_order(wx), in_order(wh), bias(), h1, c1)
  }
}

## Gated recurrent unit, from the state h of a call `layer(x, h)`, or 0; the gates are in the order reset,
## update, new. `biases=2` adds the bias `bh` of the product with the state, as PyTorch has it.
## Example: `GRU(3, 4)` f32[2, 5, 3] -> (y: f32[2, 5, 4], h: f32[2, 4])
module GRU(inputs, width, biases = 1, F: dtype = f32) {
  require biases == 1 or biases == 2, "there is one bias, or two as in PyTorch"
  param wx: F[inputs, 3 * width] = glorot_uniform()
  param wh: F[width, 3 * width] = orthogonal()
  param b: F[3 * width] = zeros()
  param bh: F[if biases == 2 then 3 * width else 0] = zeros()

  ## One step; gx is x @ wx + b of that step.
  fn step(gx: F[B, 3 * width], h: F[B, width]) -> F[B, width] {
    let (r, u, n) = split(gx, 3, axis=-1)
    let (hr, hu, hn) = split(linear(h, wh, if biases == 2 then bh else none), 3, axis=-1)
    let keep = sigmoid(u + hu)
    let new = tanh(n + sigmoid(r + hr) * hn)
    return lerp(new, h, keep)
  }

  fn call(x: F[B, T, inputs], h = none) -> (y: F[B, T, width], h: F[B, width]) {
    let first = if h == none then zeros([B, width], F) else h
    let (h, y) = scan gx in linear(x, wx, b) along 1 with h = first {
      let h2 = step(gx, h)
      next h = h2
      yield h2
    }
    return (y = y, h = h)
  }
}

## Two recurrent layers, `RNN`, `LSTM` or `GRU`, over the sequence and over its reverse: `y` has the outputs
## of both for each place, `h` their last states, one above the other. `gates` is for an LSTM.
## Example: `Bidirectional(GRU, 3, 4)` f32[2, 5, 3] -> (y: f32[2, 5, 8], h: f32[2, 2, 4])
module Bidirectional(layer: fn, inputs, width, biases = 1, gates = none, F: dtype = f32) {
  use ahead = if gates == none then layer(inputs, width, biases=biases, F=F)
              else layer(inputs, width, biases=biases, gates=gates, F=F)
  use back = if gates == none then layer(inputs, width, biases=biases, F=F)
             else layer(inputs, width, biases=biases, gates=gates, F=F)

  fn call(x: F[B, T, inputs]) {
    let one = ahead(x)
    let two = back(flip(x, axis=1))
    return (y = concat([one.y, flip(two.y, axis=1)], axis=-1), h = stack([one.h, two.h]))
  }
}
