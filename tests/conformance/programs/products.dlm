dlc 1
## Products in every kind of number.
dim B = 1..9
fn l(a: f32[B, 7, 5], b: f32[5, 11], c: f32[B, 11, 3]) -> f32 = sum(relu(a @ b) @ c)
export fn f(a: f32[B, 7, 5], b: f32[5, 11], c: f32[B, 11, 3]) -> (f32[B, 7, 5], f32[5, 11],
                                                                  f32[B, 11, 3]) =
  grad(l, wrt=(a, b, c))(a, b, c)
export fn t(a: f64[3, 4], b: f64[4, 5]) -> f64[5, 3] = transpose(a @ b)
export fn h(a: f16[8, 8], b: f16[8, 8]) -> f16[8, 8] = a @ b + a
export fn i(a: i32[3, 4], b: i32[4, 2]) -> i32[3, 2] = a @ b
