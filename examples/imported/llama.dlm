dlc 1
## llama, imported from llama.pt2.

import nn (Embedding, Linear, RMSNorm)
dim batch = 1..1024
dim tokens = 1..64

module LlamaAttention {
  use q_proj = Linear(32, 32, bias=false)
  use k_proj = Linear(32, 16, bias=false)
  use v_proj = Linear(32, 16, bias=false)
  use o_proj = Linear(32, 32, bias=false)
  fn call(x, cosine, sine, mask) {
    let q = x |> q_proj |> reshape([batch, tokens, 4, 8]) |> permute([0, 2, 1, 3])
    let k = x |> k_proj |> reshape([batch, tokens, 2, 8]) |> permute([0, 2, 1, 3])
    let h = reshape(cosine, [1, 1, tokens, 8])
    let h2 = reshape(sine, [1, 1, tokens, 8])
    let h3 = k * h + concat([-k[:, :, :, 4:], k[:, :, :, :4]], axis=3) * h2
    let v = x |> v_proj |> reshape([batch, tokens, 2, 8]) |> permute([0, 2, 1, 3])
    let h4 = h3[:, :, new, :, :]
               |> broadcast([batch, 2, 2, tokens, 8])
               |> reshape([batch, 4, tokens, 8])
    let h5 = v[:, :, new, :, :]
               |> broadcast([batch, 2, 2, tokens, 8])
               |> reshape([batch, 4, tokens, 8])
    let h6 = q * h + concat([-q[:, :, :, 4:], q[:, :, :, :4]], axis=3) * h2
    return h6
             |> attention(h4, h5, mask)
             |> permute([0, 2, 1, 3])
             |> reshape([batch, tokens, 32])
             |> o_proj
  }
}

module LlamaMLP {
  use gate_proj = Linear(32, 64, bias=false)
  use up_proj = Linear(32, 64, bias=false)
  use down_proj = Linear(64, 32, bias=false)
  fn call(x) {
    let gate = x |> gate_proj |> silu
    return down_proj(gate * up_proj(x))
  }
}

module LlamaDecoderLayer {
  use input_layernorm = RMSNorm(32, eps=1e-6)
  use self_attn = LlamaAttention()
  use post_attention_layernorm = RMSNorm(32, eps=1e-6)
  use mlp = LlamaMLP()
  fn call(x, cosine, sine, mask) {
    let h = x |> input_layernorm |> self_attn(cosine, sine, mask)
    let h2 = x + h
    let h3 = h2 |> post_attention_layernorm |> mlp
    return h2 + h3
  }
}

module LlamaModel {
  use embed_tokens = Embedding(100, 32)
  state inv_freq: f32[4]
  use layers = 3 * LlamaDecoderLayer()
  use norm1 = RMSNorm(32, eps=1e-6)
  fn call(input_ids, attention_mask) {
    let mask = reshape(arange(tokens, dtype=i64), [1, 1, tokens])[:, :, new, :]
               <= reshape(arange(tokens, dtype=i64), [1, 1, tokens])[:, :, :, new]
    let h = arange(tokens, dtype=i64) |> reshape([1, tokens, 1]) |> f32
    let h2 = h * inv_freq
    let h3 = concat([h2, h2], axis=2)
    let cosine = cos(h3)
    let sine = sin(h3)
    let mask2 = mask and reshape(attention_mask != 0, [batch, 1, 1, tokens])
    let h4 = scan block in layers with h = embed_tokens(input_ids) {
      next h = block(h, cosine, sine, mask2)
    }
    return norm1(h4)
  }
}

module Llama from "llama.safetensors" {
  use model = LlamaModel()
  use lm_head = Linear(32, 100, bias=false)

  export fn run(input_ids: i64[batch, tokens],
                attention_mask: i64[batch, tokens]) -> (scores: f32[batch, tokens, 100]) =
    input_ids |> model(attention_mask) |> lm_head
}
