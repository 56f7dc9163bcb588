"""transformers' language networks, two layers each, with random weights and any batch and length."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from benchmarks.zoo.catalogue import (
    Flat,
    Input,
    Model,
    Module,
    Named,
    Network,
    Tensor,
    add,
    floats,
    integers,
    mask,
    network,
    torch,
)

hf: Any = importlib.import_module("transformers")
cache_utils: Any = importlib.import_module("transformers.cache_utils")

WORDS = 500
TEXT = {"batch": (1, 2, 3), "sequence": (5, 12, 33)}
CONTINUED = {"batch": (1, 2, 3), "sequence": (1, 3, 2), "past": (4, 9, 30)}
TRANSLATED = {"batch": (1, 2, 3), "source": (7, 12, 33), "target": (3, 5, 20)}

NARROW: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 128,
}
"""The settings that most configurations share."""
GROUPED = {**NARROW, "num_key_value_heads": 2}
"""Fewer heads of keys and values than of queries."""
PADDED = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

QUIET = {"use_cache": False, "return_dict": False}


def made(config: str, model: str, **settings: object) -> Model:
    """A model of transformers from its configuration's name and settings."""
    return getattr(hf, model)(getattr(hf, f"{config}Config")(**settings))


def tokens(batch: str = "batch", length: str = "sequence") -> Input:
    """Words."""
    return integers(WORDS, batch, length, start=3)


def reader(module: Module, *, types: bool = False) -> Network:
    """A network from words and a mask, and (`types`) from which sentence a word is of."""
    inputs = {"input_ids": tokens(), "attention_mask": mask("batch", "sequence")}
    if types:
        inputs["token_type_ids"] = integers(2, "batch", "sequence")
    return Network(Named(module, list(inputs), {"return_dict": False}), inputs, TEXT)


def encoder(name: str, config: str, model: str, types: bool = False, /, **settings: object) -> None:
    """Enter an encoder into the catalogue; `types` says that it is told which sentence a word is of."""
    add(name, lambda: reader(made(config, model, **settings), types=types))


encoder("bert", "Bert", "BertModel", True, **NARROW)
encoder("bert_masked_words", "Bert", "BertForMaskedLM", True, **NARROW)
encoder("bert_classifier", "Bert", "BertForSequenceClassification", True, **NARROW)
encoder("bert_tagger", "Bert", "BertForTokenClassification", True, **NARROW)
encoder("bert_answers", "Bert", "BertForQuestionAnswering", True, **NARROW)
encoder("roberta", "Roberta", "RobertaModel", **NARROW, **PADDED)
encoder("xlm_roberta", "XLMRoberta", "XLMRobertaForSequenceClassification", **NARROW, **PADDED)
encoder("camembert", "Camembert", "CamembertForMaskedLM", **NARROW, **PADDED)
encoder("electra", "Electra", "ElectraForPreTraining", **NARROW, embedding_size=32)
encoder("albert", "Albert", "AlbertModel", **NARROW, embedding_size=32)
encoder("convbert", "ConvBert", "ConvBertModel", **NARROW, embedding_size=32)
encoder("roformer", "RoFormer", "RoFormerModel", **NARROW, embedding_size=64)
encoder("megatron_bert", "MegatronBert", "MegatronBertModel", **NARROW)
encoder("ernie", "Ernie", "ErnieModel", **NARROW)
encoder("nystromformer", "Nystromformer", "NystromformerModel", **NARROW, segment_means_seq_len=64)
encoder("modernbert", "ModernBert", "ModernBertModel", **NARROW, **PADDED, local_attention=8)
encoder("mpnet", "MPNet", "MPNetModel", **NARROW)
encoder("ibert", "IBert", "IBertModel", **NARROW, **PADDED)
encoder("xmod", "Xmod", "XmodModel", **NARROW, **PADDED, default_language="en_XX")
encoder("data2vec_text", "Data2VecText", "Data2VecTextModel", **NARROW, **PADDED)
encoder("funnel", "Funnel", "FunnelModel", vocab_size=WORDS, d_model=64, n_head=4, d_head=16,
        d_inner=128, block_sizes=[1, 1])  # fmt: skip
encoder(
    "fnet", "FNet", "FNetModel", **{k: v for k, v in NARROW.items() if k != "num_attention_heads"}
)
encoder("rembert", "RemBert", "RemBertModel", **NARROW, input_embedding_size=32)
encoder("squeezebert", "SqueezeBert", "SqueezeBertModel", **NARROW, embedding_size=64,
        q_groups=2, k_groups=2, v_groups=2, post_attention_groups=1,
        intermediate_groups=4, output_groups=4)  # fmt: skip
