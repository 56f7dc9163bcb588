dlc 1
## Parts, steps backwards, gathered and scattered places.

export fn a_stretch(x: f32[6, 4]) -> f32[3, 4] = x[1:4] ** 2
export fn every_second(x: f32[7]) -> f32[4] = exp(x[::2] / 3)
export fn backwards(x: f32[5, 3]) -> f32[5, 3] = flip(x, axis=0) * x
export fn backwards_both_ways(x: f32[4, 3]) -> f32[4, 3] = flip(x) * sin(x)
export fn from_the_end(x: f32[4, 5]) -> f32[4] = x[:, -1] * x[:, 0]
export fn the_inner_axis(x: f32[3, 4, 5]) -> f32[3, 4] = x[.., 2] ** 2
export fn overlapping(x: f32[6]) -> f32[5] = x[1:] * x[:-1]
export fn joined(x: f32[2, 3], y: f32[4, 3]) -> f32[6, 3] = sin(concat([x, y])) * concat([y, x])
export fn stacked(x: f32[3], y: f32[3]) -> f32[3, 2] = stack([x * y, y ** 2], axis=1)
export fn parted(x: f32[3, 6]) -> f32[3, 2] {
  let (a, b, c) = split(x, 3, axis=-1)
  return a * tanh(b) + c
}
export fn padded(x: f32[2, 3]) -> f32[5, 7] = pad(x * x, [(1, 2), (3, 1)]) * 2
export fn rolled(x: f32[5]) -> f32[5] = roll(x, 2) * x
export fn repeated(x: f32[3]) -> f32[6] = repeat(x, 2) * tile(x, 2)
export fn turned(x: f32[2, 3, 4]) -> f32[4, 2, 3] = permute(x, (2, 0, 1)) ** 3
export fn reshaped(x: f32[3, 4]) -> f32[2, 6] = reshape(transpose(x), [2, 6]) * reshape(x, [2, 6])
export fn rearranged(x: f32[2, 3, 8]) -> f32[2, 4, 3, 2] =
  rearrange(x * x, "b t (h d) -> b h t d", h=4)
export fn rows_of_a_table(emb: f32[5, 3], ids: i32[2, 3] = [[4, 0, 4], [1, 4, 2]]) -> f32[2, 3, 3] =
  emb[ids] ** 2
export fn the_same_row_always(emb: f32[4, 2], ids: u8[5] = [1, 1, 1, 1, 1]) -> f32[2] =
  sum(sin(emb[ids]), axis=0)
export fn columns(x: f32[3, 5], ids: i64[4] = [0, 4, 4, 2]) -> f32[3, 4] = take(x, ids, axis=1) ** 2
export fn one_of_each_row(x: f32[3, 4], at: i32[3, 1] = [[2], [0], [3]]) -> f32[3, 1] =
  exp(take_along(x, at))
export fn put(x: f32[4, 3], v: f32[3]) -> f32[4, 3] = update(x * x, at=[2], sin(v)) * x
export fn put_at_a_computed_place(x: f32[4, 3], v: f32[3], i: i32 = 3) -> f32[4, 3] =
  update(x ** 2, at=[i], v * v) * x
export fn added_up(x: f32[4], v: f32[6], at: i32[6] = [3, 1, 3, 3, 0, 1]) -> f32[4] =
  scatter_add(x ** 2, at, v ** 3)
export fn chosen(x: f32[6], y: f32[6]) -> f32[6] = where(x > y, x * y, y ** 2)
export fn in_order(x: f32[7], w: f32[7]) -> f32[7] = sort(x) * w ** 2
export fn the_best_three(x: f32[4, 6]) -> f32[4, 3] {
  let (v, _) = top_k(x, 3)
  return v ** 2
}
export fn ties_go_to_the_first(x: f32[4] = [1, 3, 3, 2], y: f32[4]) -> f32[4] = x ** 2 * y
export fn triangle(x: f32[4, 4]) -> f32[4, 4] = tril(x * x) + triu(sin(x), diagonal=1)
export fn lookup_of_a_lookup(a: f32[4], b: f32[3], i: i32[5] = [0, 1, 2, 1, 1]) -> f32 =
  sum(a[take(i + 1, i)] * b[i])
