"""dlc: a deep-learning compiler that a person can read from end to end.

`compile` makes a model from text, `load` one from a compiled file; both give a `Model`, whose entry
points are its methods. Names load on first use: `dlc.load` brings in nothing of the compiler.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

from dlc.version import VERSION

if TYPE_CHECKING:
    from dlc.driver.api import compile, trainer, trainers
    from dlc.driver.jax.from_jax import from_jax
    from dlc.driver.jax.to_jax import to_jax
    from dlc.driver.memory.plan import plan
    from dlc.driver.torch.from_torch import from_torch
    from dlc.errors import (
        ArtifactError,
        CallError,
        DlcError,
        DlcWarning,
        InternalError,
        ModelError,
        NumbersDiffer,
        Unsupported,
        UsageError,
    )
    from dlc.runtime.arrays.tensor import Tensor
    from dlc.runtime.cpu.pinning import pin_threads
    from dlc.runtime.cuda.memory_limit import gpu_memory, limit_gpu_memory
    from dlc.runtime.cuda.pinned import pinned
    from dlc.runtime.data.buckets import buckets
    from dlc.runtime.model import Model, load
    from dlc.runtime.training.trainer import Trainer

__all__ = [
    "ArtifactError",
    "CallError",
    "DlcError",
    "DlcWarning",
    "InternalError",
    "Model",
    "ModelError",
    "NumbersDiffer",
    "Tensor",
    "Trainer",
    "Unsupported",
    "UsageError",
    "buckets",
    "compile",
    "from_jax",
    "from_torch",
    "gpu_memory",
    "limit_gpu_memory",
    "load",
    "pin_threads",
    "pinned",
    "plan",
    "to_jax",
    "trainer",
    "trainers",
]

__version__ = VERSION


if not TYPE_CHECKING:  # a checker knows the names, and that there are no others

    def __getattr__(name: str) -> object:
        from dlc.first_use import imported
        from dlc.runtime.calling.observers import OBSERVERS

        OBSERVERS[:] = [_observer]
        try:
            value = globals()[name] = imported(sys.modules[__name__], name)
        except ModuleNotFoundError as error:
            from dlc.errors import not_installed

            raise not_installed(error) from error
        return value


def _observer():
    """What gives the inner values of a call, by the compiler: it is loaded when they are asked for."""
    from dlc.driver.run.entry_values import values_of

    return values_of


def load_ipython_extension(shell: object) -> None:
    """What `%load_ext dlc` calls in a notebook: `%%dlm` cells are known from then on."""
    from dlc.driver.notebook import Shell, register

    register(cast("Shell", shell))


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
