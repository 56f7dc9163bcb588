dlc 1
## A regression that outliers cannot pull away: Huber's loss with a derivative written by hand.
import nn (Linear)
dim B = 1..1024

## d² / 2 for small distances, a straight line for large ones (Huber, 1964).
fn huber(d: f32[B]) -> f32[B] = where(abs(d) < 1, d * d / 2, abs(d) - 0.5)
  with vjp(d, dy) = dy * clip(d, -1, 1)

## An optimizer of one's own: sign descent, a step of one size for every weight.
module sign_descent(lr = 0.01, decay = 0.9) {
  state m: f32[..] = zeros()
  fn update(p: f32[..], g: f32[..], step: i32) -> f32[..] {
    let m2 = decay * m + (1 - decay) * g
    set m = m2
    return p - lr * sign(m2) / sqrt(1 + f32(step) / 20)
  }
}

module Robust {
  use line = Linear(29, 1)

  ## The mean radius of a tumour from its other 29 measurements.
  export fn radius(x: f32[B, 29]) -> f32[B] = reshape(line(log(x + 1)), [B])
}

train Robust {
  data = csv("data/breast_cancer.csv", x=columns(1, 30), y="radius_mean", test=0.2)
  loss(x: f32[B, 29], y: f32[B]) = mean(huber(radius(x) - y))
  metric error = mean(abs(radius(x) - y))
  optimizer = sign_descent(lr=0.03)
  batch = 64
  epochs = 80
  seed = 1
}
