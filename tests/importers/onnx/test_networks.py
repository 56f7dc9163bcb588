"""Real networks, imported and compiled, against onnxruntime.

`python -m benchmarks.onnx_agreement` prints the same as a table.
"""

from __future__ import annotations

import pytest

from tests.importers.onnx.agreement import (
    FOLDER,
    MATMULS,
    Network,
    agreement,
    light_networks,
    trained_networks,
)

NONE = pytest.param(None, marks=pytest.mark.skip(f"set {FOLDER} to a folder with .onnx files"))


@pytest.mark.long
@pytest.mark.parametrize("matmul", MATMULS)
@pytest.mark.parametrize("network", light_networks(), ids=lambda network: network.name)
def test_a_light_graph_with_seeded_weights_agrees(network: Network, matmul: str) -> None:
    assert agreement(network, matmul).holds


@pytest.mark.long
@pytest.mark.parametrize("matmul", MATMULS)
@pytest.mark.parametrize(
    "network", trained_networks() or [NONE], ids=lambda n: getattr(n, "name", "")
)
def test_a_trained_network_agrees(network: Network, matmul: str) -> None:
    assert agreement(network, matmul).holds
