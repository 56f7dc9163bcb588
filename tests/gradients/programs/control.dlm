dlc 1
## Through choices and loops, and loops in loops.
import nn (Linear)
dim T = 1..9

fn cell(x: f32[.., 3], h: f32[.., 3], w: f32[3, 3]) = tanh(x + h @ w)

export fn yes(x: f32[3], c: bool = true) -> f32[3] = if c then sin(x) * x else x ** 3
export fn no(x: f32[3], c: bool = false) -> f32[3] = if c then sin(x) * x else x ** 3
export fn a_choice_by_value(x: f32[4], y: f32[4]) -> f32[4] =
  if sum(x) > 0 then x * y else exp(y) * x
export fn choices_in_choices(x: f32[3]) -> f32[3] =
  if sum(x) > 0 then (if x[0] > 0 then x ** 2 else x ** 3) else if x[1] > 0 then sin(x) else cos(x)
export fn a_choice_of_two_values(x: f32[3], y: f32[3]) -> f32[3] {
  let (a, b) = if x[0] > 100 then (x, y) else (y * x, x * x)
  return a * b + a
}

export fn forward(xs: f32[T, 3], h: f32[3]) -> f32[3] =
  scan x in xs with h = h { next h = tanh(x + h * h) }
export fn backward(xs: f32[T, 3], h: f32[3]) -> f32[3] =
  scan x in reverse xs with h = h { next h = tanh(x * h) + x }
export fn along_the_second_axis(xs: f32[2, T, 3], w: f32[3, 3]) -> f32[2, 3] =
  scan x in xs along 1 with h = zeros([2, 3]) { next h = cell(x, h, w) }
export fn every_step(xs: f32[2, T, 3], w: f32[3, 3]) -> f32[2, T, 3] {
  let (.., y) = scan x in xs along 1 with h = zeros([2, 3]) {
    let h2 = cell(x, h, w)
    next h = h2
    yield h2 * x
  }
  return y
}
export fn every_step_along_the_last_axis(xs: f32[2, 3, 5], w: f32[3, 3]) -> f32[2, 3, 5] {
  let (.., y) = scan x in reverse xs along 2 with h = ones([2, 3]) {
    let h2 = cell(x, h, w)
    next h = h2
    yield h2 * h
  }
  return y
}
export fn two_carries(xs: f32[T, 3], a: f32[3], b: f32[3]) -> (a: f32[3], b: f32[3], y: f32[T, 3]) {
  let (a2, b2, y) = scan x in xs with a = a, b = b {
    next a = b * x
    next b = sin(a) + x
    yield a * b
  }
  return (a = a2, b = b2, y = y)
}
export fn gates(xs: f32[2, T, 12], w: f32[3, 12]) -> (h: f32[2, 3], y: f32[2, T, 3]) {
  let (h, _, y) = scan x in xs along 1 with h = zeros([2, 3]), c = zeros([2, 3]) {
    let (i, f, o, g) = split(x + h @ w, 4, axis=-1)
    let c2 = sigmoid(f) * c + sigmoid(i) * tanh(g)
    let h2 = sigmoid(o) * tanh(c2)
    next h = h2
    next c = c2
    yield h2
  }
  return (h = h, y = y)
}
export fn two_tensors_at_once(xs: f32[T, 3], ys: f32[T, 3]) -> f32[3] =
  scan (x, y) in (xs, ys) with h = zeros([3]) { next h = h * y + sin(x) }
export fn a_row_in_other_shapes(xs: f32[3, T, 4], h: f32[4, 3]) -> (h: f32[4, 3], y: f32[3, T, 4]) {
  let (h, y) = scan x in xs along 1 with h = h {
    let z = sin(x * 2 + transpose(h))
    next h = reshape(z, [4, 3]) * 0.1 + transpose(z)
    yield z
  }
  return (h = h, y = y)
}
export fn numbers(x: f32[3]) -> f32[3] = scan t in 0..4 with h = x { next h = h * sin(h + f32(t)) }
export fn only_yields(xs: f32[T, 3]) -> f32[T, 3] = scan x in xs { yield x * sum(x) }
export fn a_length_of_one(xs: f32[1, 3], h: f32[3]) -> f32[3] =
  scan x in xs with h = h { next h = h * x }
export fn a_length_of_none(xs: f32[0, 3], h: f32[3]) -> f32[3] {
  let h2 = scan x in xs with h = h { next h = h * x }
  return h2 * h2
}
export fn loops_in_loops(xs: f32[3, 2, 3], h: f32[3]) -> f32[3] =
  scan row in xs with h = h { next h = scan x in row with g = h { next g = tanh(g * x + x) } }
export fn a_loop_that_yields_in_a_loop(xs: f32[3, 2, 4]) -> f32[3, 2, 4] = scan row in xs {
  let (.., y) = scan x in reverse row along 1 with g = zeros([2]) {
    next g = sin(g + x)
    yield g * x
  }
  yield y
}
export fn a_choice_in_a_loop(xs: f32[T, 3], h: f32[3]) -> f32[3] =
  scan x in xs with h = h { next h = if sum(x) > 0 then h * x else sin(h + x) }
export fn a_loop_in_a_choice(xs: f32[3, 3], h: f32[3]) -> f32[3] =
  if sum(h) > 100 then h else scan x in xs with g = h { next g = tanh(g + x) }

export fn until(x: f32[3]) -> f32[3] =
  while sum(abs(y)) < 20 with y = x limit 30 { next y = y * 1.5 + sin(y) }
export fn root(a: f32 = 2) -> f32 =
  while abs(x * x - a) > 1e-6 with x = a limit 100 { next x = (x + a / x) / 2 }
export fn not_even_once(x: f32[3]) -> f32[3] {
  let y = while sum(x) > 1000 with y = x limit 5 { next y = y * y }
  return y * y
}
export fn until_with_two(x: f32[3], w: f32[3]) -> (a: f32[3], n: i32) {
  let (a, n) = while n < 4 with a = x, n = 0 limit 10 {
    next a = sin(a) + w * a
    next n = n + 1
  }
  return (a = a * a, n = n)
}
export fn until_in_a_loop(xs: f32[3, 2]) -> f32[2] = scan x in xs with h = ones([2]) {
  next h = while sum(g * g) > 0.5 with g = h + x limit 20 { next g = g * 0.6 + 0.01 * x }
}
export fn a_loop_in_until(x: f32[3], w: f32[3, 3]) -> f32[3] =
  while sum(abs(y)) < 9 with y = abs(x) limit 20 {
    next y = scan r in w with g = y { next g = g + 0.3 * sin(r) * g + 0.2 }
  }
export fn until_in_until(x: f32[2]) -> f32[2] = while sum(y * y) < 50 with y = 1 + x * x limit 20 {
  next y = (while sum(z) < 4 with z = y limit 20 { next z = z * 1.3 }) |> grown
}
fn grown(z: f32[..]) = z * 1.7
export fn a_choice_in_until(x: f32[3]) -> f32[3] = while sum(y * y) < 30
    with y = 1 + abs(x)
    limit 30 {
  next y = if sum(y) > 6 then y * 1.3 else y + sin(y)
}
