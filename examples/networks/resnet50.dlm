dlc 1
## ResNet-50 (He et al., 2015; the stride in the 3 x 3 convolution), 25,557,032 weights for 1,000 classes.
import nn (Conv2d, BatchNorm, Linear)
dim B = 1..1024

## Down to M channels, a convolution of 3 x 3, up to 4 M; around it the picture is added again.
module Bottleneck(I, M, stride = 1, F: dtype = f32) {
  use down = Conv2d(I, M, kernel=1, bias=false, F=F)
  use norm1 = BatchNorm(M, F=F)
  use middle = Conv2d(M, M, kernel=3, stride=stride, padding=1, bias=false, F=F)
  use norm2 = BatchNorm(M, F=F)
  use up = Conv2d(M, 4 * M, kernel=1, bias=false, F=F)
  use norm3 = BatchNorm(4 * M, F=F)
  use skip = if stride == 1 and I == 4 * M then identity
             else chain(Conv2d(I, 4 * M, kernel=1, stride=stride, bias=false, F=F),
                        BatchNorm(4 * M, F=F))

  fn call(x: F[B, H, W, I]) -> F[B, _, _, 4 * M] {
    let h = x |> down |> norm1 |> relu |> middle |> norm2 |> relu |> up |> norm3
    return relu(h + skip(x))
  }
}

## n blocks; the first one changes the size, the rest are compiled once and looped.
module Stage(I, M, n, stride, F: dtype = f32) {
  use first = Bottleneck(I, M, stride, F=F)
  use rest = (n - 1) * Bottleneck(4 * M, M, F=F)
  fn call(x: F[B, H, W, I]) -> F[B, _, _, 4 * M] =
    scan block in rest with h = first(x) { next h = block(h) }
}

module ResNet50(classes = 1000, F: dtype = f32) {
  use stem = chain(Conv2d(3, 64, kernel=7, stride=2, padding=3, bias=false, F=F),
                   BatchNorm(64, F=F), relu, max_pool2d(3, stride=2, padding=1))
  use stages = chain(Stage(64, 64, 3, 1, F), Stage(256, 128, 4, 2, F), Stage(512, 256, 6, 2, F),
                     Stage(1024, 512, 3, 2, F))
  use head = Linear(2048, classes, F=F)

  fn logits(image: u8[B, 224, 224, 3]) -> f32[B, classes] =
    F(image) / 128 - 1 |> stem |> stages |> mean(axis=(1, 2)) |> head |> f32

  ## The most likely class of each picture.
  export fn predict(image: u8[B, 224, 224, 3]) -> i32[B] = argmax(logits(image), axis=-1)
}

train ResNet50 {
  data = pictures(test=0.02, size=224)
  loss(image: u8[B, 224, 224, 3], label: i32[B]) = mean(cross_entropy(logits(image), label))
  metric accuracy = mean(f32(predict(image) == label))
  optimizer = momentum(lr=cosine(peak=0.1, warmup=5000), weight_decay=1e-4)
  batch = 64
  epochs = 90
  seed = 1
}
