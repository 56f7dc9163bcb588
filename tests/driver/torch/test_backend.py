"""`torch.compile(model, backend="dlc")`: results and gradients of PyTorch."""

# pyright: basic, reportMissingModuleSource=false, reportAttributeAccessIssue=false, reportIndexIssue=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportMissingImports=false

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

from tests.importers.torch import networks  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()


def steps_agree(module, batches, dynamic=None) -> None:
    """Steps of gradient descent with the compiled module and with the module itself."""
    module.train()
    reference = copy.deepcopy(module)
    compiled = torch.compile(module, backend="dlc", dynamic=dynamic)
    pair = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (module, reference)]
    for x in batches:
        results = [compiled(x), reference(x)]
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
        for result, optimizer in zip(results, pair, strict=True):
            optimizer.zero_grad()
            result.square().mean().backward()
        for ours, theirs in zip(module.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-5)
        for optimizer in pair:
            optimizer.step()
    for ours, theirs in zip(module.buffers(), reference.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_inference_agrees() -> None:
    module = networks.transformer().eval()
    compiled = torch.compile(module, backend="dlc")
    x = torch.randn(2, 7, 16)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)


def test_a_changed_parameter_is_seen_by_the_next_call() -> None:
    module = networks.perceptron()
    compiled = torch.compile(module, backend="dlc")
    x = torch.randn(2, 8)
    with torch.no_grad():
        compiled(x)
        module[2].bias += 1
        torch.testing.assert_close(compiled(x), module(x))


def test_gradients_of_a_perceptron_agree_for_batches_of_any_size() -> None:
    steps_agree(networks.perceptron(), [torch.randn(n, 8) for n in (2, 5, 7)])


def test_gradients_and_statistics_of_a_convolutional_network_agree() -> None:
    steps_agree(networks.convolutional(), [torch.randn(2, 3, 16, 16) for _ in range(2)])


def test_channels_last_is_kept() -> None:
    module = networks.convolutional().to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 16, 16).to(memory_format=torch.channels_last)
    steps_agree(module, [x])


def test_gradients_of_a_transformer_agree() -> None:
    steps_agree(networks.transformer(), [torch.randn(2, 7, 16) for _ in range(2)])


def test_random_numbers_follow_the_seed_of_pytorch() -> None:
    module = networks.transformer(dropout=0.5).train()
    compiled = torch.compile(module, backend="dlc")
    x = torch.randn(2, 7, 16)
    torch.manual_seed(1)
    first, second = compiled(x), compiled(x)
    torch.manual_seed(1)
    torch.testing.assert_close(compiled(x), first)
    assert not torch.equal(first, second)


def test_an_unknown_option_is_named() -> None:
    compiled = torch.compile(networks.perceptron(), backend="dlc", options={"speed": 1})
    with pytest.raises(Exception, match="the backend dlc has no option speed"):
        compiled(torch.randn(2, 8))
