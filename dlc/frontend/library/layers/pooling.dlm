dlc 1
## Pooling as layers; the functions max_pool2d, avg_pool2d, global_avg_pool and the like do the same.

## The largest element of each window, in 2 dimensions.
## Example: `MaxPool(2)` f32[2, 8, 8, 3] -> f32[2, 4, 4, 3]
module MaxPool(size, stride = none, padding = 0, dims = "nhwc") {
  fn call(x: f32[_, _, _, _]) -> f32[_, _, _, _] = max_pool2d(x, size, stride, padding, dims)
}

## The mean of each window, in 2 dimensions.
## Example: `AvgPool(3, stride=1, padding=1)` f32[2, 8, 8, 3] -> f32[2, 8, 8, 3]
module AvgPool(size, stride = none, padding = 0, count_padding = false, dims = "nhwc") {
  fn call(x: f32[_, _, _, _]) -> f32[_, _, _, _] =
    avg_pool2d(x, size, stride, padding, count_padding, dims)
}

## The largest element of each channel.
## Example: `GlobalMaxPool()` f32[2, 8, 8, 3] -> f32[2, 3]
module GlobalMaxPool(dims = none) {
  fn call(x) = global_max_pool(x, dims)
}

## The mean of each channel.
## Example: `GlobalAvgPool()` f32[2, 8, 8, 3] -> f32[2, 3]
module GlobalAvgPool(dims = none) {
  fn call(x) = global_avg_pool(x, dims)
}
