dlc 1
## Losses: each gives one number. `cross_entropy`, which gives one for each row, every text knows.

## The mean squared difference.
## Example: `mse([1.0, 2.0], [1.0, 4.0])` -> 2.0: f32
fn mse(x: f32[..], y: f32[..]) -> f32 = mean((x - y) ** 2)

## The mean absolute difference.
## Example: `mae([1.0, 2.0], [1.0, 4.0])` -> 1.0: f32
fn mae(x: f32[..], y: f32[..]) -> f32 = mean(abs(x - y))

## Squared near 0, linear beyond `width`.
## Example: `huber([1.0, 2.0], [1.0, 4.0])` -> 0.75: f32
fn huber(x: f32[..], y: f32[..], width = 1.0) -> f32 {
  let d = abs(x - y)
  return mean(where(d < width, 0.5 * d ** 2, width * (d - 0.5 * width)))
}

## Of logits against targets from 0 to 1, without overflow.
## Example: `binary_cross_entropy([0.0, 0.0], [0.0, 1.0])` -> 0.6931472: f32
fn binary_cross_entropy(logits: f32[..], target: f32[..]) -> f32 =
  mean(softplus(logits) - logits * target)

## Of scores against targets of -1 and 1.
## Example: `hinge([0.5, 2.0], [1.0, 1.0])` -> 0.25: f32
fn hinge(scores: f32[..], target: f32[..]) -> f32 = mean(relu(1 - target * scores))

## How far logits are from the logarithms of a target distribution: summed over rows, mean over them.
## Example: `kl_divergence([[0.0, 0.0]], [[0.5, 0.5]])` -> 0.0: f32
fn kl_divergence(logits: f32[.., C], target: f32[.., C]) -> f32 =
  mean(sum(target * (log(maximum(target, 1e-30)) - log_softmax(logits)), axis=-1))

## Labels as distributions that keep `by` for the other classes.
## Example: `label_smoothing([0], 2)` -> [[0.95, 0.05]]: f32[1, 2]
fn label_smoothing(labels, classes, by = 0.1) = one_hot(labels, classes) * (1 - by) + by / classes
