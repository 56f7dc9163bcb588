"""Networks over sounds, series, words and tables that are not transformers."""

from __future__ import annotations

from typing import Any

from benchmarks.zoo.catalogue import Module, Network, Tensor, floats, integers, network, torch
from benchmarks.zoo.networks.classification import BATCHES

nn: Any = torch.nn
f: Any = torch.nn.functional

WORDS = 200
SERIES = {"batch": (1, 2, 3), "time": (16, 33, 70)}
TEXT = {"batch": (1, 2, 3), "words": (4, 9, 21)}
SOUND = {"batch": (1, 2, 2), "samples": (400, 800, 1504)}


class Tagger(Module):
    """Words, a recurrent layer in both directions, and a class for each word."""

    def __init__(self, cell: str, layers: int = 1) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 32)
        kind = getattr(nn, cell)
        self.cell = kind(32, 32, layers, batch_first=True, bidirectional=True)
        self.classes = nn.Linear(64, 9)

    def forward(self, words: Tensor) -> Tensor:
        return f.log_softmax(self.classes(self.cell(self.words(words))[0]), -1)


@network
def lstm_tagger() -> Network:
    """Two layers in both directions."""
    return Network(Tagger("LSTM", 2), {"words": integers(WORDS, "batch", "words")}, TEXT)


@network
def gru_tagger() -> Network:
    """One layer in both directions."""
    return Network(Tagger("GRU"), {"words": integers(WORDS, "batch", "words")}, TEXT)


@network
def rnn_tagger() -> Network:
    """Elman's cell."""
    return Network(Tagger("RNN"), {"words": integers(WORDS, "batch", "words")}, TEXT)


class Speaker(Module):
    """A language model that is given its state and gives the next."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.cell = nn.Embedding(WORDS, 32), nn.LSTM(32, 48, 2)
        self.next = nn.Linear(48, WORDS)

    def forward(self, words: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        states, (h, c) = self.cell(self.words(words), (h, c))
        return self.next(states), h, c


@network
def lstm_language_model() -> Network:
    """Its state is an input and a result."""
    inputs = {
        "words": integers(WORDS, "words", "batch"),
        "h": floats(2, "batch", 48),
        "c": floats(2, "batch", 48),
    }
    return Network(Speaker(), inputs, TEXT)


class Translator(Module):
    """Encoder and decoder of LSTMs with dot-product attention, the target given."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(WORDS, 32), nn.Embedding(WORDS, 32)
        self.encode = nn.LSTM(32, 48, batch_first=True)
        self.decode = nn.LSTM(32, 48, batch_first=True)
        self.next = nn.Linear(96, WORDS)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory, state = self.encode(self.source(source))
        found, _ = self.decode(self.target(target), state)
        weights = torch.softmax(found @ memory.transpose(1, 2), -1)
        return self.next(torch.cat([found, weights @ memory], -1))


@network
def seq2seq_attention() -> Network:
    """Source and target of any length."""
    sizes = {"batch": (1, 2, 3), "source": (4, 9, 21), "target": (3, 11, 6)}
    inputs = {
        "source": integers(WORDS, "batch", "source"),
        "target": integers(WORDS, "batch", "target"),
    }
    return Network(Translator(), inputs, sizes)


