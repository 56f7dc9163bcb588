dlc 1
## Optimizers and schedules of the learning rate, known by name in a `train` block.
##
## An optimizer is a module whose states have the shape of the weight, `f32[..]`, with
## `fn update(p, g, step)`: the weight's next value from its value, its gradient and the number of the
## step, which counts from 0. `lr` is a number or a function of the step. `clip_norm` and `clip_value`
## limit the gradients of all weights before any is updated: together by their norm, or each by itself.
## `weight_decay` pulls every weight towards 0: as a part of its gradient, or in adamw by itself.

## The learning rate of a step.
## Example: `rate(0.1, 7)` -> 0.1: f32
fn rate(lr, step: i32) = if is_function(lr) then lr(step) else lr

## The gradient of a weight to which the decay is added.
## Example: `decayed([1, 2], [10, 20], 0.1)` -> [2, 4]: f32[2]
fn decayed(g: f32[..], p: f32[..], weight_decay) -> f32[..] =
  if weight_decay == 0 then g else g + weight_decay * p

## Bias correction of a running mean that began at 0, as of Adam: 1 - beta ** (step + 1).
## Example: `bias(0.9, 1)` -> 0.19: f32
fn bias(beta, step: i32) -> f32 = if beta == 0 then 1.0 else -expm1(f32(step + 1) * log(beta))

## Plain stochastic gradient descent.
## Example: `optimizer = sgd(lr=0.1)`
module sgd(lr = 0.01, weight_decay = 0.0, clip_norm = none, clip_value = none) {
  fn update(p: f32[..], g: f32[..], step: i32) -> f32[..] =
    p - rate(lr, step) * decayed(g, p, weight_decay)
}

## Gradient descent with a heavy ball (Polyak, 1964).
## Example: `optimizer = momentum(lr=0.01, momentum=0.9)`
module momentum(lr = 0.01, momentum = 0.9, weight_decay = 0.0, clip_norm = none,
                clip_value = none) {
  state v: f32[..] = zeros()
  fn update(p: f32[..], g: f32[..], step: i32) -> f32[..] {
    let v2 = momentum * v + decayed(g, p, weight_decay)
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
    let g2 = decayed(g, p, weight_decay)
    let v2 = momentum * v + g2
    set v = v2
    return p - rate(lr, step) * (g2 + momentum * v2)
  }
}

## Each element by the root of its running mean square (Hinton, 2012).
## Example: `optimizer = rmsprop(lr=0.001)`
module rmsprop(lr = 0.001, decay = 0.9, eps = 1e-8, weight_decay = 0.0, clip_norm = none,
               clip_value = none) {
  state s: f32[..] = zeros()
  fn update(p: f32[..], g: f32[..], step: i32) -> f32[..] {
    let g2 = decayed(g, p, weight_decay)
    let s2 = decay * s + (1 - decay) * g2 * g2
    set s = s2
    return p - rate(lr, step) * g2 / (sqrt(s2) + eps)
  }
}

## Each element by the root of its sum of squares (Duchi, Hazan and Singer, 2011).
## Example: `optimizer = adagrad(lr=0.01)`
module adagrad(lr = 0.01, eps = 1e-10, weight_decay = 0.0, clip_norm = none, clip_value = none) {
  state s: f32[..] = zeros()
  fn update(p: f32[..], g: f32[..], step: i32) -> f32[..] {
    let g2 = decayed(g, p, weight_decay)
    let s2 = s + g2 * g2
    set s = s2
    return p - rate(lr, step) * g2 / (sqrt(s2) + eps)
  }
}

## Adam (Kingma and Ba, 2015) for dense gradients.
## Example: `optimizer = adam(lr=0.001, clip_norm=1)`
module adam(lr = 0.001, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.0,
            clip_norm = none, clip_value = none) {
  state m: f32[..] = zeros()
  state v: f32[..] = zeros()
  fn update(p: f32[..], g: f32[..], step: i32) -> f32[..] {
    let g2 = decayed(g, p, weight_decay)
    let m2 = beta1 * m + (1 - beta1) * g2
    let v2 = beta2 * v + (1 - beta2) * g2 * g2
    set m = m2
    set v = v2
    let size = rate(lr, step) / bias(beta1, step)
    return p - size * m2 / (sqrt(v2) * rsqrt(bias(beta2, step)) + eps)
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
    let size = rate(lr, step) / bias(beta1, step)
    let kept = (1 - rate(lr, step) * weight_decay) * p
    return kept - size * m2 / (sqrt(v2) * rsqrt(bias(beta2, step)) + eps)
  }
}

## The part of a learning rate that is used at a step: a straight line up to 1 over `warmup` steps.
## Example: `rising(3, 8)` -> 0.5: f32
fn rising(step: i32, warmup) -> f32 =
  if warmup == 0 then 1.0 else minimum((f32(step) + 1) / warmup, 1)

## The same learning rate at every step, after `warmup` steps.
## Example: `constant(0, peak=0.1, warmup=10)` -> 0.01: f32
fn constant(step: i32, peak, warmup = 0) -> f32 = peak * rising(step, warmup)

## How much of the way from the end of the warm-up to step `steps` is done.
## Example: `falling(60, 100, 20)` -> 0.5: f32
fn falling(step: i32, steps, warmup) -> f32 =
  clip((f32(step) - warmup) / maximum(f32(steps) - warmup, 1), 0, 1)

## A straight line up over `warmup` steps, then half a cosine down to `floor` at step `steps`.
## Example: `cosine(0, peak=0.1, steps=100, warmup=10)` -> 0.01: f32
fn cosine(step: i32, peak, steps = total_steps, warmup = 0, floor = 0.0) -> f32 {
  let down = floor + (peak - floor) * 0.5 * (1 + cos(pi * falling(step, steps, warmup)))
  return where(step < warmup, peak * rising(step, warmup), down)
}

## A straight line up over `warmup` steps, then one down to `floor` at step `steps`.
## Example: `slope(0, peak=0.1, steps=100, warmup=10)` -> 0.01: f32
fn slope(step: i32, peak, steps = total_steps, warmup = 0, floor = 0.0) -> f32 {
  let down = peak + (floor - peak) * falling(step, steps, warmup)
  return where(step < warmup, peak * rising(step, warmup), down)
}

## The first value, multiplied by `factor` after every `every` steps; a straight line up before.
## Example: `staircase(25, start=0.1, every=10)` -> 0.001: f32
fn staircase(step: i32, start, every, factor = 0.1, warmup = 0) -> f32 =
  start * rising(step, warmup) * factor ** f32(step // every)
