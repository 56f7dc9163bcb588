dlc 1
## Message passing: sums, means and the like over the edges that meet at a node, and layers made of them.
##
## A graph of N nodes and E edges is a list of edges: edge e leads from node `src[e]` to node `dst[e]`. In a
## segment function, `segments` names the segment from 0 to `count` - 1 to which each row of x belongs, in
## any order.

## The shape of a value for each segment, with rows as x has them.
fn rows_for(x, count) = [for k in 0..rank(x): if k == 0 then count else shape(x)[k]]

## A number for each segment, with axes of size 1 for those of the rows of x.
fn beside(n, x) = reshape(n, [for k in 0..rank(x): if k == 0 then shape(n)[0] else 1])

## The sum of the rows of each segment; 0 where there is none.
## Example: `segment_sum([1.0, 2.0, 4.0], [0, 2, 2], 3)` -> [1.0, 0.0, 6.0]: f32[3]
fn segment_sum(x, segments, count) =
  scatter_add(zeros(rows_for(x, count), dtype_of(x)), segments, x)

## The mean of the rows of each segment; 0 where there is none.
## Example: `segment_mean([1.0, 2.0, 4.0], [0, 2, 2], 3)` -> [1.0, 0.0, 3.0]: f32[3]
fn segment_mean(x, segments, count) {
  let n = segment_sum(full(shape(segments), 1, dtype_of(x)), segments, count)
  return segment_sum(x, segments, count) / beside(maximum(n, 1), x)
}

## The largest of the rows of each segment, element by element; -inf where there is none.
## Example: `segment_max([1.0, 2.0, 4.0], [0, 1, 1], 2)` -> [1.0, 4.0]: f32[2]
fn segment_max(x, segments, count) =
  update(full(rows_for(x, count), -inf, dtype_of(x)), at=[segments], x, mode="max")

## A softmax over the rows of each segment, element by element, without overflow. Where all elements of a
## segment are -inf they become NaN, as in any softmax.
## Example: `segment_softmax([0.0, 1.0, 1.0], [0, 2, 2], 3)` -> [1.0, 0.5, 0.5]: f32[3]
fn segment_softmax(x, segments, count) {
  let top = stop_gradient(segment_max(x, segments, count))
  let e = exp(x - top[segments])
  return e / segment_sum(e, segments, count)[segments]
}

## Graph convolution (Kipf and Welling, 2017): every node sums `x @ w` of its neighbours and of itself, each
## divided by the roots of both degrees, itself counted; then the bias is added.
## Example: `GCN(3, 4)` f32[5, 3], i32[6], i32[6] -> f32[5, 4]
module GCN(inputs, outputs, bias = true, F: dtype = f32) {
  param w: F[inputs, outputs] = glorot_uniform()
  param b: F[if bias then outputs else 0] = zeros()

  fn call(x: F[N, inputs], src: i32[E], dst: i32[E]) -> F[N, outputs] {
    let degree = 1 + segment_sum(ones([E], F), dst, N)
    let h = (x @ w) * rsqrt(degree)[:, new]
    let y = (segment_sum(h[src], dst, N) + h) * rsqrt(degree)[:, new]
    return if bias then y + b else y
  }
}

## Graph attention (Velickovic and others, 2018) of several heads, whose results stand beside each other.
## A node attends to the nodes from which an edge leads to it, and with `loops` to itself.
## Example: `GAT(3, 4, heads=2)` f32[5, 3], i32[6], i32[6] -> f32[5, 8]
module GAT(inputs, outputs, heads = 1, slope = 0.2, loops = true, bias = true, F: dtype = f32) {
  param w: F[inputs, heads, outputs] = glorot_uniform()
  param from: F[heads, outputs] = glorot_uniform()
  param to: F[heads, outputs] = glorot_uniform()
  param b: F[if bias then heads * outputs else 0] = zeros()

  fn call(x: F[N, inputs], src: i32[E], dst: i32[E]) -> F[N, heads * outputs] {
    let h = reshape(x @ reshape(w, [inputs, heads * outputs]), [N, heads, outputs])
    let (one, two) = if loops then (concat([src, arange(N)]), concat([dst, arange(N)]))
                     else (src, dst)
    let score = leaky_relu(sum(h * from, axis=-1)[one] + sum(h * to, axis=-1)[two], slope)
    let weight = segment_softmax(score, two, N)
    let y = reshape(segment_sum(h[one] * weight[:, :, new], two, N), [N, heads * outputs])
    return if bias then y + b else y
  }
}
