"""Texts that use most of the language, so that every operation of the IR occurs on their way down."""

from __future__ import annotations

CALLED = """\
dlc 1
dim B = 1..8
dim N = 1..64

fn pooled(x: f32[B, 8, 8, 4]) -> f32[B, 4, 4, 4] = max_pool2d(x, 2)
fn apart(x: f32[B, 8, 8, 4], w: f32[3, 3, 1, 4]) -> f32[B, 6, 6, 4] = conv(x, w, groups=4)
fn root(a: f32) -> f32 =
  while abs(x * x - a) > 1e-6 with x = a limit 100 { next x = (x + a / x) / 2 }

export fn products(x: f32[B, 64], w: f32[64, 32], v: f32[64, 32]) -> (f32[B, 32], f32[B, 32]) =
  (relu(x @ w), x @ v)
export fn crossed(x: f32[256, 64], y: f32[64, 256], z: f32[64, 64]) -> f32[64, 64] =
  transpose(x) @ transpose(y) + z
export fn halves(x: f16[128, 64], w: f16[64, 128]) -> f16[128, 128] = x @ w
export fn pictures(x: f32[B, 8, 8, 4], w: f32[3, 3, 4, 8]) -> f32[B, 6, 6, 8] = conv(x, w)
export fn filtered(x: f32[B, 8, 8, 16], w: f32[3, 3, 16, 32]) -> f32[B, 6, 6, 32] = conv(x, w)
export fn filters(x: f32[B, 8, 8, 16], w: f32[3, 3, 16, 32], dy: f32[B, 6, 6, 32]) -> f32[3, 3, 16, 32] =
  vjp(filtered, wrt=w)(x, w, dy=dy)
export fn taps(x: f32[B, 8, 8, 4], w: f32[3, 3, 1, 4], dy: f32[B, 6, 6, 4]) -> f32[3, 3, 1, 4] =
  vjp(apart, wrt=w)(x, w, dy=dy)
export fn pools(x: f32[B, 8, 8, 4]) -> f32[B, 8, 8, 4] = vjp(pooled)(x, dy=ones([B, 4, 4, 4]))
export fn attends(q: f32[B, 2, 8, 4]) -> f32[B, 2, 8, 4] = attention(q, q, q)
export fn attends_to_a_cache(q: f32[1, 8], k: f32[6, 8], p: i32) -> f32[1, 8] =
  attention(q, k, k, causal=true, lengths=p + 1)
export fn attends_in_halves(q: f16[1, 2, 64, 32]) -> f16[1, 2, 64, 32] = attention(q, q, q)
export fn attention_learns(q: f32[B, 2, 8, 4]) -> f32[B, 2, 8, 4] =
  vjp(attended)(q, dy=ones([B, 2, 8, 4]))
fn attended(q: f32[B, 2, 8, 4]) -> f32[B, 2, 8, 4] = attention(q, q, q)
export fn choice(x: f32[N], c: bool) -> f32[N] = if c then x * 2 else x
export fn steps(xs: f32[N, 3]) -> (f32[3], f32[N, 3]) =
  scan x in xs with s = zeros([3]) { next s = s + x  yield s }
export fn slope(a: f32) -> f32 = grad(root)(a)
export fn rows(table: f32[30, 4], ids: i32[B]) -> f32[B, 4] = table[ids]
export fn learns(table: f32[30, 4], ids: i32[B]) -> f32[30, 4] =
  vjp(looks, wrt=table)(table, ids, dy=ones([B, 4]))
fn looks(table: f32[30, 4], ids: i32[B]) -> f32[B, 4] = table[ids]
export fn taken(x: f32[N, 4], i: i32) -> f32[4] = x[i]
export fn put(x: f32[N, 4], i: i32) -> f32[N, 4] = update(x, at=[i, ..], 0)
export fn divided(a: i32[N], b: i32[N]) -> (i32[N], i32[N], i32[N]) =
  (a // b, a % b, truncated_remainder(a, b))
export fn powers(a: f32[N], b: f32[N]) -> f32[N] = a ** b
export fn sorted(a: f32[N]) -> f32[N] = sort(a)
export fn sums(a: f32[N]) -> f32[N] = cumsum(a)
export fn places(a: f32[N]) -> i64 { let (i, n) = nonzero(a > 0)  return sum(i) + i64(n) }
export fn average(a: f32[N]) -> f32 = mean(a)
export fn joined(a: f32[N], b: f32[B]) -> f32[N + B] = concat([a, b])
export fn paired(a: f32[B, 16], b: f32[B, 16]) -> f32[B, 32] = concat([a, b], axis=1)
export fn beside(x: f32[8, 64], w: f32[64, 32], u: f32[64, 16]) -> (f32[8, 48], f32[8, 16]) {
  let both = concat([x @ w, tanh(x @ u)], axis=1)
  return (exp(both), both[:, 16:] @ w[:32, :16])
}
export fn upright(xs: f32[64, N]) -> f32[64, N] = scan x in xs along 1 { yield x + 1 }
export fn turned(a: f32[64, 64]) -> f32[64, 64] = transpose(a)
export fn elsewhere(a: f32[N]) -> f32[N] = on cpu:1 { a + 1 }
export fn bits(x: i32[N], y: i32[N]) -> i32[N] =
  shift_left(x, 2) + shift_right(y, 1) + bit_and(x, y) + bit_or(x, y) + bit_xor(x, y) + bit_not(x)
export fn drawn() -> (i32[4], f32[4]) = (randint(0, 6, [4]), normal([4]))
export fn rounded(x: f32[N]) -> f32[N] = sign(x) + floor(x) + ceil(x) + round(x) + trunc(x) - abs(x)
export fn circles(x: f32[N], y: f32[N]) -> f32[N] =
  sin(x) + cos(x) + tan(x) + asin(x) + acos(x) + atan(x) + atan2(x, y)
export fn curves(x: f32[N]) -> f32[N] =
  sinh(x) + cosh(x) + tanh(x) + asinh(x) + acosh(x) + atanh(x) + erf(x) + sigmoid(x)
export fn growth(x: f32[N]) -> f32[N] =
  exp(x) + expm1(x) + log(x) + log1p(x) + sqrt(x) + rsqrt(x) + maximum(x, minimum(x, 1))

module Layer() {
  param w: f32[64, 32] = glorot_uniform()
  param bytes: i8[64, 48] = zeros()
  export fn layer(x: f32[B, 64]) -> f32[B, 32] = x @ w
  export fn quantised(x: u8[16, 64]) -> i32[16, 48] = i32(x) @ i32(bytes)
}
"""
"""The entry points of the showcase."""