@network
def torch_transformer() -> Network:
    """PyTorch's own encoder and decoder with a causal mask."""

    class Own(Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(WORDS, 32)
            self.both = nn.Transformer(32, 4, 1, 1, 64, batch_first=True)

        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            length = target.shape[1]
            causal = torch.triu(torch.full((length, length), float("-inf")), 1)
            return self.both(self.words(source), self.words(target), tgt_mask=causal)

    sizes = {"batch": (1, 2, 3), "source": (4, 9, 21), "target": (3, 11, 6)}
    inputs = {
        "source": integers(WORDS, "batch", "source"),
        "target": integers(WORDS, "batch", "target"),
    }
    return Network(Own(), inputs, sizes)


class Temporal(Module):
    """Bai et al. (2018): dilated causal convolutions with residuals."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            [
                nn.utils.parametrizations.weight_norm(nn.Conv1d(a, 16, 3, dilation=2**k))
                for k, a in enumerate((4, 16, 16))
            ]
        )
        self.first, self.last = nn.Conv1d(4, 16, 1), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        for k, conv in enumerate(self.convs):
            h = f.relu(conv(f.pad(x, (2 * 2**k, 0))))
            x = h + (self.first(x) if k == 0 else x)
        return self.last(x[:, :, -1])


@network
def temporal_convolutions() -> Network:
    """A class for each series."""
    return Network(Temporal(), {"series": floats("batch", 4, "time")}, SERIES)


class WaveNet(Module):
    """van den Oord et al. (2016): gated dilated convolutions, whose skips are summed."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, 16, 1)
        self.gates = nn.ModuleList([nn.Conv1d(16, 32, 2, dilation=2**k) for k in range(5)])
        self.outs = nn.ModuleList([nn.Conv1d(16, 32, 1) for _ in range(5)])
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(16, 16, 1), nn.ReLU(), nn.Conv1d(16, 64, 1))

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        x = self.first(x)
        for gate, out in zip(self.gates, self.outs, strict=True):
            filtered, opened = gate(x).chunk(2, 1)
            kept, skip = out(torch.tanh(filtered) * torch.sigmoid(opened)).chunk(2, 1)
            x = x[..., -kept.shape[-1] :] + kept
            skips.append(skip)
        least = skips[-1].shape[-1]
        return self.last(torch.stack([skip[..., -least:] for skip in skips]).sum(0))


@network
def wavenet() -> Network:
    """Without padding: the results are shorter than the sound."""
    return Network(WaveNet(), {"sound": floats("batch", 1, "samples")}, SOUND)


class ConvTasNet(Module):
    """Luo and Mesgarani (2019): a learned basis, masks for two speakers, and back to sound."""

    def __init__(self, basis: int = 32) -> None:
        super().__init__()
        self.basis = basis
        self.encode = nn.Conv1d(1, basis, 16, 8, bias=False)
        self.norm, self.inner = nn.GroupNorm(1, basis), nn.Conv1d(basis, 24, 1)
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(
                    *(nn.Conv1d(24, 48, 1), nn.PReLU(), nn.GroupNorm(1, 48)),
                    nn.Conv1d(48, 48, 3, padding=2**k, dilation=2**k, groups=48),
                    *(nn.PReLU(), nn.GroupNorm(1, 48), nn.Conv1d(48, 24, 1)),
                )
                for k in range(3)
            ]
        )
        self.masks = nn.Conv1d(24, 2 * basis, 1)
        self.decode = nn.ConvTranspose1d(basis, 1, 16, 8, bias=False)

    def forward(self, mixture: Tensor) -> Tensor:
        batch, _, samples = mixture.shape
        code = f.relu(self.encode(mixture))
        x = self.inner(self.norm(code))
        for block in self.blocks:
            x = x + block(x)
        masks = torch.sigmoid(self.masks(x)).view(batch, 2, self.basis, -1)
        parts = (masks * code[:, None]).flatten(0, 1)
        sound = self.decode(parts).view(batch, 2, -1)
        return f.pad(sound, (0, samples - sound.shape[-1]))


@network
def conv_tasnet() -> Network:
    """Any number of samples."""
    return Network(ConvTasNet(), {"mixture": floats("batch", 1, "samples")}, SOUND)


class SpeechCommands(Module):
    """M5 (Dai et al., 2017): a raw wave to a word."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv1d(1, 16, 40, 8), nn.BatchNorm1d(16), nn.ReLU(), nn.MaxPool1d(2)),
            *(nn.Conv1d(16, 32, 3), nn.BatchNorm1d(32), nn.ReLU(), nn.MaxPool1d(2)),
        )
        self.words = nn.Linear(32, 12)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers(x)
        x = f.avg_pool1d(x, x.shape[-1]) if isinstance(x.shape[-1], int) else x.mean(-1, True)
        return f.log_softmax(self.words(x.transpose(1, 2)), 2)


@network
def speech_commands() -> Network:
    """Any number of samples."""
    return Network(SpeechCommands(), {"sound": floats("batch", 1, "samples")}, SOUND)


class DeepSpeech(Module):
    """Convolutions over a spectrogram, recurrent layers, and letters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            *(nn.Conv2d(1, 8, (11, 5), (2, 2), (5, 2)), nn.BatchNorm2d(8), nn.Hardtanh(0, 20)),
        )
        self.cell = nn.GRU(8 * 16, 32, bidirectional=True)
        self.letters = nn.Linear(64, 28)

    def forward(self, spectrogram: Tensor) -> Tensor:
        x = self.conv(spectrogram)
        x = x.permute(2, 0, 1, 3).flatten(2)
        return f.log_softmax(self.letters(self.cell(x)[0]), -1).transpose(0, 1)


