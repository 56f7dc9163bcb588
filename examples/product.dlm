dlc 1
## F = (x + y) z and its gradient.
fn product(x: f32, y: f32, z: f32) = (x + y) * z

export fn f(x: f32 = -2, y: f32 = 5, z: f32 = -4) -> (value: f32, dx: f32, dy: f32, dz: f32) {
  let (dx, dy, dz) = grad(product, wrt=(x, y, z))(x, y, z)
  return (value = product(x, y, z), dx = dx, dy = dy, dz = dz)
}
