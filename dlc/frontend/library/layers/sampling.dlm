dlc 1
## Choosing the next token of a text.

## A class of each row of logits, drawn with probability `softmax(logits / temperature)`; at temperature 0
## the most likely one. A negative temperature is not checked; it favours the least likely. Of the classes
## only these are drawn from, in this order: the `top_k` most likely; the most likely ones whose
## probabilities together reach `top_p` (Holtzman and others, 2020); those at least `min_p` times as likely as
## the most likely one. Probabilities are those among the classes that are left.
## Example: `sample([[0.0, 9.0, 1.0]], top_k=1)` -> [1]: i32[1]
fn sample(logits, temperature = 1.0, top_k = none, top_p = none, min_p = none) {
  let (best, places) = if top_k == none then (logits, none) else candidates(logits, top_k)
  let divisor = if temperature == 0 then 1.0 else temperature
  let scaled = nucleus(best / divisor, top_p, min_p, sorted=top_k != none)
  let drawn = if temperature == 0 then argmax(best) else categorical(scaled)
  return if top_k == none then drawn else take_along(places, drawn[.., new])[.., 0]
}

## The k largest logits, best first, and their classes.
fn candidates(logits, k) {
  let found = top_k(logits, k)
  return (found.values, found.places)
}

## Logits with -inf in place of those that `top_p` and `min_p` leave out; `sorted` says that they fall.
fn nucleus(logits, top_p, min_p, sorted) {
  let some = if top_p == none then logits
             else {
               let falling = if sorted then logits else sort(logits, descending=true)
               let before = cumsum(softmax(falling), exclusive=true)
               let best = max(falling, axis=-1, keepdims=true)
               let least = minimum(best,
                                   min(where(before < top_p, falling, inf), axis=-1, keepdims=true))
               return where(logits >= least, logits, -inf)
             }
  return if min_p == none then some
         else {
           let likely = some >= max(some, axis=-1, keepdims=true) + log(min_p)
           return where(likely, some, -inf)
         }
}
