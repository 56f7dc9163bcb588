dlc 1
## LeNet-5 on 28x28 grey digits.
import nn (Conv2d, Linear)
dim B = 1..1024

module LeNet(classes = 10, act: fn = tanh) {
  use features = chain(Conv2d(1, 6, kernel=5, padding=2), act, avg_pool2d(2),
                       Conv2d(6, 16, kernel=5), act, avg_pool2d(2), flatten)
  use head = chain(Linear(_, 120), act, Linear(120, 84), act, Linear(84, classes))

  fn logits(x: f32[B, 28, 28, 1]) -> f32[B, classes] = x |> features |> head

  ## The digit and how sure the network is.
  export fn predict(image: u8[B, 28, 28, 1]) -> (digit: i32[B], confidence: f32[B]) {
    let p = softmax(logits(f32(image) / 255), axis=-1)
    return (digit = argmax(p, axis=-1), confidence = max(p, axis=-1))
  }
}

train LeNet {
  data = npz(image="images", label="labels", test=0.2)
  loss(image: u8[B, 28, 28, 1], label: i32[B]) =
    mean(cross_entropy(logits(f32(image) / 255), label))
  metric accuracy = mean(f32(predict(image).digit == label))
  optimizer = nesterov(lr=0.05, momentum=0.9)
  batch = 64
  epochs = 10
  seed = 1
}
