dlc 1
## Layers of neural networks. Pictures are [batch, height, width, channel]; `dims="nchw"` changes that.

## Every row through a dense layer: `x @ w + b`.
module Linear(inputs, outputs, bias = true, F: dtype = f32) {
  param w: F[inputs, outputs] = glorot_uniform()
  param b: F[if bias then outputs else 0] = zeros()
  fn call(x: F[.., inputs]) -> F[.., outputs] = if bias then linear(x, w, b) else linear(x, w)
}

## Convolution over height and width.
module Conv2d(inputs, outputs, kernel, stride = 1, padding = 0, dilation = 1, groups = 1, bias = true,
              dims = "nhwc", F: dtype = f32) {
  require inputs % groups == 0 and outputs % groups == 0, "the groups must divide the channels"
  const first = dims == "nchw"
  const k = ints(kernel, 2)
  const s = if first then [outputs, inputs // groups, k[0], k[1]] else [k[0], k[1], inputs // groups, outputs]
  param w: F[s[0], s[1], s[2], s[3]] = glorot_uniform()
  param b: F[if bias then outputs else 0] = zeros()
  fn call(x: F[_, if first then inputs else _, _, if first then _ else inputs]) -> F[_, _, _, _] =
    conv(x, w, b = if bias then b else none, stride=stride, padding=padding, dilation=dilation,
         groups=groups, dims=dims)
}
