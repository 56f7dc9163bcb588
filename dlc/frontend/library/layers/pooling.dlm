dlc 1
## Pooling as layers; the functions max_pool2d, avg_pool2d, global_avg_pool and the like do the same.

## The largest element of each window, in 2 dimensions.
module MaxPool(size, stride = none, padding = 0, dims = "nhwc") {
  fn call(x: f32[_, _, _, _]) -> f32[_, _, _, _] = max_pool2d(x, size, stride, padding, dims)
}

## The mean of each window, in 2 dimensions.
module AvgPool(size, stride = none, padding = 0, count_padding = false, dims = "nhwc") {
  fn call(x: f32[_, _, _, _]) -> f32[_, _, _, _] =
    avg_pool2d(x, size, stride, padding, count_padding, dims)
}

## The largest element of each channel.
module GlobalMaxPool(dims = none) {
  fn call(x) = global_max_pool(x, dims)
}

## The mean of each channel.
module GlobalAvgPool(dims = none) {
  fn call(x) = global_avg_pool(x, dims)
}