encoder("mobilebert", "MobileBert", "MobileBertModel", **NARROW, embedding_size=32,
        intra_bottleneck_size=32, true_hidden_size=32)  # fmt: skip
encoder("distilbert", "DistilBert", "DistilBertModel", vocab_size=WORDS, dim=64, n_layers=2,
        n_heads=4, hidden_dim=128, max_position_embeddings=128)  # fmt: skip
encoder("deberta", "Deberta", "DebertaModel", **NARROW, relative_attention=True,
        pos_att_type=["c2p", "p2c"], max_relative_positions=64)  # fmt: skip
encoder("deberta_v2", "DebertaV2", "DebertaV2Model", **NARROW, relative_attention=True,
        position_buckets=16, pos_att_type=["p2c", "c2p"], norm_rel_ebd="layer_norm",
        share_att_key=True)  # fmt: skip
encoder("longformer", "Longformer", "LongformerModel", **NARROW, **PADDED, attention_window=[8, 8])
encoder("bigbird", "BigBird", "BigBirdModel", **NARROW, attention_type="original_full")
encoder("xlnet", "XLNet", "XLNetModel", vocab_size=WORDS, d_model=64, n_layer=2, n_head=4,
        d_inner=128)  # fmt: skip
encoder("xlm", "XLM", "XLMModel", vocab_size=WORDS, emb_dim=64, n_layers=2, n_heads=4,
        max_position_embeddings=128)  # fmt: skip
encoder("flaubert", "Flaubert", "FlaubertModel", vocab_size=WORDS, emb_dim=64, n_layers=2, n_heads=4,
        max_position_embeddings=128)  # fmt: skip


