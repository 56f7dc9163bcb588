from collections.abc import Sequence

from torch import Tensor
from torch.autograd import function as function

class Function:
    @classmethod
    def apply(cls, *given: object) -> Sequence[Tensor]: ...

def grad(
    results: Sequence[Tensor],
    inputs: Sequence[Tensor],
    cotangents: Sequence[Tensor],
    *,
    allow_unused: int = ...,
) -> tuple[Tensor | None, ...]: ...
