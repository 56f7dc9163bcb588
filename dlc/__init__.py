"""dlc: a deep-learning compiler that a person can read from end to end.

`compile` makes a model from text, `load` one from a compiled file; both give a `Model`, whose entry
points are its methods. Names load on first use: `dlc.load` brings in nothing of the compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from dlc.version import VERSION

if TYPE_CHECKING:
    from types import ModuleType

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
        if name not in __all__:
            raise AttributeError(f"module 'dlc' has no attribute {name!r}")
        import dlc.errors as errors

        try:
            value: object = getattr(_home(name), name)
        except ModuleNotFoundError as error:
            raise errors.not_installed(error) from error
        globals()[name] = value
        return value


def _home(name: str) -> ModuleType:
    """The module that defines a public name."""
    match name:
        case "compile" | "trainer" | "trainers":
            import dlc.driver.api as home

            _offer_inner_values()
        case "from_jax":
            import dlc.driver.jax.from_jax as home
        case "from_torch":
            import dlc.driver.torch.from_torch as home
        case "to_jax":
            import dlc.driver.jax.to_jax as home
        case "plan":
            import dlc.driver.memory.plan as home
        case "Model" | "load":
            import dlc.runtime.model as home

            _offer_inner_values()
        case "Tensor":
            import dlc.runtime.arrays.tensor as home
        case "Trainer":
            import dlc.runtime.training.trainer as home
        case "buckets":
            import dlc.runtime.data.buckets as home
        case "gpu_memory" | "limit_gpu_memory":
            import dlc.runtime.cuda.memory_limit as home
        case "pin_threads":
            import dlc.runtime.cpu.pinning as home
        case "pinned":
            import dlc.runtime.cuda.pinned as home
        case _:
            import dlc.errors as home
    return home


def _offer_inner_values() -> None:
    """Let entry points give inner values, by the compiler, which is loaded when they are asked for."""
    from dlc.runtime.calling.entry import EntryPoint

    def observer():
        from dlc.driver.run.entry_values import values_of

        return values_of

    EntryPoint.observers[:] = [observer]


def load_ipython_extension(shell: object) -> None:
    """What `%load_ext dlc` calls in a notebook: `%%dlm` cells are known from then on."""
    from dlc.driver.notebook import Shell, register

    register(cast("Shell", shell))


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