@network
def sentence_embeddings() -> Network:
    """Means of the words that count, of length 1."""

    class Pooled(Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = made("Bert", "BertModel", **NARROW)

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            words = self.bert(input_ids, attention_mask).last_hidden_state
            counted = attention_mask[..., None].to(words.dtype)
            mean = (words * counted).sum(1) / counted.sum(1).clamp(min=1e-9)
            return torch.nn.functional.normalize(mean)

    inputs = {"input_ids": tokens(), "attention_mask": mask("batch", "sequence")}
    return Network(Pooled(), inputs, TEXT)


@network
def layoutlm() -> Network:
    """Words with boxes on a page."""
    inputs = {
        "input_ids": tokens(),
        "bbox": Input(("batch", "sequence", 4), lambda s, n: s.integers(0, 50, n).cumsum(-1)),
        "attention_mask": mask("batch", "sequence"),
    }
    model = made("LayoutLM", "LayoutLMModel", **NARROW, max_2d_position_embeddings=256)
    return Network(Named(model, list(inputs), {"return_dict": False}), inputs, TEXT)


def decoder(name: str, config: str, model: str, **settings: object) -> None:
    """Enter a decoder without past into the catalogue: all words at once."""

    def make() -> Network:
        inputs = {"input_ids": tokens(), "attention_mask": mask("batch", "sequence")}
        return Network(Named(made(config, model, **settings), list(inputs), QUIET), inputs, TEXT)

    add(name, make)


class WithPast(Flat):
    """A decoder whose keys and values of the words before are inputs, and those of all words results."""

    def __init__(self, model: Model, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        count = len(self.names)
        cache = cache_utils.DynamicCache()
        for layer, k in enumerate(range(count, len(given), 2)):
            cache.update(given[k], given[k + 1], layer)
        named = dict(zip(self.names, given[:count], strict=True))
        found = self.model(**named, past_key_values=cache, use_cache=True)
        kept = [
            each for layer in found.past_key_values.layers for each in (layer.keys, layer.values)
        ]
        return (found.logits, *kept)


def continued(
    name: str, config: str, model: str, heads: int, width: int, **settings: object
) -> None:
    """Enter a decoder with past into the catalogue: `heads` of keys and values, of `width` numbers."""

    def make() -> Network:
        inputs: dict[str, Input] = {
            "input_ids": tokens(),
            "attention_mask": mask("batch", "past + sequence"),
        }
        names = tuple(inputs)
        for layer in range(2):
            for kind in ("key", "value"):
                shape = ("batch", heads, "past", width)
                inputs[f"past_key_values.{layer}.{kind}"] = floats(*shape)
        return Network(WithPast(made(config, model, **settings), names), inputs, CONTINUED)

    add(name, make)


GPT: Mapping[str, Any] = {
    "vocab_size": WORDS,
    "n_positions": 128,
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
}
OPT: Mapping[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 64,
    "ffn_dim": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "word_embed_proj_dim": 64,
}

decoder("gpt2", "GPT2", "GPT2LMHeadModel", **GPT)
decoder("gpt_bigcode", "GPTBigCode", "GPTBigCodeForCausalLM", **GPT)
decoder("gptj", "GPTJ", "GPTJForCausalLM", **GPT, rotary_dim=8)
decoder("codegen", "CodeGen", "CodeGenForCausalLM", **GPT, rotary_dim=8)
decoder("gpt_neo", "GPTNeo", "GPTNeoForCausalLM", vocab_size=WORDS, hidden_size=64, num_layers=2,
        num_heads=4, attention_types=[[["global", "local"], 1]], window_size=8,
        max_position_embeddings=128)  # fmt: skip
decoder("gpt_neox", "GPTNeoX", "GPTNeoXForCausalLM", **NARROW)
decoder("opt", "OPT", "OPTForCausalLM", **OPT)
decoder("bloom", "Bloom", "BloomForCausalLM", vocab_size=WORDS, hidden_size=64, n_layer=2, n_head=4)
decoder("llama", "Llama", "LlamaForCausalLM", **GROUPED)
decoder("mistral", "Mistral", "MistralForCausalLM", **GROUPED, sliding_window=8)
decoder("qwen2", "Qwen2", "Qwen2ForCausalLM", **GROUPED)
decoder("qwen3", "Qwen3", "Qwen3ForCausalLM", **GROUPED, head_dim=16)
decoder("gemma", "Gemma", "GemmaForCausalLM", **GROUPED, head_dim=16)
decoder("gemma2", "Gemma2", "Gemma2ForCausalLM", **GROUPED, head_dim=16, sliding_window=8)
decoder("phi", "Phi", "PhiForCausalLM", **NARROW)
decoder("phi3", "Phi3", "Phi3ForCausalLM", **GROUPED, pad_token_id=0)
decoder("falcon", "Falcon", "FalconForCausalLM", **NARROW)
decoder("falcon_alibi", "Falcon", "FalconForCausalLM", **NARROW, alibi=True)
decoder("mixtral", "Mixtral", "MixtralForCausalLM", **GROUPED, num_local_experts=4)
decoder("olmo", "Olmo", "OlmoForCausalLM", **GROUPED, pad_token_id=0)
decoder("olmo2", "Olmo2", "Olmo2ForCausalLM", **GROUPED, pad_token_id=0)
decoder("stablelm", "StableLm", "StableLmForCausalLM", **GROUPED)
decoder("starcoder2", "Starcoder2", "Starcoder2ForCausalLM", **GROUPED)
decoder("cohere", "Cohere", "CohereForCausalLM", **GROUPED)
decoder("granite", "Granite", "GraniteForCausalLM", **GROUPED)
decoder("smollm3", "SmolLM3", "SmolLM3ForCausalLM", **GROUPED, pad_token_id=0)
decoder("mpt", "Mpt", "MptForCausalLM", vocab_size=WORDS, d_model=64, n_layers=2, n_heads=4,
        max_seq_len=128)  # fmt: skip
decoder("biogpt", "BioGpt", "BioGptForCausalLM", **NARROW)
decoder("xglm", "XGLM", "XGLMForCausalLM", vocab_size=WORDS, d_model=64, ffn_dim=128, num_layers=2,
        attention_heads=4, max_position_embeddings=128)  # fmt: skip
decoder("mamba", "Mamba", "MambaForCausalLM", vocab_size=WORDS, hidden_size=64, state_size=8,
        num_hidden_layers=2)  # fmt: skip
decoder("rwkv", "Rwkv", "RwkvForCausalLM", vocab_size=WORDS, hidden_size=64,
        attention_hidden_size=64, num_hidden_layers=2, context_length=64)  # fmt: skip

continued("gpt2_past", "GPT2", "GPT2LMHeadModel", 4, 16, **GPT)
continued("gpt_neox_past", "GPTNeoX", "GPTNeoXForCausalLM", 4, 16, **NARROW)
continued("opt_past", "OPT", "OPTForCausalLM", 4, 16, **OPT)
continued("llama_past", "Llama", "LlamaForCausalLM", 2, 16, **GROUPED)
continued("mistral_past", "Mistral", "MistralForCausalLM", 2, 16, **GROUPED, sliding_window=None)
continued("qwen2_past", "Qwen2", "Qwen2ForCausalLM", 2, 16, **GROUPED)
continued("gemma_past", "Gemma", "GemmaForCausalLM", 2, 16, **GROUPED, head_dim=16)
continued("phi_past", "Phi", "PhiForCausalLM", 4, 16, **NARROW)
