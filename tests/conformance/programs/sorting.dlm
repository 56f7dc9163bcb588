dlc 1
## Sorting and its gradient.
dim N = 5..40
fn l(x: f32[N]) -> f32 = sum(sort(x) * f32(arange(N)))
export fn f(x: f32[N]) -> f32[N] = grad(l)(x)
export fn med(x: f32[N]) -> f32 = sort(x)[N // 2]
