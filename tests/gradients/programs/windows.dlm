dlc 1
## Convolutions and pooling: strides, padding, dilation, groups, either layout.
dim B = 1..4

export fn plain(x: f32[2, 5, 6, 3], w: f32[3, 3, 3, 4]) -> f32[2, 3, 4, 4] = conv(x, w)
export fn same(x: f32[B, 5, 5, 2], w: f32[3, 3, 2, 3], b: f32[3]) -> f32[B, 5, 5, 3] =
  tanh(conv(x, w, b, padding="same"))
export fn strided(x: f32[1, 7, 8, 2], w: f32[3, 2, 2, 3]) -> f32[1, 4, 4, 3] =
  conv(x, w, stride=2, padding=((1, 1), (0, 0)))
export fn dilated(x: f32[1, 7, 7, 2], w: f32[2, 3, 2, 2]) -> f32[1, 5, 5, 2] =
  conv(x, w, dilation=(2, 1))
export fn dilated_and_strided(x: f32[1, 9, 9, 1], w: f32[3, 3, 1, 2]) -> f32[1, 3, 3, 2] =
  conv(x, w, dilation=2, stride=2)
export fn grouped(x: f32[2, 4, 4, 4], w: f32[3, 3, 2, 6]) -> f32[2, 4, 4, 6] =
  conv(x, w, padding=1, groups=2)
export fn depthwise(x: f32[2, 5, 5, 3], w: f32[3, 3, 1, 3]) -> f32[2, 5, 5, 3] =
  conv(x, w, padding=1, groups=3)
export fn depthwise_strided(x: f32[1, 6, 6, 4], w: f32[3, 3, 1, 4]) -> f32[1, 3, 3, 4] =
  conv(x, w, padding=1, stride=2, groups=4)
export fn pointwise(x: f32[2, 3, 3, 5], w: f32[1, 1, 5, 2]) -> f32[2, 3, 3, 2] = conv(x, w) ** 2
export fn channels_first(x: f32[2, 3, 5, 6], w: f32[4, 3, 3, 3]) -> f32[2, 4, 5, 6] =
  conv(x, w, padding=1, dims="nchw")
export fn in_one_dimension(x: f32[2, 9, 3], w: f32[4, 3, 2]) -> f32[2, 3, 2] =
  conv(x, w, stride=2, dims="nwc")
export fn in_three_dimensions(x: f32[1, 3, 4, 3, 2], w: f32[2, 2, 2, 2, 2]) -> f32[1, 2, 3, 2, 2] =
  conv(x, w, dims="ndhwc")
export fn transposed(x: f32[1, 3, 4, 2], w: f32[3, 3, 2, 3]) -> f32[1, 7, 9, 3] =
  conv_transpose(x, w, stride=2)
export fn transposed_with_padding(x: f32[1, 3, 3, 2], w: f32[3, 3, 2, 2]) -> f32[1, 6, 6, 2] =
  conv_transpose(x, w, stride=2, padding=1, output_padding=1)
export fn one_after_the_other(x: f32[1, 6, 6, 2], w: f32[3, 3, 2, 3], v: f32[3, 3, 3, 2]) -> f32[1,
                                                                                                 6,
                                                                                                 6,
                                                                                                 2] =
  x + conv(silu(conv(x, w, padding=1)), v, padding=1)
export fn largest(x: f32[2, 4, 6, 2]) -> f32[2, 2, 3, 2] = max_pool2d(x, 2) ** 2
export fn largest_overlapping(x: f32[1, 5, 5, 2]) -> f32[1, 3, 3, 2] =
  max_pool2d(x, 3, stride=2, padding=1) ** 2
export fn mean_of_windows(x: f32[2, 4, 4, 3]) -> f32[2, 2, 2, 3] = avg_pool2d(x ** 2, 2)
export fn mean_with_padding(x: f32[1, 5, 5, 1]) -> f32[1, 3, 3, 1] =
  avg_pool2d(x ** 2, 3, stride=2, padding=1, count_padding=true)
export fn mean_without_padding(x: f32[1, 5, 5, 1]) -> f32[1, 3, 3, 1] =
  avg_pool2d(x ** 2, 3, stride=2, padding=1)
export fn mean_of_all(x: f32[2, 3, 4, 5]) -> f32[2, 5] = global_avg_pool(x ** 2)
export fn nearest(x: f32[1, 3, 3, 2]) -> f32[1, 6, 6, 2] = resize(x ** 2, [6, 6])
export fn between(x: f32[1, 3, 4, 2]) -> f32[1, 5, 7, 2] = resize(x ** 2, [5, 7], method="linear")
