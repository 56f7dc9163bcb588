"""`dlc.from_torch(..., gradients=True)`: `backward` gives PyTorch's gradients."""

# pyright: basic, reportMissingModuleSource=false, reportAttributeAccessIssue=false, reportIndexIssue=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportMissingImports=false

from __future__ import annotations

import copy

import pytest

import dlc

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

from tests.importers.torch import networks  # noqa: E402

nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def agree(module, batches, dynamic=None, dtype=torch.float32) -> None:
    """Steps of gradient descent with the compiled module and with a copy of the module itself."""
    module.to(dtype)
    reference = copy.deepcopy(module)
    batches = [each.to(dtype) if each.is_floating_point() else each for each in batches]
    examples = [each.clone().requires_grad_(each.is_floating_point()) for each in batches]
    compiled = dlc.from_torch(module, examples[0], dynamic=dynamic, gradients=True)
    close = {"rtol": 1e-4, "atol": 1e-5} if dtype is torch.float32 else {"rtol": 1e-9, "atol": 1e-9}
    for x in examples:
        y = x.detach().clone().requires_grad_(x.requires_grad)
        ours, theirs = compiled(x), reference(y)
        torch.testing.assert_close(ours, theirs, **close)
        factors = torch.randn_like(theirs)
        ours.backward(factors)
        theirs.backward(factors)
        if x.requires_grad:
            torch.testing.assert_close(x.grad, y.grad, **close)
        for side in (module, reference):
            for parameter in side.parameters():
                parameter.data.sub_(0.01 * parameter.grad)
        for ours, theirs in zip(module.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, **close)
            ours.grad = theirs.grad = None
    for ours, theirs in zip(module.buffers(), reference.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_steps_of_a_perceptron_agree_for_batches_of_any_size() -> None:
    batches = [torch.randn(n, 8) for n in (2, 5, 7)]
    agree(networks.perceptron().train(), batches, dynamic=[{0: "B"}])


def test_steps_and_statistics_of_a_convolutional_network_agree() -> None:
    agree(networks.convolutional().train(), [torch.randn(2, 3, 16, 16) for _ in range(2)])


def test_steps_of_a_transformer_agree_in_f64() -> None:
    agree(networks.transformer().train(), [torch.randn(2, 7, 16)], dtype=torch.float64)


def test_no_gradient_comes_back_to_what_is_detached_or_computed_without() -> None:
    class Stopping(nn.Module):
        def forward(self, x):
            with torch.no_grad():
                scale = x * 2 + 1
            return x * scale + (torch.round(x) - x).detach() * x

    agree(Stopping(), [torch.randn(3, 4)])


def test_no_gradient_comes_back_to_the_row_of_the_padding() -> None:
    agree(nn.Embedding(5, 3, padding_idx=1), [torch.tensor([[0, 1, 4], [1, 1, 2]])])


def test_parameters_that_require_no_gradient_get_none() -> None:
    module = networks.perceptron()
    module[0].weight.requires_grad_(False)
    compiled = dlc.from_torch(module, torch.randn(2, 8), gradients=True)
    compiled(torch.randn(2, 8)).sum().backward()
    assert module[0].weight.grad is None
    assert list(compiled.parameters) == ["0.bias", "2.weight", "2.bias"]


def test_a_dropout_drops_the_same_in_both_passes() -> None:
    compiled = dlc.from_torch(
        nn.Dropout(0.5).train(), torch.ones(64, requires_grad=True), gradients=True
    )
    x = torch.ones(64, requires_grad=True)
    y = compiled(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach())


def test_a_parameter_that_changed_between_the_passes_is_an_error() -> None:
    module = networks.perceptron()
    compiled = dlc.from_torch(module, torch.randn(2, 8), gradients=True)
    loss = compiled(torch.randn(2, 8)).sum()
    with torch.no_grad():
        module[2].weight += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_an_input_whose_example_required_no_gradient_is_named() -> None:
    compiled = dlc.from_torch(networks.perceptron(), torch.randn(2, 8), gradients=True)
    with pytest.raises(dlc.CallError, match="requires a gradient, which its example did not"):
        compiled(torch.randn(2, 8, requires_grad=True))


def test_a_derivative_of_its_own_is_refused() -> None:
    class Rounded(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, dy):
            return dy

    class Straight(nn.Module):
        def forward(self, x):
            return Rounded.apply(x)

    x = torch.randn(3)
    assert torch.equal(dlc.from_torch(Straight(), x)(x), x.round())
    with pytest.raises(dlc.Unsupported, match="Rounded brings a derivative of its own"):
        dlc.from_torch(Straight(), x, gradients=True)
    assert Rounded.apply(x) is not None


def of_pytorch(module, *inputs):
    """The gradients of the first result, weighted by 1, 2, 3 and so on: compiled, and in PyTorch."""
    found = []
    examples = [each.clone().requires_grad_(each.is_floating_point()) for each in inputs]
    for call in (dlc.from_torch(module, examples, gradients=True), module):
        given = [each.clone().requires_grad_(each.is_floating_point()) for each in inputs]
        made = call(*given)
        first = made[0] if isinstance(made, tuple) else made
        weights = torch.arange(1, 1 + first.numel(), dtype=first.dtype).reshape(first.shape)
        (first * weights).sum().backward()
        found.append([each.grad for each in given])
    return found


class Formula(nn.Module):
    """A function as a module."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given):
        return self.function(*given)


KINKS = {
    "relu6": nn.functional.relu6,
    "hardtanh": nn.functional.hardtanh,
    "hardswish": nn.functional.hardswish,
    "hardsigmoid": nn.functional.hardsigmoid,
    "hardshrink": lambda x: nn.functional.hardshrink(x) + nn.functional.softshrink(x),
    "maximum": lambda x: torch.maximum(x, torch.zeros_like(x)) + torch.minimum(x, x * x),
    "norm": lambda x: (x * 0).norm() + x.norm() + x.norm(3) + x.norm(float("inf")),
    "amax": lambda x: x.amax() + x.amin() + x.max() + x.max(0).values,
    "std": lambda x: (x * 0 + 1).std() + x.std(),
    "cross_entropy": lambda x: nn.functional.binary_cross_entropy(
        torch.sigmoid(100 * x), (x > 1).float()
    ),
    "distances": lambda x: torch.cdist(x.reshape(4, 3), x.reshape(4, 3)),
    "angle": lambda x: torch.atan2(x * 0, x * 0) + torch.sinc(x),
    "products": lambda x: x.prod() + x.cumprod(0),
    "in order": lambda x: x.median() + x.kthvalue(2).values + x.cummax(0).values,
    "hypot": lambda x: torch.hypot(x, x * 0) + x.logcumsumexp(0),
}


@pytest.mark.parametrize("name", KINKS)
def test_a_derivative_is_that_of_pytorch_at_kinks_and_where_there_is_none(name: str) -> None:
    x = torch.tensor([-4.0, -3, -1, -0.5, 0, 0, 0.5, 1, 3, 4, 6, 6])
    (ours,), (theirs,) = of_pytorch(Formula(KINKS[name]), x)
    torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_a_result_that_the_loss_leaves_out_has_no_part_in_gradients() -> None:
    module = Formula(lambda x: (x * x, x.sqrt()))
    (ours,), (theirs,) = of_pytorch(module, torch.tensor([0.0, 1, 2]))
    torch.testing.assert_close(ours, theirs)


def test_each_choice_of_results_has_its_own_backward_pass() -> None:
    x = torch.tensor([1.0, 4.0], requires_grad=True)
    compiled = dlc.from_torch(Formula(lambda x: (x * x, x.sqrt())), x, gradients=True)
    for chosen, expected in (((0,), [2, 8]), ((1,), [0.5, 0.25]), ((0, 1), [2.5, 8.25])):
        x.grad = None
        made = compiled(x)
        sum(made[k].sum() for k in chosen).backward()
        torch.testing.assert_close(x.grad, torch.tensor(expected, dtype=x.dtype))


def test_parameters_that_no_result_depends_on_get_none() -> None:
    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.other, self.unused = (nn.Linear(2, 2) for _ in range(3))

        def forward(self, x):
            return self.used(x), self.other(x)

    module = Partly()
    compiled = dlc.from_torch(module, torch.ones(1, 2), gradients=True)
    compiled(torch.ones(1, 2))[0].sum().backward()
    assert module.used.weight.grad is not None
    assert module.other.weight.grad is None
    assert module.unused.weight.grad is None


def test_results_require_a_gradient_where_those_of_the_module_do() -> None:
    module = Formula(lambda x: (x * 2, x.argmax(), x.detach() * 3, torch.ones(2)))
    x = torch.ones(3, requires_grad=True)
    made = dlc.from_torch(module, x, gradients=True)(x)
    assert [each.requires_grad for each in made] == [True, False, False, False]


def test_a_parameter_that_was_replaced_is_the_one_that_a_call_takes() -> None:
    module = nn.Linear(2, 2)
    compiled = dlc.from_torch(module, torch.ones(1, 2), gradients=True)
    module.weight = nn.Parameter(torch.full((2, 2), 3.0))
    x = torch.ones(1, 2)
    torch.testing.assert_close(compiled(x), module(x))
    compiled(x).sum().backward()
    torch.testing.assert_close(module.weight.grad, torch.ones(2, 2))
    del module.weight
    with pytest.raises(dlc.CallError, match="no tensor weight any more"):
        compiled(x)


def test_random_numbers_are_drawn_again_for_a_part_of_the_results() -> None:
    module = Formula(lambda x: (nn.functional.dropout(x), nn.functional.dropout(x)))
    x = torch.ones(64, requires_grad=True)
    _, second = dlc.from_torch(module, x, gradients=True)(x)
    second.sum().backward()
    torch.testing.assert_close(x.grad, second.detach())


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_recurrent_layer_has_gradients_for_sequences_of_any_length(kind: str) -> None:
    module = getattr(nn, kind)(3, 4, 2, bidirectional=True)
    compiled = dlc.from_torch(module, torch.randn(5, 2, 3), dynamic=[{0: "T"}], gradients=True)
    x = torch.randn(7, 2, 3)
    found = []
    for call in (compiled, module):
        module.zero_grad()
        call(x)[0].square().sum().backward()
        found.append([each.grad for each in module.parameters()])
    torch.testing.assert_close(*found)


def test_a_choice_and_a_loop_have_gradients() -> None:
    class Chosen(nn.Module):
        def forward(self, x):
            from torch._higher_order_ops import scan

            y = torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x.sin(), (x,))
            return scan(lambda c, x: (c + x, c * x), torch.zeros(3), y)[1]

    (ours,), (theirs,) = of_pytorch(Chosen(), torch.randn(4, 3))
    torch.testing.assert_close(ours, theirs)


def test_statistics_of_batches_of_any_size_have_gradients() -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(4)

        def forward(self, x):
            return self.norm(x) + x.std(0)

    agree(Normed().train(), [torch.randn(n, 4) for n in (3, 5)], dynamic=[{0: "B"}])


def test_attention_has_gradients() -> None:
    module = Formula(lambda q: nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True))
    q = torch.randn(1, 2, 5, 4)
    (ours,), (theirs,) = of_pytorch(module, q)
    torch.testing.assert_close(ours, theirs)


def test_elements_that_are_counted_in_a_call_have_gradients() -> None:
    class Masked(nn.Module):
        def forward(self, x):
            mask = x[:, 0] > 0
            chosen = (x * x)[mask]
            return torch.zeros_like(x).masked_scatter(mask[:, None].expand_as(x), chosen)

    (ours,), (theirs,) = of_pytorch(Masked(), torch.randn(5, 3))
    torch.testing.assert_close(ours, theirs)


def test_results_whose_size_is_counted_have_gradients() -> None:
    class Chosen(nn.Module):
        def forward(self, x):
            return (x * x)[x[:, 0] > 0], x.exp()[x[:, 1] > 0][:2]

    x = torch.randn(6, 3, requires_grad=True)
    compiled = dlc.from_torch(Chosen(), x, gradients=True)
    for values in (x, torch.ones(6, 3), -torch.ones(6, 3)):
        sides = [values.detach().clone().requires_grad_() for _ in range(2)]
        for side, module in zip(sides, (compiled, Chosen()), strict=True):
            squares, powers = module(side)
            (squares.sin().sum() + 3 * powers.sum()).backward()
        torch.testing.assert_close(sides[0].grad, sides[1].grad)


def test_the_real_part_of_a_fourier_transform_has_a_gradient() -> None:
    class Whole(nn.Module):
        def forward(self, x):
            return torch.fft.fftn(x, dim=(1, 2)).real.sin()

    (ours,), (theirs,) = of_pytorch(Whole(), torch.randn(2, 5, 4))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
