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

## Lion (Chen and others, 2023): steps of one size, in the direction of the sign of a running mean. Its
## learning rate is a tenth to a third of adamw's, its decay as many times larger.
## Example: `optimizer = lion(lr=1e-4, weight_decay=0.1)`
module lion(lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0.0, clip_norm = none,
            clip_value = none) {
  state m: f32[..] = zeros()
  fn update(p: f32[..], g: f32[..], step: i32) -> f32[..] {
    set m = beta2 * m + (1 - beta2) * g
    let size = rate(lr, step)
    return (1 - size * weight_decay) * p - size * sign(beta1 * m + (1 - beta1) * g)
  }
}

## The root of the sum of squares of a weight, of each block in a stack by itself; its axes have size 1.
## Example: `length([3, 4], 0)` -> [5]: f32[1]
fn length(x: f32[..], stacked) =
  sqrt(sum(x * x, axis=[for k in stacked..rank(x): k], keepdims=true))

## LAMB (You and others, 2020): adamw whose step is as long as the rate times the weight, for large
## batches; a weight or a step of length 0 takes adamw's step.
## Example: `optimizer = lamb(lr=0.002)`
module lamb(lr = 0.001, beta1 = 0.9, beta2 = 0.999, eps = 1e-6, weight_decay = 0.01,
            clip_norm = none, clip_value = none) {
  state m: f32[..] = zeros()
  state v: f32[..] = zeros()
  fn update(p: f32[..], g: f32[..], step: i32, stacked) -> f32[..] {
    let m2 = beta1 * m + (1 - beta1) * g
    let v2 = beta2 * v + (1 - beta2) * g * g
    set m = m2
    set v = v2
    let move = m2 / bias(beta1, step) / (sqrt(v2) * rsqrt(bias(beta2, step)) + eps)
    let whole = move + weight_decay * p
    let (own, way) = (length(p, stacked), length(whole, stacked))
    let trust = where(own * way > 0, own / maximum(way, 1e-30), 1)
    return p - rate(lr, step) * trust * whole
  }
}

## The nearest matrices with singular values near 1, by five steps of Newton and Schulz with Jordan's
## coefficients: of x = u @ s @ v about u @ v. Each matrix has at most as many rows as columns.
## Example: `orthogonalized([[2.0]], 1)` -> [[0.7010]]: f32[1, 1]
fn orthogonalized(x: f32[.., M, N], steps) -> f32[.., M, N] {
  let length = sqrt(sum(x * x, axis=[-1, -2], keepdims=true))
  return scan i in 0..steps with y = x / maximum(length, 1e-7) {
    let a = y @ transpose(y)
    next y = 3.4445 * y + (-4.7750 * a + 2.0315 * (a @ a)) @ y
  }
}

## Muon (Jordan and others, 2024): the running mean of the gradient of a matrix, with all its singular values
## made about 1, times the root of outputs / inputs where that is above 1. Weights [inputs, outputs] only;
## vectors, kernels and others are updated as adamw does, with the rate `other_lr`. Give embeddings and the
## last layer another optimizer, as its authors do.
## Example: `optimizer = muon(lr=0.02, weight_decay=0.01)`
module muon(lr = 0.02, momentum = 0.95, nesterov = true, weight_decay = 0.0, steps = 5,
            other_lr = 0.001, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, clip_norm = none,
            clip_value = none) {
  state m: f32[..] = zeros()
  state v: f32[..] = zeros()
  fn update(p: f32[..], g: f32[..], step: i32, stacked) -> f32[..] =
    if rank(p) - stacked == 2 then of_matrix(p, g, step) else of_other(p, g, step)

  fn of_matrix(p, g, step) {
    let m2 = lerp(g, m, momentum)
    set m = m2
    let way = if nesterov then lerp(g, m2, momentum) else m2
    let (rows, columns) = (shape(p)[-2], shape(p)[-1])
    let turn = if rows <= columns then orthogonalized(way, steps)
               else transpose(orthogonalized(transpose(way), steps))
    let size = rate(lr, step)
    return (1 - size * weight_decay) * p - size * sqrt(max_of(1.0, columns / rows)) * turn
  }

  fn of_other(p, g, step) {
    let m2 = beta1 * m + (1 - beta1) * g
    let v2 = beta2 * v + (1 - beta2) * g * g
    set m = m2
    set v = v2
    let size = rate(other_lr, step)
    let move = m2 / bias(beta1, step) / (sqrt(v2) * rsqrt(bias(beta2, step)) + eps)
    return (1 - size * weight_decay) * p - size * move
  }
}

## The larger of two numbers.
## Example: `max_of(1.0, 2.0)` -> 2.0: f32
fn max_of(a, b) = if a < b then b else a

## Adafactor (Shazeer and Stern, 2018), in PyTorch's form: adam without a first moment, whose second moment
## of a matrix is the product of its means over rows and over columns, so a weight [m, n] keeps m + n
## numbers. The step is `lr` (at most 1 / sqrt(step)) times the root mean square of the weight.
## Example: `optimizer = adafactor(lr=0.01)`
module adafactor(lr = 0.01, decay = 0.8, least_scale = 1e-3, clip = 1.0, weight_decay = 0.0,
                 eps = 1.1920929e-7, clip_norm = none, clip_value = none) {
  state rows: f32[.., _, 1] = zeros()
  state columns: f32[.., 1, _] = zeros()
  state v: f32[..] = zeros()

  fn update(p: f32[..], g: f32[..], step: i32, stacked) -> f32[..] {
    let new = exp(-decay * log(f32(step + 1)))
    let moment = if rank(p) - stacked > 1 then of_matrix(g * g, new) else of_vector(g * g, new)
    let move = g * rsqrt(maximum(moment, eps * eps))
    let size = minimum(rate(lr, step), rsqrt(f32(step + 1)))
    let scale = size * maximum(root_mean(p, stacked), least_scale)
    let kept = (1 - rate(lr, step) * weight_decay) * p
    return kept - scale * move / maximum(root_mean(move, stacked) / clip, 1)
  }

  fn of_matrix(square, new) {
    let r = lerp(rows, mean(square, axis=-1, keepdims=true), new)
    let c = lerp(columns, mean(square, axis=-2, keepdims=true), new)
    set rows = r
    set columns = c
    return r * c / maximum(mean(r, axis=-2, keepdims=true), eps)
  }

  fn of_vector(square, new) {
    let v2 = lerp(v, square, new)
    set v = v2
    return v2
  }
}

## The root of the mean of squares of a weight, of each block in a stack by itself; its axes have size 1.
## Example: `root_mean([1, 7], 0)` -> [5]: f32[1]
fn root_mean(x: f32[..], stacked) =
  sqrt(mean(x * x, axis=[for k in stacked..rank(x): k], keepdims=true))

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
