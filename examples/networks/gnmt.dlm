dlc 1
## Translation by LSTMs as in GNMT (Wu et al., 2016): some read a sentence, others write it in another
## language and look back at what was read. How well a word read suits what is asked is a product (Luong
## et al., 2015), where GNMT has a small network. Sentences are numbers of words; behind their ends stand
## zeros, and how many of them changes nothing.
import nn (Embedding, Linear, LSTM)
dim B = 1..1024
dim S = 1..512
dim T = 1..512

## One more LSTM, around which what it reads is added again.
module Layer(I, D) {
  use rnn = LSTM(I, D)
  fn call(x: f32[B, T, I], h: f32[B, T, D]) -> f32[B, T, D] = h + rnn(x).y
}

## For every place of a sentence the one that it changes with when the sentence is turned round; what
## stands behind the end stays there.
fn turned(words: i32[B, S]) -> i32[B, S] {
  let length = sum(i32(words != 0), axis=1)[:, new]
  let place = iota([B, S], axis=1)
  return where(place < length, length - 1 - place, place)
}

## The first layer reads in both directions, backwards from the last word.
module Encoder(D, L) {
  use forward = LSTM(D, D)
  use backward = LSTM(D, D)
  use second = LSTM(2 * D, D)
  use rest = (L - 2) * Layer(D, D)

  fn call(x: f32[B, S, D], words: i32[B, S]) -> f32[B, S, D] {
    let (sentence, place) = (iota([B, S], axis=0), turned(words))
    let both = concat([forward(x).y, backward(x[sentence, place]).y[sentence, place]], axis=-1)
    return scan layer in rest with h = second(both).y { next h = layer(h, h) }
  }
}

## Its first layer asks; what it is answered, every further layer sees beside the layer before.
module Decoder(D, L) {
  use first = LSTM(D, D)
  use query = Linear(D, D, bias=false)
  use rest = (L - 1) * Layer(2 * D, D)

  fn call(x: f32[B, T, D], memory: f32[B, S, D], known: bool[B, S]) -> f32[B, T, D] {
    let asked = first(x).y
    let scores = einsum("btd,bsd->bts", query(asked), memory)
    let weights = softmax(where(known[:, new, :], scores, -1e9), axis=-1)
    let answers = einsum("bts,bsd->btd", weights, memory)
    return scan layer in rest with h = asked { next h = layer(concat([h, answers], axis=-1), h) }
  }
}

module GNMT(V = 32000, D = 1024, L = 4) {
  require L >= 2, "there are at least two layers on each side"
  use source_words = Embedding(V, D)
  use target_words = Embedding(V, D)
  use encoder = Encoder(D, L)
  use decoder = Decoder(D, L)
  use head = Linear(D, V)

  ## How likely each word is to follow each of those written, given the sentence that was read.
  fn logits(source: i32[B, S], target: i32[B, T]) -> f32[B, T, V] {
    let memory = encoder(source_words(source), source)
    return decoder(target_words(target), memory, source != 0) |> head
  }

  ## The logarithm of the probability of each translation; a target begins with a word for its start.
  export fn score(source: i32[B, S], target: i32[B, T + 1]) -> f32[B] {
    let wanted = target[:, 1:]
    let told = cross_entropy(logits(source, target[:, :-1]), wanted)
    return sum(where(wanted != 0, -told, 0), axis=1)
  }
}

train GNMT {
  data = npz(source="source", target="target")
  loss(source: i32[B, S], target: i32[B, T + 1]) =
    -sum(score(source, target)) / sum(f32(target[:, 1:] != 0))
  optimizer = adam(lr=slope(peak=1e-3, warmup=200), clip_norm=5)
  batch = 128
  epochs = 6
  seed = 1
}
