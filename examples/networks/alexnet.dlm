dlc 1
## AlexNet (Krizhevsky, 2014: one column), 61,100,840 weights for 1,000 classes.
import nn (Conv2d, Linear, Dropout)
dim B = 1..1024

module AlexNet(classes = 1000) {
  use features = chain(Conv2d(3, 64, kernel=11, stride=4, padding=2), relu, max_pool2d(3, stride=2),
                       Conv2d(64, 192, kernel=5, padding=2), relu, max_pool2d(3, stride=2),
                       Conv2d(192, 384, kernel=3, padding=1), relu,
                       Conv2d(384, 256, kernel=3, padding=1), relu,
                       Conv2d(256, 256, kernel=3, padding=1), relu, max_pool2d(3, stride=2))
  use head = chain(flatten, Dropout(0.5), Linear(6 * 6 * 256, 4096), relu, Dropout(0.5),
                   Linear(4096, 4096), relu, Linear(4096, classes))

  fn logits(image: u8[B, 224, 224, 3]) -> f32[B, classes] = f32(image) / 128 - 1 |> features |> head

  ## The most likely class of each picture.
  export fn predict(image: u8[B, 224, 224, 3]) -> i32[B] = argmax(logits(image), axis=-1)
}

train AlexNet {
  data = pictures(test=0.02, size=224)
  loss(image: u8[B, 224, 224, 3], label: i32[B]) = mean(cross_entropy(logits(image), label))
  metric accuracy = mean(f32(predict(image) == label))
  optimizer = momentum(lr=cosine(peak=0.01), weight_decay=5e-4)
  batch = 128
  epochs = 90
  seed = 1
}
