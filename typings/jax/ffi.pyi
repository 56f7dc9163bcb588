from collections.abc import Callable, Mapping, Sequence

from jax import Array, ShapeDtypeStruct

def register_ffi_target(name: str, function: object, platform: str = ...) -> None: ...
def ffi_call(
    target_name: str,
    result_shape_dtypes: Sequence[ShapeDtypeStruct],
    *,
    vmap_method: str | None = ...,
    input_output_aliases: Mapping[int, int] | None = ...,
) -> Callable[..., Sequence[Array]]: ...
