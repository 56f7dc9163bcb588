dlc 1
## Blocks of convolutional networks for pictures [batch, height, width, channel].
import "convolution.dlm" (Conv2d)
import "dense.dlm" (Linear)
import "normalisation.dlm" (BatchNorm)

## The rectifier that stops at 6.
fn relu6(x) = clip(x, 0, 6)

## Each channel times a number from 0 to 1 that two dense layers compute from the means of all channels
## (Hu and others, 2018).
## Example: `SqueezeExcite(8, 2)` f32[2, 4, 4, 8] -> f32[2, 4, 4, 8]
module SqueezeExcite(channels, hidden, act: fn = relu, gate: fn = sigmoid, F: dtype = f32) {
  use down = Linear(channels, hidden, F=F)
  use up = Linear(hidden, channels, F=F)
  fn call(x: F[B, H, W, channels]) -> F[B, H, W, channels] =
    x * gate(up(act(down(mean(x, axis=[1, 2])))))[:, new, new, :]
}

## A convolution of each channel by itself, then one of kernel 1 over the channels, each normalised (Howard
## and others, 2017).
## Example: `DepthwiseSeparable(3, 8, stride=2)` f32[2, 8, 8, 3] -> f32[2, 4, 4, 8]
module DepthwiseSeparable(inputs, outputs, kernel = 3, stride = 1, act: fn = relu, F: dtype = f32) {
  use depthwise = Conv2d(inputs, inputs, kernel=kernel, stride=stride, padding=kernel // 2,
                         groups=inputs, bias=false, F=F)
  use norm1 = BatchNorm(inputs, F=F)
  use pointwise = Conv2d(inputs, outputs, kernel=1, bias=false, F=F)
  use norm2 = BatchNorm(outputs, F=F)
  fn call(x: F[B, H, W, inputs]) -> F[B, _, _, outputs] =
    x |> depthwise |> norm1 |> act |> pointwise |> norm2 |> act
}

## The block of MobileNetV2 (Sandler and others, 2018): `expand` times as many channels, a convolution of
## each, and a projection to `outputs` without activation; x is added where the shape is the same. With
## `squeeze` channels a SqueezeExcite follows the convolution, as in MobileNetV3 and EfficientNet.
## Example: `InvertedResidual(4, 4)` f32[2, 8, 8, 4] -> f32[2, 8, 8, 4]
module InvertedResidual(inputs, outputs, stride = 1, expand = 6, kernel = 3, squeeze = 0,
                        act: fn = relu6, F: dtype = f32) {
  const wide = expand * inputs
  use expansion = if expand == 1 then identity
                  else chain(Conv2d(inputs, wide, kernel=1, bias=false, F=F), BatchNorm(wide, F=F),
                             act)
  use depthwise = Conv2d(wide, wide, kernel=kernel, stride=stride, padding=kernel // 2, groups=wide,
                         bias=false, F=F)
  use norm1 = BatchNorm(wide, F=F)
  use excite = if squeeze == 0 then identity else SqueezeExcite(wide, squeeze, F=F)
  use projection = Conv2d(wide, outputs, kernel=1, bias=false, F=F)
  use norm2 = BatchNorm(outputs, F=F)

  fn call(x: F[B, H, W, inputs]) -> F[B, _, _, outputs] {
    let y = x |> expansion |> depthwise |> norm1 |> act |> excite |> projection |> norm2
    return if stride == 1 and inputs == outputs then x + y else y
  }
}
