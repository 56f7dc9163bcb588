dlc 1
## A model that is small enough to be trained by the evaluator of a GPU's kernels.

dim B = 1..8

module Line {
  param w: f32[3] = normal(1)
  param b: f32 = zeros()
  state seen: f32 = zeros()
  fn at(x: f32[B, 3]) -> f32[B] {
    set seen = seen + 1.0
    return tanh(sum(x * w, axis=1)) + b
  }
  export fn guess(x: f32[B, 3]) -> f32[B] = at(x)
}

train Line {
  data = npz("points.npz", x="x", y="y", test=0.25)
  loss(x: f32[B, 3], y: f32[B]) = mean((at(x) - y) ** 2)
  metric off = mean(abs(at(x) - y))
  optimizer = adam(lr=0.1)
  batch = 3
  epochs = 2
  seed = 3
}
