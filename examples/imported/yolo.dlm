dlc 1
## yolo, imported from yolo.pt2.

import nn (BatchNorm, Conv2d)
dim batch = 1..1024

module ConvSiLU(inputs, outputs, kernel, stride, padding) {
  use conv1 = Conv2d(inputs, outputs, kernel=kernel, stride=stride, padding=padding, bias=false,
                     dims="nchw")
  use norm1 = BatchNorm(outputs, dims="nchw")
  fn call(x) = x |> conv1 |> norm1 |> silu
}

module CSP(inputs, width, width2) {
  use first = ConvSiLU(inputs, inputs, kernel=1, stride=1, padding=0)
  use inner = 2 * ConvSiLU(width, width, kernel=3, stride=1, padding=1)
  use last = ConvSiLU(width2, inputs, kernel=1, stride=1, padding=0)
  fn call(x) {
    let h = first(x)
    let h2 = h[:, width:]
    let h3 = scan block in inner with h = h2 {
      next h = block(h)
    }
    return last(concat([h[:, :width], h2, h2 + h3], axis=1))
  }
}

module Yolo from "yolo.safetensors" {
  use stem = chain(ConvSiLU(3, 8, kernel=3, stride=2, padding=1),
                   ConvSiLU(8, 16, kernel=3, stride=2, padding=1), CSP(16, 8, 24))
  use third = chain(ConvSiLU(16, 32, kernel=3, stride=2, padding=1), CSP(32, 16, 48))
  use fourth = chain(ConvSiLU(32, 64, kernel=3, stride=2, padding=1), CSP(64, 32, 96))
  use pool = ConvSiLU(256, 64, kernel=1, stride=1, padding=0)
  use merge = chain(ConvSiLU(96, 32, kernel=1, stride=1, padding=0), CSP(32, 16, 48))
  use heads0 = Conv2d(32, 38, kernel=1, dims="nchw")
  state bin: f32[1, 1, 8, 1]
  use heads1 = Conv2d(64, 38, kernel=1, dims="nchw")

  export fn run(x: f32[batch, 3, 64, 64]) -> (boxes: f32[batch, 4, 80], scores: f32[batch, 6, 80]) {
    let h = x |> stem |> third  # f32[batch, 32, 8, 8]
    let h2 = fourth(h)  # f32[batch, 64, 4, 4]
    let h3 = max_pool2d(h2, 5, stride=1, padding=2, dims="nchw")  # f32[batch, 64, 4, 4]
    let h4 = max_pool2d(h3, 5, stride=1, padding=2, dims="nchw")  # f32[batch, 64, 4, 4]
    # f32[batch, 256, 4, 4]
    let h5 = concat([h2, h3, h4, max_pool2d(h4, 5, stride=1, padding=2, dims="nchw")], axis=1)
    let h6 = pool(h5)  # f32[batch, 64, 4, 4]
    let h7 = h6 |> repeat(2, axis=2) |> repeat(2, axis=3)  # f32[batch, 64, 8, 8]
    # f32[batch, 38, 64]
    let h8 = concat([h, h7], axis=1) |> merge |> heads0 |> reshape([batch, 38, 64])
    let h9 = h8[:, :32] |> reshape([batch, 4, 8, 64]) |> softmax(axis=2)  # f32[batch, 4, 8, 64]
    let h10 = sum(h9 * bin, axis=2)  # f32[batch, 4, 64]
    let h11 = arange(8, dtype=i64) |> broadcast([8, 8]) |> reshape([1, 8, 8])  # i64[1, 8, 8]
    # i64[1, 8, 8]
    let h12 = arange(8, dtype=i64)[:, new] |> broadcast([8, 8]) |> reshape([1, 8, 8])
    let h13 = concat([h11, h12], axis=0) |> reshape([1, 2, 64]) |> f32  # f32[1, 2, 64]
    let h14 = h13 + 0.5  # f32[1, 2, 64]
    let h15 = h6 |> heads1 |> reshape([batch, 38, 16])  # f32[batch, 38, 16]
    let h16 = h15[:, :32] |> reshape([batch, 4, 8, 16]) |> softmax(axis=2)  # f32[batch, 4, 8, 16]
    let h17 = sum(h16 * bin, axis=2)  # f32[batch, 4, 16]
    let h18 = arange(4, dtype=i64) |> broadcast([4, 4]) |> reshape([1, 4, 4])  # i64[1, 4, 4]
    # i64[1, 4, 4]
    let h19 = arange(4, dtype=i64)[:, new] |> broadcast([4, 4]) |> reshape([1, 4, 4])
    let h20 = concat([h18, h19], axis=0) |> reshape([1, 2, 16]) |> f32  # f32[1, 2, 16]
    let h21 = h20 + 0.5  # f32[1, 2, 16]
    return (
      boxes = concat(
        [concat([h14 - h10[:, :2], h14 + h10[:, 2:]], axis=1) * 8,
         concat([h21 - h17[:, :2], h21 + h17[:, 2:]], axis=1) * 16],
        axis=2,
      ),
      scores = concat([sigmoid(h8[:, 32:]), sigmoid(h15[:, 32:])], axis=2),
    )
  }
}
