dlc 1
## Gradients of stacked blocks with branches.
import nn (Linear)
dim B = 1..8
module Block(D) {
  use a = Linear(D, D)
  fn call(x: f32[B, D]) -> f32[B, D] = if mean(x) > 0 then x + tanh(a(x)) else x - a(x) * 0.5
}
module Net(D = 5, L = 4) {
  use blocks = L * Block(D)
  fn loss(x: f32[B, D]) -> f32 {
    let h = scan b in blocks with h = x { next h = b(h) }
    return mean(h ** 2)
  }
  export fn f(x: f32[B, D]) -> (l: f32, w: f32[L, D, D], b: f32[L, D]) {
    let (l, g) = value_and_grad(loss, wrt=params)(x)
    return (l = l, w = g.blocks.a.w, b = g.blocks.a.b)
  }
}
