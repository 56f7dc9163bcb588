dlc 1
## Products of matrices, in every arrangement.
dim B = 1..9

export fn two(x: f32[3, 4], w: f32[4, 5]) -> f32[3, 5] = x @ w
export fn a_square(x: f32[4, 4]) -> f32[4, 4] = x @ x
export fn with_its_transpose(x: f32[3, 5]) -> f32[3, 3] = x @ transpose(x)
export fn three(a: f32[2, 3], b: f32[3, 4], c: f32[4, 2]) -> f32[2, 2] = a @ b @ c
export fn batches(x: f32[2, 3, 4], y: f32[2, 4, 5]) -> f32[2, 3, 5] = x @ tanh(y)
export fn a_batch_of_any_size(x: f32[B, 17], w: f32[17, 19], b: f32[19]) -> f32[B, 19] =
  tanh(linear(x, w, b))
export fn a_row(x: f32[1, 6], w: f32[6, 4]) -> f32[1, 4] = x @ w * (x @ w)
export fn a_column(x: f32[6, 4], w: f32[4, 1]) -> f32[6, 1] = sigmoid(x @ w)
export fn one_element(x: f32[1, 1], w: f32[1, 1]) -> f32[1, 1] = x @ w @ x
export fn inner_size_nothing(x: f32[3, 0], w: f32[0, 2], y: f32[3, 2]) -> f32[3, 2] = x @ w + y ** 2
export fn einsum_of_three(x: f32[2, 3], y: f32[3, 4], z: f32[4, 2]) -> f32[2] =
  einsum("ij,jk,ki->i", x, y, z)
export fn einsum_of_heads(q: f32[2, 3, 2, 4], k: f32[2, 3, 2, 4]) -> f32[2, 2, 3, 3] =
  einsum("bihd,bjhd->bhij", q, k)
export fn the_diagonal(x: f32[4, 4]) -> f32[4] = einsum("ii->i", x * x)
export fn outer(x: f32[3], y: f32[4]) -> f32[3, 4] = einsum("i,j->ij", sin(x), y)
export fn attend(q: f32[1, 2, 5, 4], k: f32[1, 2, 5, 4], v: f32[1, 2, 5, 4]) -> f32[1, 2, 5, 4] =
  attention(q, k, v)
export fn attend_to_the_past(q: f32[1, 2, 5, 4], k: f32[1, 2, 5, 4], v: f32[1, 2, 5, 4]) -> f32[1,
                                                                                                2,
                                                                                                5,
                                                                                                4] =
  attention(q, k, v, causal=true)
export fn attend_by_hand(q: f32[2, 5, 3], k: f32[2, 5, 3], v: f32[2, 5, 3]) -> f32[2, 5, 3] {
  let s = einsum("bid,bjd->bij", q, k) * 3 ** -0.5
  return einsum("bij,bjd->bid", softmax(where(tril(5), s, -inf), axis=-1), v)
}
