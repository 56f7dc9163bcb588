dlc 1
## Derivatives in the text, and derivatives of those.
import nn (Linear)
dim B = 1..8

fn poly(x: f32[..]) = 3 * x ** 2 + 2 * x + 3
fn total(x: f32[..], y: f32[..]) -> f32 = sum(exp(x / 3) * sin(y))
fn cubes(x: f32[..]) -> f32 = sum(x ** 3)
fn steepness(x: f32[..]) -> f32 = sum(grad(total)(x, x) ** 2)
fn both(x: f32[..], y: f32[..]) = (x * y, sin(x) + y)
fn walk(xs: f32[4, 3], w: f32[3]) -> f32 = sum(scan x in xs with h = w { next h = tanh(h * w + x) })
fn spiral(x: f32[..]) -> f32 = sum(while sum(y * y) < 40 with y = x limit 30 { next y = y * 1.4 })

## Smooth where the formula is not: the rule takes the place of what the formula gives.
fn safe_root(x: f32[..]) = sqrt(x * x + 1) with vjp(x, dy) = dy * x / sqrt(x * x + 1)
fn scaled(x: f32[..], by: f32) = x * by with vjp(x, by, dy) = (dy * by, sum(dy * x))

export fn a_gradient(x: f32[3], y: f32[3]) -> f32[3] = grad(total)(x, y)
export fn two_gradients(x: f32[3], y: f32[3]) -> (f32[3], f32[3]) = grad(total, wrt=(x, y))(x, y)
export fn a_gradient_of_a_gradient(x: f32[3], y: f32[3]) -> f32[3] = grad(steepness)(x) * y
export fn pulled(x: f32[3], dy: f32[3]) -> f32[3] = vjp(poly, wrt=x)(x, dy=dy)
export fn pulled_from_two(x: f32[3], y: f32[3], a: f32[3], b: f32[3]) -> (f32[3], f32[3]) =
  vjp(both, wrt=(x, y))(x, y, dy=(a, b))
export fn value_and_slope(x: f32[4]) -> f32[4] {
  let (v, g) = value_and_grad(cubes)(x)
  return v * g
}
export fn a_step_down(x: f32[4]) -> f32 = cubes(x - 0.1 * grad(cubes)(x))
export fn three_steps_down(x: f32[4]) -> f32[4] =
  scan t in 0..3 with y = x { next y = y - 0.05 * grad(cubes)(y) }
export fn a_gradient_through_a_loop(xs: f32[4, 3], w: f32[3]) -> f32[3] = grad(walk, wrt=w)(xs, w)
export fn a_gradient_through_until(x: f32[3]) -> f32[3] = grad(spiral)(x) * x
export fn a_gradient_in_a_choice(x: f32[3]) -> f32[3] =
  if sum(x) > 0 then grad(cubes)(x) else grad(steepness)(x)
export fn a_rule_of_its_own(x: f32[4]) -> f32[4] = safe_root(sin(x)) * x
export fn a_rule_for_two(x: f32[4], by: f32) -> f32[4] = scaled(x, by) ** 2
export fn a_rule_in_a_loop(xs: f32[3, 4], by: f32) -> f32[4] =
  scan x in xs with h = x0() { next h = safe_root(scaled(x, by) + h) }
fn x0() -> f32[4] = full([4], 0.5)

module Net {
  use first = Linear(3, 4)
  use second = Linear(4, 1)
  fn energy(x: f32[B, 3]) -> f32 = sum(x |> first |> tanh |> second)

  export fn force(x: f32[B, 3]) -> f32[B, 3] = grad(energy)(x)
  export fn by_params(x: f32[B, 3]) -> (f32[3, 4], f32[1]) {
    let g = grad(energy, wrt=params)(x)
    return (g.first.w, g.second.b)
  }
  ## A penalty on the gradient, as Wasserstein networks have it.
  export fn penalty(x: f32[B, 3]) -> f32 = mean((norm(grad(energy)(x), axis=-1) - 1) ** 2)
}
