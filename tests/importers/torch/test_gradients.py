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


@pytest.mark.parametrize(
    "name", ["relu6", "hardtanh", "hardswish", "hardsigmoid", "maximum", "norm"]
)
def test_a_kink_has_the_derivative_that_pytorch_gives_it(name: str) -> None:
    class Kinked(nn.Module):
        def forward(self, x):
            if name == "maximum":
                return torch.maximum(x, torch.zeros_like(x)) + torch.minimum(x, x * x)
            if name == "norm":
                return (x * 0).norm() + x.norm()
            return getattr(nn.functional, name)(x)

    agree(Kinked(), [torch.tensor([-4.0, -3, -1, -0.5, 0, 0, 0.5, 1, 3, 4, 6, 7])])
