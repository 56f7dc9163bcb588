"""dlc: a deep-learning compiler that a person can read from end to end.

`compile` makes a model from text, `load` one from a compiled file; both give a `Model`, whose entry
points are its methods. Names load on first use: `dlc.load` brings in nothing of the compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from dlc.version import VERSION

if TYPE_CHECKING:
    from dlc.driver.api import compile, trainer
    from dlc.driver.torch.from_torch import from_torch
    from dlc.errors import (
        ArtifactError,
        CallError,
        DlcError,
        InternalError,
        ModelError,
        NumbersDiffer,
        Unsupported,
        UsageError,
    )
    from dlc.runtime.arrays.tensor import Tensor
    from dlc.runtime.cuda.pinned import pinned
    from dlc.runtime.model import Model, load
    from dlc.runtime.training.trainer import Trainer

__all__ = [
    "ArtifactError",
    "CallError",
    "DlcError",
    "InternalError",
    "Model",
    "ModelError",
    "NumbersDiffer",
    "Tensor",
    "Trainer",
    "Unsupported",
    "UsageError",
    "compile",
    "from_torch",
    "load",
    "pinned",
    "trainer",
]

__version__ = VERSION

_HOMES = {
    "Model": "dlc.runtime.model",
    "Tensor": "dlc.runtime.arrays.tensor",
    "Trainer": "dlc.runtime.training.trainer",
    "compile": "dlc.driver.api",
    "from_torch": "dlc.driver.torch.from_torch",
    "load": "dlc.runtime.model",
    "pinned": "dlc.runtime.cuda.pinned",
    "trainer": "dlc.driver.api",
}
"""Where each public name lives; the others are errors."""


if not TYPE_CHECKING:  # a checker knows the names, and that there are no others

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'dlc' has no attribute {name!r}")
        errors = import_module("dlc.errors")
        try:
            home = import_module(_HOMES.get(name, "dlc.errors"))
        except ModuleNotFoundError as error:
            raise errors.not_installed(error) from error
        found: object = getattr(home, name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
