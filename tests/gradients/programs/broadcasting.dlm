dlc 1
## Broadcasting, reductions and shapes: what was stretched is summed up again.
dim B = 1..9

export fn a_column_times_a_row(x: f32[3, 1], y: f32[4]) -> f32[3, 4] = sin(x) * y + x
export fn a_scalar_everywhere(x: f32, y: f32[2, 3]) -> f32[2, 3] = (x - y) / (1 + x * x)
export fn an_axis_in_the_middle(x: f32[2, 1, 4], y: f32[3, 1]) -> f32[2, 3, 4] = exp(x / 4) * y
export fn both_ways(x: f32[1, 3], y: f32[2, 1]) -> f32[2, 3] = atan2(x + 3, y)
export fn a_batch_of_any_size(x: f32[B, 3], b: f32[3]) -> f32[B, 3] = tanh(x + b) * x
export fn with_itself(x: f32[3]) -> f32[3, 3] = x[:, new] * cos(x[new, :])
export fn size_one(x: f32[1, 1]) -> f32[1, 1] = x ** 3 + sum(x * x)
export fn nothing(x: f32[0, 3], y: f32[3]) -> f32[3] = sum(x, axis=0) + y * y
export fn nothing_left(x: f32[2, 0]) -> f32[2, 0] = x * x
export fn sums(x: f32[2, 3, 4]) -> f32[3] = sum(x * x * x, axis=(0, -1))
export fn means_that_stay(x: f32[2, 3, 4]) -> f32[2, 3, 4] =
  (x - mean(x, keep=1, keepdims=true)) ** 2
export fn spread(x: f32[5, 4]) -> f32[4] = sqrt(variance(x, axis=0) + 0.1)
export fn both_moments(x: f32[5, 4]) -> f32[4] {
  let (m, v) = moments(x, keep=-1)
  return m * rsqrt(v + 1e-3)
}
export fn length(x: f32[3, 4]) -> f32[3] = norm(x, axis=1)
export fn products(x: f32[3, 4]) -> f32[3] = product(x, axis=1)
export fn products_with_a_zero(x: f32[4] = [1.5, 0, -2, 3]) -> f32 = product(x)
export fn products_with_two_zeros(x: f32[4] = [1.5, 0, -2, 0]) -> f32 = product(x)
export fn softmax_by_hand(x: f32[3, 5]) -> f32[3, 5] {
  let e = exp(x - max(x, axis=-1, keepdims=true))
  return e / sum(e, axis=-1, keepdims=true)
}
export fn largest_minus_smallest(x: f32[4, 3]) -> f32[3] = max(x, axis=0) * min(x, axis=0)
export fn running_sum(x: f32[3, 5]) -> f32[3, 5] = cumsum(x * x, axis=1)
export fn running_sum_backwards(x: f32[5, 2]) -> f32[5, 2] =
  cumsum(sin(x), axis=0, reverse=true, exclusive=true)
export fn running_product(x: f32[2, 5]) -> f32[2, 5] = cumprod(x, axis=1)
export fn running_largest(x: f32[2, 6]) -> f32[2, 6] = cummax(x * x, axis=1)
