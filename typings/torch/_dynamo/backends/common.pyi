from collections.abc import Callable, Mapping

def aot_autograd(
    *,
    fw_compiler: Callable[..., object],
    bw_compiler: Callable[..., object],
    decompositions: Mapping[object, Callable[..., object]],
) -> Callable[..., Callable[..., object]]: ...
