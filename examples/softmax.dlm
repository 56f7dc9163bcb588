dlc 1
## A softmax of scaled rows; docs/architecture.md follows it from level to level.
export fn likely(x: f32[8, 10]) -> f32[8, 10] = softmax(3 * x)
