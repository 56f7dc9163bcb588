from collections.abc import Callable, Mapping

from torch import Tensor

def core_aten_decompositions() -> dict[object, Callable[..., object]]: ...

decomposition_table: Mapping[object, Callable[..., Tensor]]
