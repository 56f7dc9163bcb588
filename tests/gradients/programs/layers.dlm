dlc 1
## Layers of the library and functions between them.
import nn (Linear, Conv2d, BatchNorm, LayerNorm, RMSNorm, GroupNorm, Embedding, Attention, RNN,
           LSTM, GRU, mse, mae, huber, binary_cross_entropy, hinge, kl_divergence)
dim B = 1..8
dim T = 1..8

module Block(D, H) {
  use n1 = LayerNorm(D)
  use attn = Attention(D, H, causal=true)
  use n2 = LayerNorm(D)
  use up = Linear(D, 2 * D)
  use down = Linear(2 * D, D)
  fn call(x: f32[B, T, D]) -> f32[B, T, D] {
    let y = x + attn(n1(x))
    return y + (n2(y) |> up |> gelu |> down)
  }
}

module Layers {
  use dense = chain(Linear(3, 5), tanh, Linear(5, 2))
  use shared = Linear(4, 4)
  use filters = chain(Conv2d(2, 3, kernel=3, padding=1), silu, Conv2d(3, 2, kernel=1))
  use batch = BatchNorm(3)
  use rows = LayerNorm(6)
  use rms = RMSNorm(6)
  use group = GroupNorm(2, 4)
  use table = Embedding(7, 4)
  use rnn = RNN(3, 4)
  use lstm2 = LSTM(3, 4)
  use gru = GRU(3, 4)
  use block = Block(4, 2)
  use blocks = 3 * Block(4, 2)
  use listed = [for n in [4, 6, 2]: Linear(_, n)]

  export fn two_layers(x: f32[B, 3]) -> f32[B, 2] = dense(x)
  export fn twice_the_same(x: f32[B, 4]) -> f32[B, 4] = shared(tanh(shared(x)))
  export fn pictures(x: f32[B, 4, 4, 2]) -> f32[B, 4, 4, 2] = filters(x)
  export fn batch_norm_at_rest(x: f32[B, 3]) -> f32[B, 3] = batch(x)
  export fn layer_norm_of_rows(x: f32[B, 6]) -> f32[B, 6] = rows(x)
  export fn rms_norm_of_rows(x: f32[B, 6]) -> f32[B, 6] = rms(x)
  export fn group_norm_of_pictures(x: f32[B, 3, 3, 4]) -> f32[B, 3, 3, 4] = group(x)
  export fn words(ids: i32[2, 3] = [[1, 0, 6], [1, 1, 2]]) -> f32[2, 3, 4] = table(ids) ** 2
  export fn recurrent(x: f32[B, T, 3]) -> f32[B, T, 4] = rnn(x).y
  export fn long_short(x: f32[B, T, 3]) -> f32[B, T, 4] = lstm2(x).y
  export fn long_short_at_its_end(x: f32[B, T, 3]) -> (h: f32[B, 4], c: f32[B, 4]) {
    let r = lstm2(x)
    return (h = r.h, c = r.c)
  }
  export fn gated(x: f32[B, T, 3]) -> f32[B, T, 4] = gru(x).y
  export fn transformer(x: f32[B, T, 4]) -> f32[B, T, 4] = block(x)
  export fn transformers(x: f32[B, T, 4]) -> f32[B, T, 4] =
    scan b in blocks with h = x { next h = b(h) }
  export fn one_of_the_listed(x: f32[B, 3]) -> f32[B, 2] =
    x |> listed[0] |> tanh |> listed[1] |> tanh |> listed[2]
  export fn tied(ids: i32[2, 3] = [[1, 0, 6], [1, 1, 2]]) -> f32[2, 3, 7] =
    tanh(table(ids)) @ transpose(table.w)
  export fn classes(x: f32[3, 3], label: i32[3] = [1, 0, 1]) -> f32 =
    mean(cross_entropy(dense(x), label))
}

export fn squares(x: f32[4], y: f32[4]) -> f32 = mse(x, y)
export fn distances(x: f32[4], y: f32[4]) -> f32 = mae(x, y)
export fn huber_loss(x: f32[6], y: f32[6]) -> f32 = huber(x, y)
export fn yes_or_no(x: f32[4], y: f32[4] = [0, 1, 1, 0]) -> f32 = binary_cross_entropy(x, y)
export fn margins(x: f32[5], y: f32[5] = [1, -1, 1, 1, -1]) -> f32 = hinge(x, y)
export fn divergence(x: f32[3, 4], y: f32[3, 4]) -> f32 = kl_divergence(x, softmax(y))
export fn activations(x: f32[3, 4]) -> f32[3, 4] =
  relu(x) + gelu(x) + gelu(x, tanh=true) + silu(x) + mish(x) + softplus(x) + elu(x) + selu(x)
export fn further_activations(x: f32[3, 4], slope: f32) -> f32[3, 4] =
  leaky_relu(x) + hardswish(x) + hardsigmoid(x) + softsign(x) + prelu(x, slope)
export fn log_probabilities(x: f32[3, 5]) -> f32[3, 5] = log_softmax(x) * softmax(x, axis=0)
export fn of_large_numbers(x: f32[4] = [1000, 999, 0, -1000]) -> f32 = logsumexp(x)
export fn local_response(x: f32[1, 2, 2, 6]) -> f32[1, 2, 2, 6] =
  local_response_norm(x, 3, alpha=0.5)
