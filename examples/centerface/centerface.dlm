dlc 1
## centerface, imported from centerface.onnx.

import nn (BatchNorm, Conv2d, ConvTranspose2d)
dim B = 1..
dim H = 1..
dim W = 1..

module Block(inputs, width, outputs, stride) {
  use conv1 = Conv2d(inputs, width, kernel=1, dims="nchw")
  use conv2 = Conv2d(width, width, kernel=3, stride=stride, padding=1, groups=width, dims="nchw")
  use conv3 = Conv2d(width, outputs, kernel=1, dims="nchw")
  fn call(x) = x |> conv1 |> relu |> conv2 |> relu |> conv3
}

module Residual(inputs, width, outputs, width2, stride) {
  use block1 = Block(inputs, width, outputs, stride=stride)
  use block2 = Block(outputs, width2, outputs, stride=1)
  use block3 = Block(outputs, width2, outputs, stride=1)
  fn call(x) {
    let h = block1(x)
    let h2 = h + block2(h)
    return h2 + block3(h2)
  }
}

module Block2 {
  use up1 = ConvTranspose2d(24, 24, kernel=2, stride=2, bias=false, dims="nchw")
  use norm1 = BatchNorm(24, eps=0.001, dims="nchw")
  fn call(x) = x |> up1 |> norm1 |> relu
}

module Centerface from "centerface.safetensors" {
  use conv1 = Conv2d(3, 32, kernel=3, stride=2, padding=1, dims="nchw")  # 542, 544
  use conv2 = Conv2d(32, 32, kernel=3, padding=1, groups=32, dims="nchw")  # 546, 548
  use conv3 = Conv2d(32, 16, kernel=1, dims="nchw")  # 550, 552
  use block1 = Block(16, 96, 24, stride=2)  # 554 ... 564
  use block2 = Block(24, 144, 24, stride=1)  # 566 ... 576
  use conv4 = Conv2d(24, 24, kernel=1, dims="nchw")  # 758, 760
  use residual1 = Residual(24, 144, 32, 192, stride=2)  # 578 ... 612
  use conv5 = Conv2d(32, 24, kernel=1, dims="nchw")  # 754, 756
  use residual2 = Residual(32, 192, 64, 384, stride=2)  # 614 ... 648
  use block3 = Block(64, 384, 64, stride=1)  # 650 ... 660
  use residual3 = Residual(64, 384, 96, 576, stride=1)  # 662 ... 696
  use conv6 = Conv2d(96, 24, kernel=1, dims="nchw")  # 750, 752
  use residual4 = Residual(96, 576, 160, 960, stride=2)  # 698 ... 732
  use block4 = Block(160, 960, 320, stride=1)  # 734 ... 744
  use conv7 = Conv2d(320, 24, kernel=1, dims="nchw")  # 746, 748
  # neck.deconv_layers.2.conv.weight ... neck.deconv_layers.2.bn.running_var
  use block5 = Block2()
  # neck.deconv_layers.1.conv.weight ... neck.deconv_layers.1.bn.running_var
  use block6 = Block2()
  # neck.deconv_layers.0.conv.weight ... neck.deconv_layers.0.bn.running_var
  use block7 = Block2()
  use conv8 = Conv2d(24, 24, kernel=3, padding=1, dims="nchw")  # 762, 764
  use conv9 = Conv2d(24, 1, kernel=1, dims="nchw")  # head.pos_conv.weight, head.pos_conv.bias
  use conv10 = Conv2d(24, 2, kernel=1, dims="nchw")  # head.reg_conv.weight, head.reg_conv.bias
  use conv11 = Conv2d(24, 2, kernel=1, dims="nchw")  # head.off_conv.weight, head.off_conv.bias
  use conv12 = Conv2d(24, 10, kernel=1, dims="nchw")  # head.lm_conv.weight, head.lm_conv.bias

  export fn run(input: f32[B, 3, 32 * H, 32 * W]) -> (y: f32[B, 1, 8 * H, 8 * W],
                                                      y2: f32[B, 2, 8 * H, 8 * W],
                                                      y3: f32[B, 2, 8 * H, 8 * W],
                                                      y4: f32[B, 10, 8 * H, 8 * W]) {
    let h = input |> conv1 |> relu |> conv2 |> relu |> conv3 |> block1  # 377 f32[B, 24, 8*H, 8*W]
    let h2 = h + block2(h)  # 387 f32[B, 24, 8*H, 8*W]
    let h3 = residual1(h2)  # 413 f32[B, 32, 4*H, 4*W]
    let h4 = residual2(h3)  # 439 f32[B, 64, 2*H, 2*W]
    let h5 = residual3(h4 + block3(h4))  # 474 f32[B, 96, 2*H, 2*W]
    let h6 = h5 |> residual4 |> block4 |> conv7 |> relu |> block5  # 514 f32[B, 24, 2*H, 2*W]
    let h7 = h5 |> conv6 |> relu  # 517 f32[B, 24, 2*H, 2*W]
    let h8 = h3 |> conv5 |> relu  # 524 f32[B, 24, 4*H, 4*W]
    let h9 = h2 |> conv4 |> relu  # 531 f32[B, 24, 8*H, 8*W]
    let h10 = block7(block6(h6 + h7) + h8) + h9 |> conv8 |> relu  # 535 f32[B, 24, 8*H, 8*W]
    return (y = h10 |> conv9 |> sigmoid, y2 = conv10(h10), y3 = conv11(h10), y4 = conv12(h10))
  }
}
