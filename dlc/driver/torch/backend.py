"""The backend that `torch.compile` finds by the name `dlc`, imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from dlc.errors import not_installed

if TYPE_CHECKING:
    from torch.fx import GraphModule


def backend(
    module: GraphModule, inputs: Sequence[object], options: Mapping[str, object] | None = None
) -> Callable[..., object]:
    """See `dynamo.backend`. Raises UsageError (D0923) where a package that the compiler needs lacks."""
    try:
        from dlc.driver.torch import dynamo
    except ModuleNotFoundError as error:
        raise not_installed(error) from error
    return dynamo.backend(module, inputs, options)
