dlc 1
## First programs: small enough to check by hand.

## e^x and what is made of it; `--values all` prints every step.
export fn steps(v1: f32[3] = [1, 2, 3]) -> (v3: f32[3], v4: f32[3]) {
  let v2 = exp(v1)
  let v3 = v2 + 1
  let v4 = v2 * v3
  return (v3 = v3, v4 = v4)
}

## A condition is one bool, so a tensor of them needs `all` or `any`.
export fn chosen(v1: f32[3] = [1, 2, 3]) -> f32[3] {
  let v2 = exp(v1)
  return if all(v2 > 1) then v2 * 2 else v2 * 0.5
}

fn inner(x: f32[2], y: f32[2]) -> f32 = sum(x * y)

## The gradient of an inner product is each of the two for the other.
export fn gradient(x: f32[2] = [1, 2], y: f32[2] = [5, 6]) -> (dx: f32[2], dy: f32[2]) =
  grad(inner, wrt=(x, y))(x, y)

## The slope of relu, which is 0 at its kink.
export fn slope(x: f32[3] = [-1, 0, 2]) -> f32[3] = vjp(relu, wrt=x)(x, dy=ones([3]))
