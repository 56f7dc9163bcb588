dlc 1
## resnet50, imported from resnet50.pt2.

import nn (BatchNorm, Conv2d, Linear)
dim batch = 1..1024

module Bottleneck(inputs, width) {
  use conv1 = Conv2d(inputs, width, kernel=1, bias=false, dims="nchw")
  use bn1 = BatchNorm(width, dims="nchw")
  use conv2 = Conv2d(width, width, kernel=3, padding=1, bias=false, dims="nchw")
  use bn2 = BatchNorm(width, dims="nchw")
  use conv3 = Conv2d(width, inputs, kernel=1, bias=false, dims="nchw")
  use bn3 = BatchNorm(inputs, dims="nchw")
  fn call(x) {
    let h = x |> conv1 |> bn1 |> relu |> conv2 |> bn2 |> relu |> conv3 |> bn3
    return relu(h + x)
  }
}

module Bottleneck2(inputs, width, outputs, stride) {
  use conv1 = Conv2d(inputs, width, kernel=1, bias=false, dims="nchw")
  use bn1 = BatchNorm(width, dims="nchw")
  use conv2 = Conv2d(width, width, kernel=3, stride=stride, padding=1, bias=false, dims="nchw")
  use bn2 = BatchNorm(width, dims="nchw")
  use conv3 = Conv2d(width, outputs, kernel=1, bias=false, dims="nchw")
  use bn3 = BatchNorm(outputs, dims="nchw")
  use downsample = chain(Conv2d(inputs, outputs, kernel=1, stride=stride, bias=false, dims="nchw"),
                         BatchNorm(outputs, dims="nchw"))
  fn call(x) {
    let h = x |> conv1 |> bn1 |> relu |> conv2 |> bn2 |> relu |> conv3 |> bn3
    return relu(h + downsample(x))
  }
}

module Resnet50 from "resnet50.safetensors" {
  use conv1 = Conv2d(3, 64, kernel=7, stride=2, padding=3, bias=false, dims="nchw")
  use bn1 = BatchNorm(64, dims="nchw")
  use layer1_0 = Bottleneck2(64, 8, 32, stride=1)
  use layer1 = 2 * Bottleneck(32, 8)
  use layer2_0 = Bottleneck2(32, 16, 64, stride=2)
  use layer2 = 3 * Bottleneck(64, 16)
  use layer3_0 = Bottleneck2(64, 32, 128, stride=2)
  use layer3 = 5 * Bottleneck(128, 32)
  use layer4_0 = Bottleneck2(128, 64, 256, stride=2)
  use layer4 = 2 * Bottleneck(256, 64)
  use fc = Linear(256, 10)

  export fn run(x: f32[batch, 3, 64, 64]) -> (scores: f32[batch, 10]) {
    # f32[batch, 32, 16, 16]
    let h = x |> conv1 |> bn1 |> relu |> max_pool2d(3, stride=2, padding=1, dims="nchw") |> layer1_0
    # f32[batch, 32, 16, 16]
    let h2 = scan block in layer1 with h = h {
      next h = block(h)
    }
    # f32[batch, 64, 8, 8]
    let h3 = scan block in layer2 with h = layer2_0(h2) {
      next h = block(h)
    }
    # f32[batch, 128, 4, 4]
    let h4 = scan block in layer3 with h = layer3_0(h3) {
      next h = block(h)
    }
    # f32[batch, 256, 2, 2]
    let h5 = scan block in layer4 with h = layer4_0(h4) {
      next h = block(h)
    }
    return h5 |> mean(axis=[2, 3]) |> fc
  }
}
