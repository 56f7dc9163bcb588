from collections.abc import Callable

from torch import Tensor

def scan(
    step: Callable[[tuple[Tensor, ...], Tensor], tuple[object, Tensor]],
    initial: tuple[Tensor, ...],
    rows: Tensor,
) -> tuple[tuple[Tensor, ...], Tensor]: ...
