"""transformers' networks over sounds, with random weights."""

from __future__ import annotations

from typing import Any

from benchmarks.zoo.catalogue import Flat, Model, Named, Network, Tensor, add, floats, network
from benchmarks.zoo.networks.language import NARROW, PADDED, WORDS, made, tokens

WAVES = {"batch": (1, 2, 3), "samples": (1600, 2400, 4003)}
CONVOLUTIONS: dict[str, Any] = {
    **{k: v for k, v in NARROW.items() if k != "max_position_embeddings"},
    "vocab_size": 32,
    "conv_dim": [16, 16, 16],
    "conv_stride": [5, 2, 2],
    "conv_kernel": [10, 3, 3],
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}


def heard(name: str, config: str, model: str, **settings: object) -> None:
    """Enter a network from raw sound into the catalogue."""

    def make() -> Network:
        inputs = {"input_values": floats("batch", "samples")}
        module = made(config, model, **{**CONVOLUTIONS, **settings})
        return Network(Named(module, list(inputs), {"return_dict": False}), inputs, WAVES)

    add(name, make)


heard("wav2vec2", "Wav2Vec2", "Wav2Vec2Model")
heard("wav2vec2_letters", "Wav2Vec2", "Wav2Vec2ForCTC")
heard(
    "wav2vec2_stable",
    "Wav2Vec2",
    "Wav2Vec2Model",
    do_stable_layer_norm=True,
    feat_extract_norm="layer",
)
heard("wav2vec2_classifier", "Wav2Vec2", "Wav2Vec2ForSequenceClassification")
heard("hubert", "Hubert", "HubertModel")
heard("wavlm", "WavLM", "WavLMModel")
heard("unispeech", "UniSpeech", "UniSpeechModel")
heard("unispeech_sat", "UniSpeechSat", "UniSpeechSatModel")
heard("data2vec_audio", "Data2VecAudio", "Data2VecAudioModel", num_conv_pos_embeddings=3,
      conv_pos_kernel_size=7)  # fmt: skip
heard("sew", "SEW", "SEWModel", squeeze_factor=2)


@network
def audio_spectrogram_transformer() -> Network:
    """Gong et al. (2021): patches of a spectrogram of one length."""
    module = made("AST", "ASTForAudioClassification", hidden_size=64, num_hidden_layers=2,
                  num_attention_heads=4, intermediate_size=128, max_length=64,
                  num_mel_bins=32)  # fmt: skip
    inputs = {"input_values": floats("batch", 64, 32)}
    constants = {"return_dict": False}
    return Network(Named(module, list(inputs), constants), inputs, {"batch": (1, 2, 5)})


WHISPER: dict[str, Any] = {
    "vocab_size": WORDS,
    "num_mel_bins": 16,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "max_source_positions": 50,
    "max_target_positions": 64,
    "decoder_start_token_id": 1,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    **PADDED,
}


@network
def whisper_encoder() -> Network:
    """Spectrograms of one length."""
    module = made("Whisper", "WhisperForConditionalGeneration", **WHISPER).get_encoder()
    inputs = {"input_features": floats("batch", 16, 100)}
    constants = {"return_dict": False}
    return Network(Named(module, list(inputs), constants), inputs, {"batch": (1, 2, 5)})


class Decoder(Flat):
    """Words and what the encoder made of the sound; gives the scores of the next words."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, *given: Tensor) -> Tensor:
        words, memory = given
        found = self.model(decoder_input_ids=words, encoder_outputs=(memory,), use_cache=False)
        return found.logits


@network
def whisper_decoder() -> Network:
    """Any number of words."""
    module = Decoder(made("Whisper", "WhisperForConditionalGeneration", **WHISPER))
    inputs = {"input_ids": tokens(), "encoder_hidden_states": floats("batch", 50, 64)}
    sizes = {"batch": (1, 2, 3), "sequence": (1, 5, 20)}
    return Network(module, inputs, sizes)


@network
def speech_to_text() -> Network:
    """Spectrograms of any length, and words."""
    settings = {k: v for k, v in WHISPER.items() if "suppress" not in k and k != "num_mel_bins"}
    module = made("Speech2Text", "Speech2TextForConditionalGeneration",
                  **{**settings, "max_source_positions": 200}, input_feat_per_channel=16,
                  conv_channels=32)  # fmt: skip
    inputs = {
        "input_features": floats("batch", "frames", 16),
        "decoder_input_ids": tokens("batch", "target"),
    }
    sizes = {"batch": (1, 2, 3), "frames": (20, 41, 90), "target": (2, 5, 9)}
    constants = {"use_cache": False, "return_dict": False}
    return Network(Named(module, list(inputs), constants), inputs, sizes)


@network
def encodec() -> Network:
    """A codec of sound: codes and back, without the codebook."""

    class Through(Flat):
        def __init__(self) -> None:
            super().__init__()
            self.model = made("Encodec", "EncodecModel", num_filters=8, hidden_size=32,
                              codebook_dim=32, codebook_size=64, upsampling_ratios=[4, 2],
                              num_lstm_layers=1, use_conv_shortcut=False)  # fmt: skip

        def forward(self, *given: Tensor) -> Tensor:
            return self.model.decoder(self.model.encoder(given[0]))

    inputs = {"sound": floats("batch", 1, "samples")}
    return Network(Through(), inputs, {"batch": (1, 2, 2), "samples": (320, 640, 1200)})


@network
def hifi_gan() -> Network:
    """HiFi-GAN of SpeechT5: a spectrogram becomes sound."""
    module = made("SpeechT5HifiGan", "SpeechT5HifiGan", model_in_dim=16,
                  upsample_initial_channel=32, upsample_rates=[4, 4],
                  upsample_kernel_sizes=[8, 8], resblock_kernel_sizes=[3, 5],
                  resblock_dilation_sizes=[[1, 3], [1, 3]])  # fmt: skip
    inputs = {"spectrogram": floats("batch", "frames", 16)}
    return Network(
        Named(module, list(inputs)), inputs, {"batch": (1, 2, 3), "frames": (10, 21, 40)}
    )
