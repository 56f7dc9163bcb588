"""What is said where JAX is not installed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

import dlc
from dlc.importers.stablehlo.opening import jax_needed


@pytest.mark.skipif(find_spec("jax") is not None, reason="JAX is installed")
def test_the_extra_is_named() -> None:
    with pytest.raises(dlc.UsageError, match=r"jax is not installed") as refused:
        jax_needed()
    assert "pip install" in str(refused.value)
