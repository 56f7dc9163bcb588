"""What is said where PyTorch is not installed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

import dlc
from dlc.importers.torch.exporting import torch_needed


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed")
def test_the_extra_is_named() -> None:
    with pytest.raises(dlc.UsageError, match=r"torch is not installed") as refused:
        torch_needed()
    assert "pip install torch" in str(refused.value)
