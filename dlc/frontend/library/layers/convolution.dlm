dlc 1
## Convolutions in 1, 2 and 3 dimensions, and transposed ones.
##
## `kernel`, `stride` and `dilation` are one number, or a list with one for each axis; `padding` is a
## number, a list of numbers or pairs, or "same". The kernel of `dims="nhwc"` is [.., in, out], that of
## `dims="nchw"` is [out, in, ..].

## Convolution of sequences [batch, place, channel].
## Example: `Conv1d(3, 8, kernel=5)` f32[2, 16, 3] -> f32[2, 12, 8]
module Conv1d(inputs, outputs, kernel, stride = 1, padding = 0, dilation = 1, groups = 1,
              bias = true, dims = "nwc", F: dtype = f32) {
  require inputs % groups == 0 and outputs % groups == 0, "the groups must divide the channels"
  const first = dims == "ncw"
  const k = ints(kernel, 1)
  const s = if first then [outputs, inputs // groups, k[0]] else [k[0], inputs // groups, outputs]
  param w: F[s[0], s[1], s[2]] = glorot_uniform()
  param b: F[if bias then outputs else 0] = zeros()

  fn call(x: F[_, if first then inputs else _, if first then _ else inputs]) -> F[_, _, _] =
    conv(x, w, if bias then b else none, stride=stride, padding=padding, dilation=dilation,
         groups=groups, dims=dims)
}

## Convolution of pictures [batch, height, width, channel].
## Example: `Conv2d(3, 8, kernel=3, stride=2, padding=1)` f32[2, 32, 32, 3] -> f32[2, 16, 16, 8]
module Conv2d(inputs, outputs, kernel, stride = 1, padding = 0, dilation = 1, groups = 1,
              bias = true, dims = "nhwc", F: dtype = f32) {
  require inputs % groups == 0 and outputs % groups == 0, "the groups must divide the channels"
  const first = dims == "nchw"
  const k = ints(kernel, 2)
  const s = if first then [outputs, inputs // groups, k[0], k[1]]
            else [k[0], k[1], inputs // groups, outputs]
  param w: F[s[0], s[1], s[2], s[3]] = glorot_uniform()
  param b: F[if bias then outputs else 0] = zeros()

  fn call(x: F[_, if first then inputs else _, _, if first then _ else inputs]) -> F[_, _, _, _] =
    conv(x, w, if bias then b else none, stride=stride, padding=padding, dilation=dilation,
         groups=groups, dims=dims)
}

## Convolution of volumes [batch, depth, height, width, channel].
## Example: `Conv3d(3, 8, kernel=3)` f32[2, 8, 8, 8, 3] -> f32[2, 6, 6, 6, 8]
module Conv3d(inputs, outputs, kernel, stride = 1, padding = 0, dilation = 1, groups = 1,
              bias = true, dims = "ndhwc", F: dtype = f32) {
  require inputs % groups == 0 and outputs % groups == 0, "the groups must divide the channels"
  const first = dims == "ncdhw"
  const k = ints(kernel, 3)
  const s = if first then [outputs, inputs // groups, k[0], k[1], k[2]]
            else [k[0], k[1], k[2], inputs // groups, outputs]
  param w: F[s[0], s[1], s[2], s[3], s[4]] = glorot_uniform()
  param b: F[if bias then outputs else 0] = zeros()

  fn call(x: F[_, if first then inputs else _, _, _, if first then _ else inputs]) -> F[_, _, _, _,
                                                                                        _] =
    conv(x, w, if bias then b else none, stride=stride, padding=padding, dilation=dilation,
         groups=groups, dims=dims)
}

## Transposed convolution: every place of x adds the kernel, times itself, to the result.
## Example: `ConvTranspose1d(3, 8, kernel=2, stride=2)` f32[2, 8, 3] -> f32[2, 16, 8]
module ConvTranspose1d(inputs, outputs, kernel, stride = 1, padding = 0, output_padding = 0,
                       dilation = 1, groups = 1, bias = true, dims = "nwc", F: dtype = f32) {
  require inputs % groups == 0 and outputs % groups == 0, "the groups must divide the channels"
  const first = dims == "ncw"
  const k = ints(kernel, 1)
  const s = if first then [outputs, inputs // groups, k[0]] else [k[0], inputs // groups, outputs]
  param w: F[s[0], s[1], s[2]] = glorot_uniform()
  param b: F[if bias then outputs else 0] = zeros()

  fn call(x: F[_, if first then inputs else _, if first then _ else inputs]) -> F[_, _, _] =
    conv_transpose(x, w, if bias then b else none, stride=stride, padding=padding,
                   output_padding=output_padding, dilation=dilation, groups=groups, dims=dims)
}

## Transposed convolution of pictures.
## Example: `ConvTranspose2d(3, 8, kernel=2, stride=2)` f32[2, 8, 8, 3] -> f32[2, 16, 16, 8]
module ConvTranspose2d(inputs, outputs, kernel, stride = 1, padding = 0, output_padding = 0,
                       dilation = 1, groups = 1, bias = true, dims = "nhwc", F: dtype = f32) {
  require inputs % groups == 0 and outputs % groups == 0, "the groups must divide the channels"
  const first = dims == "nchw"
  const k = ints(kernel, 2)
  const s = if first then [outputs, inputs // groups, k[0], k[1]]
            else [k[0], k[1], inputs // groups, outputs]
  param w: F[s[0], s[1], s[2], s[3]] = glorot_uniform()
  param b: F[if bias then outputs else 0] = zeros()

  fn call(x: F[_, if first then inputs else _, _, if first then _ else inputs]) -> F[_, _, _, _] =
    conv_transpose(x, w, if bias then b else none, stride=stride, padding=padding,
                   output_padding=output_padding, dilation=dilation, groups=groups, dims=dims)
}

## Transposed convolution of volumes.
## Example: `ConvTranspose3d(3, 8, kernel=2, stride=2)` f32[2, 4, 4, 4, 3] -> f32[2, 8, 8, 8, 8]
module ConvTranspose3d(inputs, outputs, kernel, stride = 1, padding = 0, output_padding = 0,
                       dilation = 1, groups = 1, bias = true, dims = "ndhwc", F: dtype = f32) {
  require inputs % groups == 0 and outputs % groups == 0, "the groups must divide the channels"
  const first = dims == "ncdhw"
  const k = ints(kernel, 3)
  const s = if first then [outputs, inputs // groups, k[0], k[1], k[2]]
            else [k[0], k[1], k[2], inputs // groups, outputs]
  param w: F[s[0], s[1], s[2], s[3], s[4]] = glorot_uniform()
  param b: F[if bias then outputs else 0] = zeros()

  fn call(x: F[_, if first then inputs else _, _, _, if first then _ else inputs]) -> F[_, _, _, _,
                                                                                        _] =
    conv_transpose(x, w, if bias then b else none, stride=stride, padding=padding,
                   output_padding=output_padding, dilation=dilation, groups=groups, dims=dims)
}
