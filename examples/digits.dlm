dlc 1
import nn (Linear)
dim B = 1..1024

module Digits(hidden = 128) {
  use net = chain(Linear(784, hidden), relu, Linear(hidden, 10))

  ## How likely each of the ten digits is, for each picture of 28 by 28.
  export fn predict(image: f32[B, 784]) -> f32[B, 10] = softmax(net(image))
}
