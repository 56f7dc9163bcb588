dlc 1
## bert, imported from bert.pt2.

import nn (Embedding, LayerNorm, Linear)
dim batch = 1..1024
dim tokens = 1..64

module BertEmbeddings {
  state position_ids: i64[1, 64]
  state token_type_ids: i64[1, 64]
  use word_embeddings = Embedding(100, 32)
  use token_type_embeddings = Embedding(2, 32)
  use position_embeddings = Embedding(64, 32)
  use norm1 = LayerNorm(32, eps=1e-12)
  fn call(input_ids) {
    let h = position_ids[:, :tokens]
    let h2 = token_type_ids[iota([1, tokens], 0, dtype=i64), h]
               |> broadcast([batch, tokens])
               |> token_type_embeddings
    return norm1(word_embeddings(input_ids) + h2 + position_embeddings(h))
  }
}

module BertSelfAttention {
  use query = Linear(32, 32)
  use key_ = Linear(32, 32)
  use value = Linear(32, 32)
  fn call(x, mask) {
    let k = x |> key_ |> reshape([batch, tokens, 4, 8]) |> permute([0, 2, 1, 3])
    let v = x |> value |> reshape([batch, tokens, 4, 8]) |> permute([0, 2, 1, 3])
    return x
             |> query
             |> reshape([batch, tokens, 4, 8])
             |> permute([0, 2, 1, 3])
             |> attention(k, v, mask)
             |> permute([0, 2, 1, 3])
             |> reshape([batch, tokens, 32])
  }
}

module BertSelfOutput {
  use dense = Linear(32, 32)
  use norm1 = LayerNorm(32, eps=1e-12)
  fn call(x, y) = norm1(dense(x) + y)
}

module BertIntermediate {
  use dense = Linear(32, 64)
  fn call(x) = x |> dense |> gelu
}

module BertOutput {
  use dense = Linear(64, 32)
  use norm1 = LayerNorm(32, eps=1e-12)
  fn call(x, y) = norm1(dense(y) + x)
}

module BertPooler {
  use dense = Linear(32, 32)
  fn call(x) = x[:, 0] |> dense |> tanh
}

module BertAttention {
  use self = BertSelfAttention()
  use output = BertSelfOutput()
  fn call(x, mask) = x |> self(mask) |> output(x)
}

module BertLayer {
  use attention1 = BertAttention()
  use intermediate = BertIntermediate()
  use output = BertOutput()
  fn call(x, mask) {
    let h = attention1(x, mask)
    return output(h, intermediate(h))
  }
}

module BertModel {
  use embeddings = BertEmbeddings()
  use layer = 3 * BertLayer()
  use pooler = BertPooler()
  fn call(input_ids, attention_mask) {
    let mask = attention_mask != 0
                 |> reshape([batch, 1, 1, tokens])
                 |> broadcast([batch, 1, tokens, tokens])
    let h = scan block in layer with h = embeddings(input_ids) {
      next h = block(h, mask)
    }
    return pooler(h)
  }
}

module Bert from "bert.safetensors" {
  use bert = BertModel()
  use classifier = Linear(32, 3)

  export fn run(input_ids: i64[batch, tokens],
                attention_mask: i64[batch, tokens]) -> (scores: f32[batch, 3]) =
    input_ids |> bert(attention_mask) |> classifier
}
