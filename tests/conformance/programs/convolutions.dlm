dlc 1
## Gradients of strided, dilated and grouped convolutions.
dim B = 1..3
fn l(x: f32[B, 9, 11, 4], w: f32[3, 3, 2, 6]) -> f32 =
  sum(sin(conv(x, w, stride=2, padding=1, groups=2)))
export fn f(x: f32[B, 9, 11, 4], w: f32[3, 3, 2, 6]) -> (f32[B, 9, 11, 4], f32[3, 3, 2, 6]) =
  grad(l, wrt=(x, w))(x, w)
fn m(x: f32[B, 9, 11, 4], w: f32[3, 3, 4, 6]) -> f32 = sum(conv(x, w, dilation=2, padding=2) ** 2)
export fn g(x: f32[B, 9, 11, 4], w: f32[3, 3, 4, 6]) -> (f32[B, 9, 11, 4], f32[3, 3, 4, 6]) =
  grad(m, wrt=(x, w))(x, w)
fn n(x: f32[B, 9, 11, 4], w: f32[3, 3, 1, 4]) -> f32 =
  sum(conv(x, w, padding="same", groups=4) ** 2)
export fn d(x: f32[B, 9, 11, 4], w: f32[3, 3, 1, 4]) -> (f32[B, 9, 11, 4], f32[3, 3, 1, 4]) =
  grad(n, wrt=(x, w))(x, w)
