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

## As huber, divided by `width`: the slope beyond it is 1, and at width 0 it is mae.
## Example: `smooth_l1([1.0, 2.0], [1.0, 4.0])` -> 0.75: f32
fn smooth_l1(x: f32[..], y: f32[..], width = 1.0) -> f32 =
  if width == 0 then mae(x, y) else huber(x, y, width) / width

## Binary cross-entropy of logits in which examples that are easy count little (Lin and others, 2017):
## `-a * (1 - p) ** gamma * log(p)`, where p is the probability of the target and a is `alpha` of targets
## that are 1, `1 - alpha` of others.
## Example: `focal([0.0, 0.0], [0.0, 1.0])` -> 0.0866434: f32
fn focal(logits: f32[..], target: f32[..], alpha = 0.25, gamma = 2.0) -> f32 {
  let missed = sigmoid(-logits) * target + sigmoid(logits) * (1 - target)
  let weight = alpha * target + (1 - alpha) * (1 - target)
  return mean(weight * missed ** gamma * (softplus(logits) - logits * target))
}

## Rows of length 1.
## Example: `unit_rows([[3.0, 4.0]])` -> [[0.6, 0.8]]: f32[1, 2]
fn unit_rows(x: f32[.., D]) -> f32[.., D] =
  x * rsqrt(maximum(sum(x ** 2, axis=-1, keepdims=true), 1e-24))

## InfoNCE (van den Oord and others, 2018): how well row i of x finds row i among all rows of y, by the
## cosine divided by the temperature.
## Example: `info_nce([[1.0, 0.0]], [[1.0, 0.0]])` -> 0.0: f32
fn info_nce(x: f32[B, D], y: f32[B, D], temperature = 0.07) -> f32 =
  mean(cross_entropy(unit_rows(x) @ transpose(unit_rows(y)) / temperature, arange(B)))

## The loss of CLIP (Radford and others, 2021): pictures find their texts and texts their pictures, by the
## cosine times `scale`, the exponential of a trained number.
## Example: `clip_loss([[1.0, 0.0]], [[1.0, 0.0]], 10.0)` -> 0.0: f32
fn clip_loss(pictures: f32[B, D], texts: f32[B, D], scale) -> f32 {
  let logits = scale * (unit_rows(pictures) @ transpose(unit_rows(texts)))
  let rows = mean(cross_entropy(logits, arange(B)))
  return 0.5 * (rows + mean(cross_entropy(transpose(logits), arange(B))))
}

## Distances of rows to like ones, which must be smaller by `margin` than those to unlike ones (Schroff and
## others, 2015). As in PyTorch 1e-6 is added to each difference, so equal rows have a gradient.
## Example: `triplet([[0.0]], [[1.0]], [[3.0]], margin=4.0)` -> 2.0: f32
fn triplet(anchor: f32[.., D], like: f32[.., D], unlike: f32[.., D], margin = 1.0) -> f32 =
  mean(relu(norm(anchor - like + 1e-6, axis=-1) - norm(anchor - unlike + 1e-6, axis=-1) + margin))