@network
def deep_speech() -> Network:
    """Any number of frames."""
    return Network(DeepSpeech(), {"spectrogram": floats("batch", 1, "time", 32)}, SERIES)


class Recognizer(Module):
    """CRNN (Shi et al., 2017): a line of text from its picture."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, 1, 1), nn.ReLU(), nn.MaxPool2d((2, 1), (2, 1))),
            *(nn.Conv2d(32, 48, 3, 1, 1), nn.BatchNorm2d(48), nn.ReLU()),
            nn.AdaptiveAvgPool2d((1, None)),
        )
        self.cell = nn.LSTM(48, 24, bidirectional=True, batch_first=True)
        self.letters = nn.Linear(48, 40)

    def forward(self, image: Tensor) -> Tensor:
        x = self.conv(image).squeeze(2).transpose(1, 2)
        return self.letters(self.cell(x)[0])


@network
def text_recognizer() -> Network:
    """Lines of height 32 and any width."""
    sizes = {"batch": (1, 2, 3), "width": (48, 80, 131)}
    return Network(Recognizer(), {"image": floats("batch", 1, 32, "width")}, sizes)


class NBeats(Module):
    """Oreshkin et al. (2020): blocks that explain a part of the past and of the future."""

    def __init__(self, past: int = 24, future: int = 8) -> None:
        super().__init__()
        layers = [nn.Linear(past, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU()]
        self.blocks = nn.ModuleList(
            [nn.Sequential(*layers, nn.Linear(32, past + future)) for _ in range(3)]
        )
        self.past, self.future = past, future

    def forward(self, series: Tensor) -> Tensor:
        rest, forecast = series, 0.0
        for block in self.blocks:
            back, ahead = block(rest).split([self.past, self.future], 1)
            rest, forecast = rest - back, forecast + ahead
        return forecast


@network
def nbeats() -> Network:
    """24 steps to 8."""
    return Network(NBeats(), {"series": floats("batch", 24)}, BATCHES)


class DLinear(Module):
    """Zeng et al. (2023): a moving average and the rest, a linear map for each."""

    def __init__(self) -> None:
        super().__init__()
        self.trend, self.season = nn.Linear(48, 12), nn.Linear(48, 12)
        self.average = nn.AvgPool1d(5, 1)

    def forward(self, series: Tensor) -> Tensor:
        padded = f.pad(series, (2, 2), mode="replicate")
        trend = self.average(padded)
        return self.trend(trend) + self.season(series - trend)


@network
def dlinear() -> Network:
    """48 steps to 12, of any number of series."""
    sizes = {"batch": (1, 2, 3), "series": (1, 7, 4)}
    return Network(DLinear(), {"past": floats("batch", "series", 48)}, sizes)


class PatchTST(Module):
    """Nie et al. (2023): patches of a series are the words of an encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(16, 32)
        self.places = nn.Parameter(torch.randn(11, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.encode = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(11 * 32, 12)

    def forward(self, past: Tensor) -> Tensor:
        batch, series, _ = past.shape
        mean = past.mean(-1, keepdim=True)
        spread = torch.sqrt(past.var(-1, keepdim=True, unbiased=False) + 1e-5)
        patches = ((past - mean) / spread).unfold(-1, 16, 8).flatten(0, 1)
        words = self.encode(self.embed(patches) + self.places)
        return self.head(words.flatten(1)).view(batch, series, 12) * spread + mean


@network
def patchtst() -> Network:
    """96 steps to 12, of any number of series."""
    sizes = {"batch": (1, 2, 3), "series": (1, 7, 4)}
    return Network(PatchTST(), {"past": floats("batch", "series", 96)}, sizes)


class TextCNN(Module):
    """Kim (2014): the largest of each filter over the words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 32)
        self.convs = nn.ModuleList([nn.Conv1d(32, 16, size) for size in (2, 3, 4)])
        self.classes = nn.Linear(48, 4)

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words).transpose(1, 2)
        return self.classes(torch.cat([f.relu(conv(x)).amax(2) for conv in self.convs], 1))


@network
def text_cnn() -> Network:
    """Filters of two to four words."""
    return Network(TextCNN(), {"words": integers(WORDS, "batch", "words")}, TEXT)
