dlc 1
## The gradients of sum(x · y + z): y, x, and ones.
fn total(x: f32[..], y: f32[..], z: f32[..]) -> f32 = sum(x * y + z)

export fn gradients(x: f32[3, 4] = [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]],
                    y: f32[3, 4] = [[12, 11, 10, 9], [8, 7, 6, 5], [4, 3, 2, 1]],
                    z: f32[3, 4] = [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]) -> (dx: f32[3, 4],
                                                                                   dy: f32[3, 4],
                                                                                   dz: f32[3, 4]) {
  let (dx, dy, dz) = grad(total, wrt=(x, y, z))(x, y, z)
  return (dx = dx, dy = dy, dz = dz)
}
