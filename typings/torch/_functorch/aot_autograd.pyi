from collections.abc import Callable, Mapping, Sequence

from torch import Tensor
from torch.fx import GraphModule

def aot_export_joint_simple(
    function: Callable[..., Sequence[Tensor]],
    args: Sequence[Tensor],
    *,
    trace_joint: int,
    decompositions: Mapping[object, Callable[..., object]],
) -> GraphModule: ...
