dlc 1
## Semi-supervised classification by graph convolutions (Kipf and Welling, 2017): a graph joins each digit
## with those most like it, and one label of ten has to do for all.
import nn (Dropout, GCN)
dim N = 8..2048
dim E = 1..65536

module GraphNet(hidden = 32, k = 4) {
  use gcn1 = GCN(64, hidden)
  use drop = Dropout(0.5)
  use gcn2 = GCN(hidden, 10)

  ## Scores of the nodes of a graph whose edge e leads from node `src[e]` to node `dst[e]`.
  fn logits(x: f32[N, 64], src: i32[E], dst: i32[E]) -> f32[N, 10] =
    gcn2(drop(relu(gcn1(x, src, dst))), src, dst)

  ## The class of each node.
  export fn predict(x: f32[N, 64], src: i32[E], dst: i32[E]) -> i32[N] = argmax(logits(x, src, dst))

  ## Edges to each row of x from the k rows nearest to it.
  export fn neighbours(x: f32[N, 64]) -> (src: i32[N * k], dst: i32[N * k]) {
    let square = sum(x ** 2, axis=-1)
    let distance = square[:, new] + square - 2 * x @ transpose(x)
    let near = top_k(where(eye(N) > 0, -inf, -distance), k).places
    return (src = reshape(i32(near), [N * k]), dst = arange(N * k) // k)
  }
}

train GraphNet {
  data = npz("data/digits.npz", image="images", label="labels", test=0.5)
  loss(image: u8[N, 8, 8, 1], label: i32[N]) {
    let x = reshape(f32(image) / 16, [N, 64])
    let (src, dst) = neighbours(x)
    let known = f32(arange(N) % 10 == 0)
    return sum(known * cross_entropy(logits(x, src, dst), label)) / sum(known)
  }
  metric accuracy(image: u8[N, 8, 8, 1], label: i32[N]) {
    let x = reshape(f32(image) / 16, [N, 64])
    let (src, dst) = neighbours(x)
    return mean(f32(predict(x, src, dst) == label))
  }
  optimizer = adam(lr=1e-2, weight_decay=5e-4)
  batch = 1000
  epochs = 100
  seed = 1
}