TRAINED = """\
dlc 1
dim B = 1..8

module Counted() {
  param w: f32[4, 2] = glorot_uniform()
  state calls: i32 = 0
  fn call(x: f32[B, 4]) -> f32[B, 2] {
    set calls = calls + 1
    return x @ w
  }
}

train Counted {
  data = npz("examples.npz", x="x", y="y")
  loss(x: f32[B, 4], y: i32[B]) = mean(cross_entropy(call(x), y))
  optimizer = sgd(lr=0.1)
  batch = 8
  epochs = 1
}
"""
"""The training of the showcase."""

IR = """\
"builtin.module"() ({
  "func.func"() <{sym_name = "graph", function_type = (tensor<4xi32>) -> tensor<4xf32>}> ({
  ^bb0(%x: tensor<4xi32>):
    %y = "array.bitcast"(%x) <{dtype = f32}> : (tensor<4xi32>) -> tensor<4xf32>
    %calls = "weight.get"() <{symbol = @calls, type = tensor<i32>}> : () -> tensor<i32>
    "weight.set"(%calls, %calls) : (tensor<i32>, tensor<i32>) -> ()
    "func.return"(%y) : (tensor<4xf32>) -> ()
  }) : () -> ()
  "func.func"() <{sym_name = "ranks", function_type = (tensor<4xf32>) -> tensor<4xf32>}> ({
  ^bb0(%x: tensor<4xf32>):
    %k = "comm.rank"()
      <{mesh_axis = "data", ranks = 2 : i64, segments = array<i64: 0, 0>}>
      : () -> tensor<i64>
    %c = "array.check_index"(%k)
      <{extent = 8 : i64, part = 1 : i64}>
      : (tensor<i64>) -> tensor<i1>
    %s = "comm.all_reduce"(%x)
      <{mesh_axis = "data", ranks = 2 : i64, combine = "sum", segments = array<i64: 1, 0>}>
      : (tensor<4xf32>) -> tensor<4xf32>
    %g = "comm.all_gather"(%s)
      <{mesh_axis = "data", ranks = 2 : i64, segments = array<i64: 1, 0>}>
      : (tensor<4xf32>) -> tensor<2x4xf32>
    %t = "comm.all_to_all"(%g)
      <{mesh_axis = "data", ranks = 2 : i64, segments = array<i64: 1, 0>}>
      : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %r = "comm.reduce_scatter"(%t)
      <{mesh_axis = "data", ranks = 2 : i64, segments = array<i64: 1, 0>}>
      : (tensor<2x4xf32>) -> tensor<4xf32>
    %b = "comm.broadcast"(%r)
      <{mesh_axis = "data", ranks = 2 : i64, root = 0 : i64, segments = array<i64: 1, 0>}>
      : (tensor<4xf32>) -> tensor<4xf32>
    %p = "comm.permute"(%b)
      <{mesh_axis = "data", ranks = 2 : i64, shift = 1 : i64, segments = array<i64: 1, 0>}>
      : (tensor<4xf32>) -> tensor<4xf32>
    %a, %q = "comm.start_all_reduce"(%p)
      <{mesh_axis = "data", ranks = 2 : i64, combine = "sum", pieces = 1 : i64,
        segments = array<i64: 1, 0>}>
      : (tensor<4xf32>) -> (tensor<4xf32>, tensor<1xi64>)
    %q2 = "comm.test"(%q)
      <{segments = array<i64: 1, 0>}>
      : (tensor<1xi64>) -> tensor<1xi64>
    %w = "comm.wait"(%a, %q2)
      <{segments = array<i64: 2, 0>}>
      : (tensor<4xf32>, tensor<1xi64>) -> tensor<4xf32>
    "func.return"(%w) : (tensor<4xf32>) -> ()
  }) : () -> ()
  "loop.func"() <{sym_name = "rank"}> ({
  ^bb0(%first: index, %last: index):
    %w = "loop.imported"() <{symbol = "rank:data"}> : () -> index
    "loop.return"() : () -> ()
  }) : () -> ()
}) : () -> ()
"""
"""IR that other programs may write."""
