dlc 1
## A gradient rule of one's own.
fn st(x: f32[..]) = round(x) with vjp(x, dy) = dy * 2
fn l(x: f32[6]) -> f32 = sum(st(x * 3) * x)
export fn f(x: f32[6]) -> f32[6] = grad(l)(x)
