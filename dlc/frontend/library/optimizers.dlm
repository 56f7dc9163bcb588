dlc 1
## Optimizers and schedules of the learning rate, known by name in a `train` block.
##
## An optimizer is a module whose states have the shape of the weight, `f32[..]`, with
## `fn update(p, g, step)`: the weight's next value from its value, its gradient and the number of the
## step, which counts from 0. `lr` is a number or a function of the step. `clip_norm` and `clip_value`
## limit the gradients of all weights before any is updated: together by their norm, or each by itself.

## The learning rate of a step.
## Example: `rate(0.1, 7)` -> 0.1: f32
fn rate(lr, step: i32) = if is_function(lr) then lr(step) else lr

## Plain stochastic gradient descent.
## Example: `optimizer = sgd(lr=0.1)`
module sgd(lr = 0.01, weight_decay = 0.0, clip_norm = none, clip_value = none) {
  fn update(p: f32[..], g: f32[..], step: i32) -> f32[..] =
    p - rate(lr, step) * (g + weight_decay * p)
}

## Gradient descent with a heavy ball (Polyak, 1964).
## Example: `optimizer = momentum(lr=0.01, momentum=0.9)`
module momentum(lr = 0.01, momentum = 0.9, weight_decay = 0.0, clip_norm = none,
                clip_value = none) {
  state v: f32[..] = zeros()
  fn update(p: f32[..], g: f32[..], step: i32) -> f32[..] {
    let v2 = momentum * v + g + weight_decay * p
    set v = v2
    return p - rate(lr, step) * v2
  }
}

## Accelerated gradient (Nesterov, 1983), in the form that needs the gradient at the weight itself.
## Example: `optimizer = nesterov(lr=0.05, momentum=0.9)`
module nesterov(lr = 0.01, momentum = 0.9, weight_decay = 0.0, clip_norm = none,
                clip_value = none) {
  state v: f32[..] = zeros()
  fn update(p: f32[..], g: f32[..], step: i32) -> f32[..] {
    let g2 = g + weight_decay * p
    let v2 = momentum * v + g2
    set v = v2
    return p - rate(lr, step) * (g2 + momentum * v2)
  }
}

## Each element by the root of its running mean square (Hinton, 2012).
## Example: `optimizer = rmsprop(lr=0.001)`
module rmsprop(lr = 0.001, decay = 0.9, eps = 1e-8, clip_norm = none, clip_value = none) {
  state s: f32[..] = zeros()
  fn update(p: f32[..], g: f32[..], step: i32) -> f32[..] {
    let s2 = decay * s + (1 - decay) * g * g
    set s = s2
    return p - rate(lr, step) * g / (sqrt(s2) + eps)
  }
}

## Each element by the root of its sum of squares (Duchi, Hazan and Singer, 2011).
## Example: `optimizer = adagrad(lr=0.01)`
module adagrad(lr = 0.01, eps = 1e-10, clip_norm = none, clip_value = none) {
  state s: f32[..] = zeros()
  fn update(p: f32[..], g: f32[..], step: i32) -> f32[..] {
    let s2 = s + g * g
    set s = s2
    return p - rate(lr, step) * g / (sqrt(s2) + eps)
  }
}

## Adam (Kingma and Ba, 2015) for dense gradients.
## Example: `optimizer = adam(lr=0.001, clip_norm=1)`
module adam(lr = 0.001, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, clip_norm = none,
            clip_value = none) {
  state m: f32[..] = zeros()
  state v: f32[..] = zeros()
  fn update(p: f32[..], g: f32[..], step: i32) -> f32[..] {
    let m2 = beta1 * m + (1 - beta1) * g
    let v2 = beta2 * v + (1 - beta2) * g * g
    set m = m2
    set v = v2
    let t = f32(step + 1)
    return p - rate(lr, step) * (m2 / (1 - beta1 ** t)) / (sqrt(v2 / (1 - beta2 ** t)) + eps)
  }
}

## Adam with decoupled weight decay (Loshchilov and Hutter, 2019).
## Example: `optimizer = adamw(lr=0.001, weight_decay=0.01)`
module adamw(lr = 0.001, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01,
             clip_norm = none, clip_value = none) {
  state m: f32[..] = zeros()
  state v: f32[..] = zeros()
  fn update(p: f32[..], g: f32[..], step: i32) -> f32[..] {
    let m2 = beta1 * m + (1 - beta1) * g
    let v2 = beta2 * v + (1 - beta2) * g * g
    set m = m2
    set v = v2
    let t = f32(step + 1)
    let direction = (m2 / (1 - beta1 ** t)) / (sqrt(v2 / (1 - beta2 ** t)) + eps)
    return p - rate(lr, step) * (direction + weight_decay * p)
  }
}

## A straight line up over `warmup` steps, then half a cosine down to `floor` at step `steps`.
## Example: `cosine(0, peak=0.1, steps=100, warmup=10)` -> 0.01: f32
fn cosine(step: i32, peak, steps = total_steps, warmup = 0, floor = 0.0) -> f32 {
  let t = f32(step)
  let rising = peak * (t + 1) / maximum(warmup, 1.0)
  let done = clip((t - warmup) / maximum(f32(steps) - warmup, 1), 0, 1)
  let falling = floor + (peak - floor) * 0.5 * (1 + cos(pi * done))
  return where(t < warmup, rising, falling)
}

## A straight line up over `warmup` steps, then one down to `floor` at step `steps`.
## Example: `slope(0, peak=0.1, steps=100, warmup=10)` -> 0.01: f32
fn slope(step: i32, peak, steps = total_steps, warmup = 0, floor = 0.0) -> f32 {
  let t = f32(step)
  let rising = peak * (t + 1) / maximum(warmup, 1.0)
  let done = clip((t - warmup) / maximum(f32(steps) - warmup, 1), 0, 1)
  return where(t < warmup, rising, peak + (floor - peak) * done)
}

## The first value, multiplied by `factor` after every `every` steps.
## Example: `staircase(25, start=0.1, every=10)` -> 0.001: f32
fn staircase(step: i32, start, every, factor = 0.1) -> f32 = start * factor ** f32(step // every)
