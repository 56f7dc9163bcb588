# What dlc uses of JAX, which the gate runs without.
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

import numpy as np
from jax import ffi as ffi
from jax import numpy as numpy

_P = ParamSpec("_P")
_R = TypeVar("_R")

class Array:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[np.generic]: ...

class ShapeDtypeStruct:
    def __init__(self, shape: Sequence[int], dtype: object) -> None: ...

class custom_vjp:
    def __init__(
        self, function: Callable[..., object], nondiff_argnums: Sequence[int] = ()
    ) -> None: ...
    def defvjp(self, forward: Callable[..., object], backward: Callable[..., object]) -> None: ...
    def __call__(self, *args: object) -> list[Array]: ...

def jit(
    function: Callable[_P, _R], *, static_argnums: int | Sequence[int] = ...
) -> Callable[_P, _R]: ...

class _Config:
    jax_enable_x64: bool

config: _Config
