"""`.pt2` files in the verbs of the command line."""

# pyright: basic, reportMissingModuleSource=false, reportAttributeAccessIssue=false, reportIndexIssue=false
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportMissingImports=false

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dlc
from dlc import driver

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

from tests.importers.torch import networks  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    batch = torch.export.Dim("B", max=64)
    exported = torch.export.export(
        networks.Blocks().eval(), (torch.randn(2, 8),), dynamic_shapes=({0: batch},)
    )
    path = tmp_path / "blocks.pt2"
    torch.export.save(exported, path)
    return path


def test_a_program_is_compiled(program: Path) -> None:
    x = torch.randn(3, 8)
    expected = torch.export.load(program).module()(x).detach().numpy()
    (found,) = dlc.compile(program).run(x.numpy())
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_program_is_imported_as_text(program: Path, tmp_path: Path) -> None:
    made = driver.import_model(program, tmp_path / "blocks.dlm")
    text = made.text.read_text()
    assert "module Block {" in text and "* Block()" in text
    x = np.ones((2, 8), np.float32)
    (found,), (expected,) = dlc.compile(made.text).run(x), dlc.compile(program).run(x)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_file_that_is_no_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "none.pt2"
    path.write_bytes(b"no zip")
    with pytest.raises(dlc.UsageError, match="not read as a program"):
        dlc.compile(path)


def test_results_may_be_in_a_class_of_a_package_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.utils import _pytree

    class Outputs(dict):
        """As transformers has for each kind of network."""

    class Named(torch.nn.Module):
        def forward(self, x):
            return Outputs(double=x * 2, total=x.sum())

    _pytree.register_pytree_node(
        Outputs,
        lambda held: ([*held.values()], [*held]),
        lambda values, names: Outputs(zip(names, values, strict=True)),
        serialized_type_name="elsewhere.Outputs",
    )
    path = tmp_path / "named.pt2"
    torch.export.save(torch.export.export(Named(), (torch.ones(3),)), path)
    monkeypatch.delitem(_pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE, "elsewhere.Outputs")
    double, total = dlc.compile(path).run(np.ones(3, np.float32))
    np.testing.assert_array_equal(double, [2, 2, 2])
    assert total == 3
