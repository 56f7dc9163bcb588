dlc 1
## Where a place stands in a sequence, or a step in time, as vectors.

## The frequencies `base ** (-k / count)` for k below `count`.
## Example: `frequencies(2, 100.0)` -> [1.0, 0.1]: f32[2]
fn frequencies(count, base = 10000.0) = exp(arange(count, f32) * (-log(base) / count))

## Sines, then cosines of positions at `width // 2` frequencies (Vaswani and others, 2017); t has any
## shape, and the result one axis more. The frequencies fall from 1 towards 1 / base. Diffusion models embed
## their time step so.
## Example: `timestep_embedding([0.0], 4)` -> [[0.0, 0.0, 1.0, 1.0]]: f32[1, 4]
fn timestep_embedding(t, width, base = 10000.0) {
  require width % 2 == 0, "the width must be even"
  let angle = f32(t)[.., new] * frequencies(width // 2, base)
  return concat([sin(angle), cos(angle)], axis=-1)
}

## The positional encoding of Vaswani and others (2017): row t has `sin(t * f)` at place 2 * k and
## `cos(t * f)` at 2 * k + 1, with `f = base ** (-2 * k / width)`. It is added to a sequence.
## Example: `sinusoidal(1, 4)` -> [[0.0, 1.0, 0.0, 1.0]]: f32[1, 4]
fn sinusoidal(length, width, base = 10000.0) {
  require width % 2 == 0, "the width must be even"
  let angle = arange(length, f32)[:, new] * frequencies(width // 2, base)
  return reshape(stack([sin(angle), cos(angle)], axis=-1), [length, width])
}

## A trained vector for each place, added to a sequence of at most `length` places.
## Example: `LearnedPositions(16, 8)` f32[2, 5, 8] -> f32[2, 5, 8]
module LearnedPositions(length, width, F: dtype = f32) {
  param w: F[length, width] = normal(0.02)
  fn call(x: F[.., T, width]) -> F[.., T, width] = x + w[:T]
}

## Rotary positions (Su and others, 2021): pairs of numbers of each row are turned by `position * f`, with
## `f = base ** (-2 * k / d)` for pair k of d // 2. x is [.., t, d]; `positions` are [t], by default from 0,
## or have further leading axes, which are broadcast. A pair is (k, k + d // 2), as Llama of Hugging Face
## and GPT-NeoX have it; with `interleaved` (2 * k, 2 * k + 1), as the paper and GPT-J have it.
## Example: `rope([[1.0, 0.0], [1.0, 0.0]], positions=[0, 0])` -> [[1.0, 0.0], [1.0, 0.0]]: f32[2, 2]
fn rope(x, positions = none, interleaved = false, base = 10000.0) {
  let d = shape(x)[-1]
  require d % 2 == 0, "rows of an even length have pairs"
  let at = if positions == none then arange(shape(x)[-2], f32) else f32(positions)
  let angle = at[.., new] * frequencies(d // 2, base)
  let (c, s) = (dtype_of(x)(cos(angle)), dtype_of(x)(sin(angle)))
  return if interleaved then {
    let (a, b) = (x[.., ::2], x[.., 1::2])
    return reshape(stack([a * c - b * s, a * s + b * c], axis=-1), shape(x))
  } else {
    let (a, b) = (x[.., :d // 2], x[.., d // 2:])
    return concat([a * c - b * s, a * s + b * c], axis=-1)
  }
}
