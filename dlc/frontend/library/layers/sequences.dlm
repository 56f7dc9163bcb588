dlc 1
## Losses of sequences whose places are not aligned with their labels.

## Far below the logarithm of any probability, but finite: -inf would give gradients that are NaN.
const never = -1e30

## Elements moved up by `by` places along the last axis, with `never` in front.
fn moved(x: f32[B, S], by) -> f32[B, S] = pad(x, [(0, 0), (by, 0)], value=never)[:, :S]

## The logarithm of the sum of three probabilities, from their logarithms.
fn either(a, b, c) {
  let top = stop_gradient(maximum(maximum(a, b), c))
  return top + log(exp(a - top) + exp(b - top) + exp(c - top))
}

## Connectionist temporal classification (Graves and others, 2006): minus the logarithm of the probability
## that the first `times[b]` rows of logits spell the first `lengths[b]` labels, divided by their number, as
## a mean over b. Equal neighbours are one label unless a row of class `blank` is between them; blanks spell
## nothing. It is infinite, without a gradient, where the labels need more rows than there are. A call fails
## unless times are in 1..T, lengths in 0..L, and labels in 0..C - 1, those that do not count too.
## Example: `ctc([[[0.0, 0.0]]], [[1]], [1], [1])` -> 0.6931472: f32
fn ctc(logits: f32[B, T, C], labels: i32[B, L], times: i32[B], lengths: i32[B], blank = 0) -> f32 {
  # Blanks stand around every label; `skips` are the states that can be reached from the second before.
  let state = reshape(stack([full([B, L], blank, i32), labels], axis=-1), [B, 2 * L])
  let all = concat([state, full([B, 1], blank, i32)], axis=-1)
  let before = pad(all, [(0, 0), (2, 0)], value=blank)[:, :2 * L + 1]
  let skips = (all != blank) and (all != before)
  let said = take_along(log_softmax(logits), broadcast(all[:, new, :], [B, T, 2 * L + 1]))
  let first = where(iota([B, 2 * L + 1], 1) < 2, said[:, 0], never)
  let final = take(arange(T), times - 1)
  let last = scan (e, t) in (rearrange(said, "b t s -> t b s")[1:], arange(T)[1:]) with a = first {
    let b = e + either(a, moved(a, 1), where(skips, moved(a, 2), never))
    next a = where((t <= final)[:, new], b, a)
  }
  let ends = take_along(last, stack([2 * lengths, maximum(2 * lengths - 1, 0)], axis=-1))
  let total = logsumexp(where(iota([B, 2], 1) < minimum(lengths, 1)[:, new] + 1, ends, never))
  return mean(where(total < 0.5 * never, inf, -total / f32(maximum(lengths, 1))))
}
