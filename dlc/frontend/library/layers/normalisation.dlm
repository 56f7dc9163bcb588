dlc 1
## Normalisation over the batch, over each row, over groups of channels.

## Each channel normalised over the batch; outside of training by running figures. Numbers of 16 bits are
## normalised in f32, and so is what it keeps.
## Example: `BatchNorm(3)` f32[2, 8, 8, 3] -> f32[2, 8, 8, 3]
module BatchNorm(channels, momentum = 0.1, eps = 1e-5, dims = "nhwc", F: dtype = f32) {
  const W = if F == f64 then f64 else f32
  param scale: W[channels] = ones()
  param shift: W[channels] = zeros()
  state running_mean: W[channels] = zeros()
  state running_var: W[channels] = ones()
  const first = dims == "nchw" or dims == "ncw" or dims == "ncdhw"

  fn call(x) = if first then second_axis(x) else last_axis(x)

  fn last_axis(x: F[.., channels]) -> F[.., channels] {
    let wide = W(x)
    let (m, v) = if training then moments(wide, keep=-1) else (running_mean, running_var)
    set running_mean = lerp(running_mean, m, momentum)
    set running_var = lerp(running_var, v, momentum)
    return F(batch_norm(wide, scale, shift, m, v, eps=eps))
  }

  fn second_axis(x: F[_, channels, ..]) -> F[_, channels, ..] {
    let wide = W(x)
    let (m, v) = if training then moments(wide, keep=1) else (running_mean, running_var)
    set running_mean = lerp(running_mean, m, momentum)
    set running_var = lerp(running_var, v, momentum)
    return F(batch_norm(wide, scale, shift, m, v, axis=1, eps=eps))
  }
}

## Each row normalised: mean 0, variance 1, then a scale and a shift for each place.
## Example: `LayerNorm(8)` f32[2, 5, 8] -> f32[2, 5, 8]
module LayerNorm(width, eps = 1e-5, bias = true, F: dtype = f32) {
  param scale: F[width] = ones()
  param shift: F[if bias then width else 0] = zeros()
  fn call(x: F[.., width]) -> F[.., width] =
    layer_norm(x, scale, if bias then shift else none, eps=eps)
}

## Each row divided by the root of its mean square, then a scale for each place.
## Example: `RMSNorm(8)` f32[2, 5, 8] -> f32[2, 5, 8]
module RMSNorm(width, eps = 1e-5, F: dtype = f32) {
  param scale: F[width] = ones()
  fn call(x: F[.., width]) -> F[.., width] = rms_norm(x, scale, eps=eps)
}

## Each example normalised over groups of channels.
## Example: `GroupNorm(2, 8)` f32[2, 4, 4, 8] -> f32[2, 4, 4, 8]
module GroupNorm(groups, channels, eps = 1e-5, dims = "nhwc", F: dtype = f32) {
  require channels % groups == 0, "the groups must divide the channels"
  param scale: F[channels] = ones()
  param shift: F[channels] = zeros()
  const first = dims == "nchw" or dims == "ncw" or dims == "ncdhw"
  fn call(x) = group_norm(x, scale, shift, groups, axis=if first then 1 else -1, eps=eps)
}

## Each channel of each example normalised by itself (Ulyanov and others, 2016).
## Example: `InstanceNorm(8)` f32[2, 4, 4, 8] -> f32[2, 4, 4, 8]
module InstanceNorm(channels, eps = 1e-5, dims = "nhwc", F: dtype = f32) {
  param scale: F[channels] = ones()
  param shift: F[channels] = zeros()
  const first = dims == "nchw" or dims == "ncw" or dims == "ncdhw"
  fn call(x) = group_norm(x, scale, shift, channels, axis=if first then 1 else -1, eps=eps)
}
