dlc 1
## Narrow floats.
dim N = 1..64
fn soft(x: bf16[N, 33]) -> bf16[N, 33] = softmax(x * 2)
export fn f(x: bf16[N, 33]) -> (y: bf16[N, 33], s: f32) = (y = soft(x), s = sum(f32(soft(x)) ** 2))
