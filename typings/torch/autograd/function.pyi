from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor

_Call = TypeVar("_Call", bound=Callable[..., object])

class FunctionCtx:
    saved_tensors: Sequence[Tensor]
    def save_for_backward(self, *tensors: Tensor) -> None: ...
    def mark_non_differentiable(self, *results: Tensor) -> None: ...

def once_differentiable(function: _Call) -> _Call: ...
