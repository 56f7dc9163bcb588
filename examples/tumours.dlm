dlc 1
## Logistic regression: is a tumour benign? The inputs are brought to one scale by constants of the table.
import nn (Linear)
dim B = 1..1024

module Tumours {
  use line = Linear(30, 1)
  state mean_of: f32[30] = zeros()
  state spread_of: f32[30] = ones()

  ## Standardised by running statistics, so that the model itself knows the scale of its inputs.
  fn scaled(x: f32[B, 30]) -> f32[B, 30] {
    let (m, v) = moments(x, keep=-1)
    set mean_of = lerp(mean_of, m, 0.05)
    set spread_of = lerp(spread_of, sqrt(v), 0.05)
    return if training then (x - m) / (sqrt(v) + 1e-6) else (x - mean_of) / (spread_of + 1e-6)
  }

  fn score(x: f32[B, 30]) -> f32[B] = reshape(line(scaled(x)), [B])

  ## How likely each tumour is benign.
  export fn benign(x: f32[B, 30]) -> f32[B] = sigmoid(score(x))
}

train Tumours {
  data = csv("data/breast_cancer.csv", x=columns(0, 30), y="benign", test=0.2)
  loss(x: f32[B, 30], y: f32[B]) = mean(softplus(score(x)) - y * score(x))
  metric accuracy = mean(f32((benign(x) > 0.5) == (y > 0.5)))
  optimizer = sgd(lr=0.2, weight_decay=1e-3)
  batch = 64
  epochs = 60
  seed = 1
}
