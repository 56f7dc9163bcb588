dlc 1
## A language model of two LSTM layers (Hochreiter and Schmidhuber, 1997).
import nn (Linear, LSTM)
dim B = 1..256
dim T = 1..1024

module Language(V = 256, D = 512, F: dtype = f32) {
  param tokens: F[V, D] = normal(0.1)
  use rnn1 = LSTM(D, D, F=F)
  use rnn2 = LSTM(D, D, F=F)
  use head = Linear(D, V, F=F)

  ## How likely each token is to come next, at every place.
  export fn logits(ids: i32[B, T]) -> f32[B, T, V] = f32(head(rnn2(rnn1(tokens[ids]).y).y))
}

train Language {
  data = npz(ids="ids")
  loss(ids: i32[B, T + 1]) = mean(cross_entropy(logits(ids[:, :-1]), ids[:, 1:]))
  optimizer = adam(lr=1e-3, clip_norm=1)
  batch = 32
  epochs = 10
  seed = 1
}
