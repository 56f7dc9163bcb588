"""`dlc.from_torch`: the same results as the module, for static and for dynamic sizes."""

# pyright: basic, reportMissingModuleSource=false, reportAttributeAccessIssue=false, reportIndexIssue=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportMissingImports=false

from __future__ import annotations

import copy

import pytest

import dlc

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

from tests.importers.torch import networks  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def agree(module, args, more=(), dynamic=None) -> None:
    """Compile with the first arguments; compare at all of them."""
    module.eval()
    compiled = dlc.from_torch(module, args, dynamic=dynamic)
    with torch.no_grad():
        for each in (args, *more):
            torch.testing.assert_close(compiled(*each), module(*each), rtol=1e-4, atol=1e-5)


class Unnested(torch.nn.Module):
    """The outputs of a recurrent layer, without its last states."""

    def __init__(self, layer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


def test_a_perceptron_is_compiled() -> None:
    agree(networks.perceptron(), (torch.randn(2, 8),))


def test_batches_of_any_size_are_taken_where_the_batch_is_dynamic() -> None:
    batches = [(torch.randn(n, 8),) for n in (1, 5)]
    agree(networks.perceptron(), (torch.randn(2, 8),), batches, dynamic=[{0: "B"}])


def test_a_convolutional_network_takes_pictures_of_any_size() -> None:
    dynamic = {"input": {0: "B", 2: "H", 3: "W"}}
    agree(
        networks.convolutional(),
        (torch.randn(2, 3, 16, 16),),
        [(torch.randn(1, 3, 32, 24),)],
        dynamic,
    )


def test_a_transformer_takes_any_length() -> None:
    more = [(torch.randn(3, 5, 16),)]
    agree(networks.transformer(), (torch.randn(2, 7, 16),), more, {"src": {0: "B", 1: "T"}})


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_recurrent_layer_takes_any_length(kind: str) -> None:
    layer = getattr(torch.nn, kind)(3, 4, num_layers=2, bidirectional=True, batch_first=True)
    agree(
        Unnested(layer),
        (torch.randn(2, 5, 3),),
        [(torch.randn(1, 60, 3),)],
        dynamic=[{0: "B", 1: "T"}],
    )


def test_a_recurrent_layer_takes_thousands_of_steps() -> None:
    layer = torch.nn.GRU(3, 4, bias=False)
    compiled = dlc.from_torch(Unnested(layer), torch.randn(3000, 1, 3))
    x = torch.randn(3000, 1, 3)
    torch.testing.assert_close(compiled(x), layer(x)[0].detach(), rtol=1e-4, atol=1e-5)


def test_layers_with_projections_are_written_out() -> None:
    agree(Unnested(torch.nn.LSTM(3, 4, proj_size=2)), (torch.randn(5, 2, 3),))


def test_dims_have_the_names_that_were_asked_for() -> None:
    compiled = dlc.from_torch(networks.perceptron(), torch.randn(2, 8), dynamic=[{0: "B"}])
    assert [dim.name for dim in compiled.model.entry_points["run"].dims] == ["B"]


def test_a_dim_with_the_name_of_an_input_gets_a_number() -> None:
    compiled = dlc.from_torch(networks.perceptron(), torch.randn(2, 8), dynamic=[{0: "input"}])
    assert [dim.name for dim in compiled.model.entry_points["run"].dims] == ["input2"]


class LastOnes(torch.nn.Module):
    """Adds the last columns of a table, as many as there are, to each row."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(1, 16))

    def forward(self, x):
        rows, columns = (max(0, of - x.shape[1]) for of in self.table.shape)
        return x @ x.transpose(0, 1) + x.sum() * self.table[rows:, columns:].sum()


def test_the_larger_of_sizes_whose_bounds_tell_which_is_that_one() -> None:
    more = [(torch.randn(2, 3),), (torch.randn(2, 1),)]
    agree(LastOnes(), (torch.randn(2, 5),), more, dynamic=[{1: "T"}])


class Windows(torch.nn.Module):
    """The means of windows of four rows, of a table that is filled up with zeros."""

    def forward(self, x):
        missing = (4 - x.shape[0] % 4) % 4
        whole = torch.nn.functional.pad(x, (0, 0, 0, missing))
        return whole.reshape(whole.shape[0] // 4, 4, x.shape[1]).mean(1)


def test_the_checks_of_a_program_are_not_traced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.export import _unlift

    rows = {0: torch.export.Dim.AUTO}
    program = torch.export.export(Windows(), (torch.randn(6, 3),), dynamic_shapes=[rows])

    def traced(*_):
        raise AssertionError("PyTorch's own checks of sizes are in the way")

    monkeypatch.setattr(_unlift, "_convert_guards_code_to_fn", traced)
    compiled = dlc.from_torch(program)
    for count in (5, 8, 11):
        x = torch.randn(count, 3)
        torch.testing.assert_close(compiled(x), Windows()(x), rtol=1e-4, atol=1e-5)


def test_bounds_of_a_dim_are_kept() -> None:
    batch = torch.export.Dim("B", min=2, max=64)
    compiled = dlc.from_torch(networks.perceptron(), torch.randn(2, 8), dynamic=[{0: batch}])
    with pytest.raises(dlc.CallError, match="64"):
        compiled(torch.randn(65, 8))


def test_weights_have_the_names_of_the_module() -> None:
    compiled = dlc.from_torch(networks.Blocks().eval(), torch.randn(2, 8))
    keys = {weight.key or weight.name for weight in compiled.model.artifact.manifest.weights}
    assert "blocks.1.down.bias" in keys


def test_running_statistics_are_states_in_training_mode() -> None:
    module = networks.convolutional()[:3].train()
    reference = copy.deepcopy(module)
    x = torch.randn(2, 3, 8, 8)
    compiled = dlc.from_torch(module, x)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), reference(x).detach(), rtol=1e-4, atol=1e-5)
    assert list(compiled.states) == ["1.running_mean", "1.running_var", "1.num_batches_tracked"]
    for buffer, expected in zip(module.buffers(), reference.buffers(), strict=True):
        torch.testing.assert_close(buffer, expected)


def test_loops_and_choices_are_kept() -> None:
    module, x = networks.Choice(), torch.randn(3)
    agree(module, (x, torch.tensor(0)), [(-x, torch.tensor(3))])
    agree(networks.Scanned(), (torch.randn(5, 3),))


def test_arguments_and_results_may_be_nested() -> None:
    args, kwargs = ((torch.randn(2), torch.randn(3)),), {"table": {"bias": torch.randn(2)}}
    module = networks.Nested()
    compiled = dlc.from_torch(module, args, kwargs)
    torch.testing.assert_close(compiled(*args, **kwargs), module(*args, **kwargs))
    with pytest.raises(dlc.CallError, match="other arguments"):
        compiled(*args)


def test_tensors_of_16_bits_are_passed_and_returned() -> None:
    module = torch.nn.Linear(4, 3).to(torch.bfloat16)
    compiled = dlc.from_torch(module, torch.randn(2, 4, dtype=torch.bfloat16))
    x = torch.randn(2, 4, dtype=torch.bfloat16)
    torch.testing.assert_close(compiled(x), module(x).detach(), rtol=2e-2, atol=2e-2)


def test_arguments_are_not_copied() -> None:
    from dlc.driver.torch.tensors import argument, tensor_of

    x = torch.randn(3, 4)
    passed = argument(x.t(), (1, 0))
    assert passed.ctypes.data == x.data_ptr()
    assert tensor_of(passed).data_ptr() == x.data_ptr()


def test_unknown_operators_are_listed_at_once() -> None:
    class Odd(torch.nn.Module):
        def forward(self, x):
            return torch.special.bessel_j0(x) + torch.linalg.det(x)

    with pytest.raises(dlc.Unsupported, match="special_bessel_j0") as refused:
        dlc.from_torch(Odd(), torch.randn(2, 2))
    assert len(refused.value.diagnostics) == 2


def test_what_cannot_be_exported_says_so() -> None:
    class Deciding(torch.nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x

    with pytest.raises(dlc.Unsupported, match=r"torch\.export does not export Deciding"):
        dlc.from_torch(Deciding(), torch.randn(2))


def test_an_input_that_is_not_there_is_named() -> None:
    with pytest.raises(dlc.UsageError, match="the module has no input y"):
        dlc.from_torch(networks.perceptron(), torch.randn(2, 8), dynamic={"y": {0: "B"}})


def test_a_tensor_of_another_dtype_is_told_in_the_words_of_pytorch() -> None:
    compiled = dlc.from_torch(networks.perceptron(), torch.randn(2, 8))
    with pytest.raises(dlc.CallError, match=r"of torch.float64, where torch.float32") as refused:
        compiled(torch.randn(2, 8).double())
    assert "write input.to(torch.float32)" in str(refused.value)


def test_a_table_of_positions_says_how_many_there_are() -> None:
    class Placed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(16, 4)

        def forward(self, x):
            return x + self.table(torch.arange(x.shape[1]).unsqueeze(0))

    module = Placed()
    compiled = dlc.from_torch(module, torch.randn(2, 5, 4), dynamic=[{1: "T"}])
    x = torch.randn(2, 16, 4)
    torch.testing.assert_close(compiled(x), module(x))
    with pytest.raises(dlc.CallError, match="leaves an axis of size 16 where T is 17"):
        compiled(torch.randn(2, 17, 4))
