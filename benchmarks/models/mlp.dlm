dlc 1
## Three layers for pictures of 28 x 28: 1,863,690 weights for ten classes.
import nn (Linear)
dim B = 1..4096

module MLP(hidden = 1024, F: dtype = f32) {
  use net = chain(Linear(784, hidden, F=F), relu, Linear(hidden, hidden, F=F), relu,
                  Linear(hidden, 10, F=F))

  fn logits(image: f32[B, 784]) -> f32[B, 10] = F(image) |> net |> f32

  ## The most likely class of each picture.
  export fn predict(image: f32[B, 784]) -> i32[B] = argmax(logits(image), axis=-1)
}

train MLP {
  data = npz("pictures.npz", image="image", label="label")
  loss(image: f32[B, 784], label: i32[B]) = mean(cross_entropy(logits(image), label))
  optimizer = adam(lr=1e-3)
  batch = 128
  epochs = 10
  seed = 1
}
