"""Operators of ATen, each against PyTorch, with sizes that are fixed."""

# pyright: basic, reportMissingModuleSource=false, reportAttributeAccessIssue=false, reportIndexIssue=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportMissingImports=false

from __future__ import annotations

import pytest

import dlc

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")
functional = torch.nn.functional

pytestmark = pytest.mark.filterwarnings("ignore")

X = torch.linspace(-2, 2, 24).reshape(2, 3, 4).sin()
PICTURE = torch.linspace(-1, 3, 2 * 4 * 7 * 6).reshape(2, 4, 7, 6).cos()
ODD = torch.tensor([[3, -1, 2], [0, 2, 5]])
MASK = X > 0.2
TURNS = torch.polar(torch.ones(4, 2), torch.linspace(-3, 3, 8).reshape(4, 2))
INDEX = torch.tensor([[0, 2, 1, -1]])

CASES = {
    "Fourier transforms": lambda: (
        lambda x: (
            torch.fft.fftn(x, dim=(0, 1)).real,
            torch.fft.fft(x, norm="ortho").imag,
            torch.view_as_real(torch.fft.ifft(torch.fft.fft(x, dim=0), dim=1)),
            torch.view_as_real(torch.fft.rfft(x[:, :, :3])),
            torch.fft.irfft(torch.fft.rfft(x, dim=1), 3, dim=1),
            torch.fft.irfftn(torch.fft.rfftn(x)),
        ),
        X,
    ),
    "complex numbers": lambda: (
        lambda x, i: (
            torch.view_as_real(rotated := torch.view_as_complex(x.reshape(2, 3, 2, 2)) * TURNS[:3]),
            (rotated + rotated.conj() * 2 - 1).real,
            (rotated / (rotated[:, :1] + 0.5) / 3).imag,
            torch.view_as_real(-rotated.transpose(-1, -2)[..., None].expand(2, 2, 3, 4)),
            torch.cat([rotated, 2 * rotated], -1).abs(),
            torch.view_as_real(rotated[:, i[0, :3], -1]),
            torch.view_as_real(torch.polar(x.abs(), x) * torch.complex(x[0], x[1])),
            torch.view_as_real(rotated.permute(-1, 0, 1).unsqueeze(-1)),
        ),
        X,
        INDEX,
    ),
    "promotion": lambda: (lambda x, i: x[0, :2, :3] * i + 1 - i / 2, X, ODD),
    "comparing a number": lambda: (
        lambda x, i: ((i > 1.5) | (x[0, :2, :3] < 0)) & (i != 2),
        X,
        ODD,
    ),
    "integer division": lambda: (
        lambda i: (i // 2, i % 3, torch.fmod(i, 3), torch.div(i, 2, rounding_mode="trunc")),
        ODD,
    ),
    "powers": lambda: (lambda x: (x.abs() ** 0.5, x**3, 2**x, x.abs().pow(1.7), x**2), X),
    "functions": lambda: (
        lambda x: (
            x.exp().log1p(),
            x.erf(),
            x.tan(),
            x.atan(),
            x.sigmoid(),
            x.tanh(),
            x.sign(),
            x.erfc(),
            torch.exp2(x),
            (x + 3).log2(),
            torch.frac(x),
            torch.sinh(x),
        ),
        X,
    ),
    "rounding": lambda: (
        lambda x: ((x * 3).round(), x.floor(), x.ceil(), x.trunc(), (x * 7).round(decimals=1)),
        X,
    ),
    "activations": lambda: (
        lambda x: (
            functional.gelu(x),
            functional.gelu(x, approximate="tanh"),
            functional.elu(x, 0.5),
            functional.selu(x),
            functional.celu(x, 1.5),
            functional.softplus(x, 2, 1),
            functional.mish(x),
            functional.hardswish(x),
            functional.leaky_relu(x, 0.2),
            functional.relu6(4 * x),
            functional.hardtanh(x, -0.5, 0.7),
            functional.logsigmoid(x),
            functional.silu(x),
            functional.threshold(x, 0.1, -3),
            functional.glu(x, -1),
            functional.softsign(x),
            functional.tanhshrink(x),
            functional.hardshrink(x),
        ),
        X,
    ),
    "clamping": lambda: (
        lambda x: (x.clamp(-0.5, 0.5), x.clamp(min=0), torch.clamp(x, max=x.mean())),
        X,
    ),
    "choosing": lambda: (
        lambda x, m: (torch.where(m, x, 0.0), x.masked_fill(m, -1), torch.where(m, 1, 2)),
        X,
        MASK,
    ),
    "reductions": lambda: (
        lambda x: (
            x.sum(),
            x.mean(-1),
            x.amax((0, 2)),
            x.prod(1),
            x.std(-1),
            x.var(0, unbiased=False),
            x.norm(),
            x.norm(1, -1),
            x.logsumexp(1),
            x.max(),
            x.min(-1).values,
            x.argmax(-1),
            torch.var_mean(x, -1),
        ),
        X,
    ),
    "truth": lambda: (
        lambda m: (m.all(), m.any(-1), m.sum(-1), m.logical_not(), m.cumsum(0)),
        MASK,
    ),
    "order": lambda: (
        lambda x: (
            *x.sort(-1, descending=True),
            *x.topk(2, 1),
            x.argsort(0),
            x.cumsum(1),
            x.cumprod(-1),
        ),
        X,
    ),
    "shapes": lambda: (
        lambda x: (
            x.view(6, 4),
            x.permute(2, 0, 1),
            x.flatten(1),
            x.unsqueeze(1).expand(2, 5, 3, 4),
            x.mT,
            x.repeat(1, 2, 1),
            x.repeat_interleave(2, 1),
            x.unflatten(2, (2, 2)),
            x[:, None, 0],
            x.flip(0, 2),
            x.roll(1, -1),
            x.roll((1, -2), (0, 2)),
            x.narrow(2, 1, 2),
            x.movedim(0, -1),
        ),
        X,
    ),
    "parts": lambda: (
        lambda x: (
            *x.chunk(2, 2),
            *x.split([1, 2], 1),
            *x.unbind(0),
            x[:, -2:],
            x[..., ::2],
            x[1, 1:, 3],
            torch.cat([x, 2 * x], 1),
            torch.stack([x, x], -1),
            x.unfold(2, 2, 1),
            x.diagonal(0, 1, 2),
        ),
        X,
    ),
    "padding": lambda: (
        lambda x: (
            functional.pad(x, (1, 2), value=3),
            functional.pad(x, (1, 2), mode="reflect"),
            functional.pad(x, (2, 1), mode="replicate"),
            functional.pad(x, (2, 1), mode="circular"),
            functional.pad(x, (-1, 1, 0, -1)),
        ),
        X,
    ),
    "triangles": lambda: (lambda x: (x.tril(), x.triu(1), torch.eye(3, 4) + x), X),
    "places": lambda: (
        lambda x, i: (
            x[:, i[0]],
            x[i[0] % 2, :, i[0]],
            x.index_select(1, i[0] % 3),
            x.gather(2, i.abs().expand(2, 3, 4) % 4),
            torch.take_along_dim(x, i.abs()[None] % 4, 2),
        ),
        X,
        INDEX,
    ),
    "putting": lambda: (
        lambda x, i: (
            x.scatter(2, i.abs().expand(2, 3, 4) % 3, x * 2),
            x.scatter_add(2, i.abs().expand(2, 3, 4) % 3, x),
            x.index_add(2, i[0].abs(), x),
            x.index_fill(1, i[0, :1], 9.0),
            x.index_put((i[0] % 2, i[0] % 3), torch.ones(4, 4), accumulate=True),
        ),
        X,
        INDEX,
    ),
    "assignment": lambda: (_assigned, X),
    "counting": lambda: (
        lambda x, m: (x[m].sum(), torch.nonzero(m).sum(0), x.masked_select(m).exp().sum()),
        X,
        MASK,
    ),
    "histogram": lambda: (
        lambda i: (
            torch.histc(i.float(), 4, 0, 4),
            functional.one_hot(i.abs(), 6),
            torch.bucketize(i.float(), torch.tensor([0.0, 2.0, 4.0])),
        ),
        ODD,
    ),
    "products": lambda: (
        lambda x: (
            x @ x.mT,
            x[0] @ x[1].T,
            x[0, 0] @ x[1, 0],
            x @ x[0, 0],
            torch.einsum("bij,bkj->ik", x, x),
            torch.outer(x[0, 0], x[0, 1]),
            torch.baddbmm(x[:, :, :3], x, x.mT, beta=0.5, alpha=2),
            torch.addmm(x[0, :, :3], x[0], x[1].T),
            torch.cdist(x[0], x[1]),
        ),
        X,
    ),
    "attention": lambda: (_attended, X),
    "softmax": lambda: (lambda x: (x.softmax(-1), x.log_softmax(1), functional.softmin(x, 0)), X),
    "normalisation": lambda: (
        lambda x: (
            functional.layer_norm(x, (7, 6)),
            functional.group_norm(x, 2),
            functional.instance_norm(x),
            functional.rms_norm(x, (6,)),
            functional.local_response_norm(x, 3),
            functional.normalize(x),
        ),
        PICTURE,
    ),
    "pooling": lambda: (
        lambda x: (
            functional.max_pool2d(x, 3, 2, 1),
            functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
            functional.avg_pool2d(x, 2, ceil_mode=True),
            functional.max_pool2d(x, 2, ceil_mode=True),
            functional.adaptive_avg_pool2d(x, (3, 4)),
            functional.lp_pool2d(x, 2, 2),
            *functional.max_pool2d(x, 2, return_indices=True),
        ),
        PICTURE,
    ),
    "resizing": lambda: (
        lambda x: (
            functional.interpolate(x, scale_factor=2),
            functional.interpolate(x, (5, 9), mode="bilinear"),
            functional.interpolate(x, (5, 9), mode="bilinear", align_corners=True),
            functional.interpolate(x, (9, 4), mode="bicubic"),
            functional.interpolate(x, (5, 9), mode="nearest-exact"),
            functional.pixel_shuffle(x, 2),
            functional.interpolate(x, scale_factor=1.5, mode="bilinear"),
        ),
        PICTURE,
    ),
    "convolutions": lambda: (_convolved, PICTURE),
    "making": lambda: (
        lambda x: (
            torch.arange(1, 9, 2),
            torch.arange(0, 1, 0.3),
            torch.linspace(0, 1, 5),
            torch.full((2,), 3.5),
            torch.zeros_like(x),
            torch.ones(2, dtype=torch.int32),
            x.new_tensor([1.0, 2.0]),
        ),
        X,
    ),
    "casting": lambda: (
        lambda x, i: (
            x.to(torch.float64),
            (3 * x).to(torch.int32),
            i.bool(),
            i.float(),
            x.half().float(),
        ),
        X,
        ODD,
    ),
    "losses": lambda: (
        lambda x, i: (
            functional.cross_entropy(x[0, :2, :3], i[:, 1] % 3),
            functional.mse_loss(x[0], x[1]),
            functional.binary_cross_entropy_with_logits(x[0], x[1].sigmoid()),
            functional.smooth_l1_loss(x[0], x[1]),
            functional.kl_div(x[0], x[1].softmax(-1)),
        ),
        X,
        ODD.abs(),
    ),
}


def _assigned(x):
    y = x.clone()
    y[:, 1] = 0
    y[..., ::2] += 1
    y[1, :, 3:] = x[0, :, :1]
    return y


def _attended(x):
    query = x.reshape(2, 2, 3, 2)
    attend = functional.scaled_dot_product_attention
    mask = torch.tensor([[True, False, True]] * 3)
    grouped = attend(query.repeat(1, 2, 1, 1), query, query, enable_gqa=True)
    return attend(query, query, query, is_causal=True), attend(query, query, query, mask), grouped


def _convolved(x):
    kernel = torch.linspace(-1, 1, 4 * 2 * 9).reshape(4, 2, 3, 3).sin()
    return (
        functional.conv2d(x, kernel, stride=2, padding=1, groups=2),
        functional.conv2d(x, kernel[:, :1], padding="same", groups=4, dilation=2),
        functional.conv_transpose2d(x, kernel, stride=2, padding=1, output_padding=1, groups=2),
        functional.conv1d(x[:, :, 0], kernel[:, :, 0].repeat(1, 2, 1)),
        functional.unfold(x, 3),
    )


class Function(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


@pytest.mark.parametrize("name", CASES)
def test_operators_agree_with_pytorch(name: str) -> None:
    function, *args = CASES[name]()
    found = dlc.from_torch(Function(function), args)(*args)
    expected = function(*args)
    found = found if isinstance(expected, tuple) else (found,)
    expected = expected if isinstance(expected, tuple) else (expected,)
    flat = torch.utils._pytree.tree_leaves
    for k, (ours, theirs) in enumerate(zip(flat(found), flat(expected), strict=True)):
        torch.testing.assert_close(
            ours, theirs, rtol=1e-4, atol=1e-5, msg=lambda m, k=k: f"{k}: {m}"
        )


def test_what_has_no_meaning_for_pairs_is_refused() -> None:
    class Squared(torch.nn.Module):
        def forward(self, x):
            return torch.fft.fft(x).exp().real

    with pytest.raises(dlc.Unsupported, match=r"complex\.exp is not imported"):
        dlc.from_torch(Squared(), X)


def test_a_buffer_of_complex_numbers_turns_queries_of_any_length() -> None:
    """Rotary embeddings as the first Llama wrote them."""

    class Rotary(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("turns", torch.polar(torch.ones(16, 2), torch.randn(16, 2)))

        def forward(self, x):
            turns = self.turns[: x.size(1)].view(1, x.size(1), -1)
            pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
            return torch.view_as_real(pairs * turns).flatten(2).type_as(x)

    module = Rotary()
    fast = dlc.from_torch(module, X, dynamic=[{0: "B", 1: "T"}])
    for shape in ((1, 1, 4), (2, 3, 4), (3, 16, 4)):
        x = torch.randn(shape)
        torch.testing.assert_close(fast(x), module(x))


def test_complex_results_are_refused() -> None:
    class Transformed(torch.nn.Module):
        def forward(self, x):
            return torch.fft.fft(x)

    with pytest.raises(dlc.Unsupported, match="complex64 is not imported"):
        dlc.from_torch(Transformed(), X)


class FromTheEnd(torch.nn.Module):
    """All columns, counted from the end, and as many of the last numbers of a table."""

    def forward(self, x):
        words = x.shape[1]
        return x[:, -words:] * 2 + torch.arange(40)[-words:]


@pytest.mark.parametrize("words", [2, 5, 9])
def test_slices_count_a_chosen_size_from_the_end(words: int) -> None:
    module = FromTheEnd()
    fast = dlc.from_torch(module, (torch.randn(2, 5),), dynamic=[{1: "T"}])
    x = torch.randn(2, words)
    torch.testing.assert_close(fast(x), module(x))
