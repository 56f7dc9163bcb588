dlc 1
## y = 3 f(x)^2 + 2 f(x) + 3 and its gradient, for any element-wise f.
fn poly(x: f32[..], f: fn = identity) = 3 * f(x) ** 2 + 2 * f(x) + 3
fn total(x: f32[..]) -> f32 = sum(poly(x, f=sin))

export fn y(x: f32[2, 2] = [[1, 2], [3, 4]]) -> f32[2, 2] = poly(x)
export fn dy(x: f32[2, 2] = [[1, 2], [3, 4]]) -> f32[2, 2] = vjp(poly, wrt=x)(x, dy=ones([2, 2]))
export fn dy_sin(x: f32[2, 2] = [[1, 2], [3, 4]]) -> f32[2, 2] = grad(total, wrt=x)(x)
