"""transformers' networks of encoder and decoder, whole and in the parts that people export."""

from __future__ import annotations

from typing import Any

from benchmarks.zoo.catalogue import (
    Flat,
    Model,
    Module,
    Named,
    Network,
    Tensor,
    add,
    floats,
    mask,
    network,
)
from benchmarks.zoo.networks.language import PADDED, TRANSLATED, WORDS, made, tokens

QUIET = {"use_cache": False, "return_dict": False}

BART: dict[str, Any] = {
    "vocab_size": WORDS,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "max_position_embeddings": 128,
    "decoder_start_token_id": 2,
    **PADDED,
}
T5: dict[str, Any] = {
    "vocab_size": WORDS,
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 128,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}


def whole(name: str, config: str, model: str, **settings: object) -> None:
    """Enter encoder and decoder at once into the catalogue."""

    def make() -> Network:
        inputs = {
            "input_ids": tokens("batch", "source"),
            "attention_mask": mask("batch", "source"),
            "decoder_input_ids": tokens("batch", "target"),
        }
        module = Named(made(config, model, **settings), list(inputs), QUIET)
        return Network(module, inputs, TRANSLATED)

    add(name, make)


whole("bart", "Bart", "BartForConditionalGeneration", **BART)
whole("mbart", "MBart", "MBartForConditionalGeneration", **BART)
whole("marian", "Marian", "MarianMTModel", **BART)
whole("pegasus", "Pegasus", "PegasusForConditionalGeneration", **BART)
whole("m2m100", "M2M100", "M2M100ForConditionalGeneration", **BART)
whole("t5", "T5", "T5ForConditionalGeneration", **T5)
whole("mt5", "MT5", "MT5ForConditionalGeneration", **T5, feed_forward_proj="gated-gelu")
whole("umt5", "UMT5", "UMT5ForConditionalGeneration", **T5)


def encoder_of(name: str, config: str, model: str, **settings: object) -> None:
    """Enter the encoder alone into the catalogue."""

    def make() -> Network:
        inputs = {
            "input_ids": tokens("batch", "source"),
            "attention_mask": mask("batch", "source"),
        }
        sizes = {name: TRANSLATED[name] for name in ("batch", "source")}
        module = made(config, model, **settings).get_encoder()
        return Network(Named(module, list(inputs), {"return_dict": False}), inputs, sizes)

    add(name, make)


encoder_of("bart_encoder", "Bart", "BartForConditionalGeneration", **BART)
encoder_of("t5_encoder", "T5", "T5ForConditionalGeneration", **T5)


class Decoder(Flat):
    """Words and what the encoder made of the source; gives the scores of the next words."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, *given: Tensor) -> Tensor:
        words, shown, memory = given
        found = self.model(
            decoder_input_ids=words,
            attention_mask=shown,
            encoder_outputs=(memory,),
            use_cache=False,
            return_dict=True,
        )
        return found.logits


def decoder_of(name: str, config: str, model: str, **settings: object) -> None:
    """Enter the decoder alone into the catalogue."""

    def make() -> Network:
        inputs = {
            "input_ids": tokens("batch", "target"),
            "encoder_attention_mask": mask("batch", "source"),
            "encoder_hidden_states": floats("batch", "source", 64),
        }
        return Network(Decoder(made(config, model, **settings)), inputs, TRANSLATED)

    add(name, make)


decoder_of("bart_decoder", "Bart", "BartForConditionalGeneration", **BART)
decoder_of("marian_decoder", "Marian", "MarianMTModel", **BART)
decoder_of("t5_decoder", "T5", "T5ForConditionalGeneration", **T5)


@network
def time_series_transformer() -> Network:
    """The distribution of the next steps from those before, their times and which are known."""

    class Parameters(Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = made(
                "TimeSeriesTransformer",
                "TimeSeriesTransformerModel",
                prediction_length=4,
                context_length=8,
                lags_sequence=[1, 2],
                num_time_features=2,
                d_model=32,
                encoder_layers=1,
                decoder_layers=1,
                encoder_ffn_dim=32,
                decoder_ffn_dim=32,
            )

        def forward(
            self, past: Tensor, times: Tensor, known: Tensor, later: Tensor, future: Tensor
        ) -> Tensor:
            found = self.model(
                past_values=past,
                past_time_features=times,
                past_observed_mask=known,
                future_values=future,
                future_time_features=later,
                use_cache=False,
            )
            return found.last_hidden_state

    inputs = {
        "past": floats("batch", 10),
        "times": floats("batch", 10, 2),
        "known": mask("batch", 10),
        "later": floats("batch", 4, 2),
        "future": floats("batch", 4),
    }
    return Network(Parameters(), inputs, {"batch": (1, 2, 5)})


@network
def patchtst_forecast() -> Network:
    """PatchTST of transformers: 32 steps of any number of series to 8."""
    module = made(
        "PatchTST",
        "PatchTSTForPrediction",
        num_input_channels=3,
        context_length=32,
        prediction_length=8,
        patch_length=8,
        patch_stride=8,
        d_model=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=64,
    )
    inputs = {"past_values": floats("batch", 32, 3)}
    return Network(
        Named(module, list(inputs), {"return_dict": False}), inputs, {"batch": (1, 2, 5)}
    )
