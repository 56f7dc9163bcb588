dlc 1
## Sums of products by letters.
dim B = 1..5
export fn f(x: f32[B, 3, 4], y: f32[4, 5], z: f32[B, 5]) -> f32[3] = einsum("bij,jk,bk->i", x, y, z)
fn s(x: f32[B, 3, 4], y: f32[4, 5], z: f32[B, 5]) -> f32 = sum(f(x, y, z) ** 2)
export fn g(x: f32[B, 3, 4], y: f32[4, 5], z: f32[B, 5]) -> (f32[B, 3, 4], f32[4, 5], f32[B, 5]) =
  grad(s, wrt=(x, y, z))(x, y, z)
