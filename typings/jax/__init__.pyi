# What dlc uses of JAX, which the gate runs without.
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

import numpy as np
from jax import export as export
from jax import ffi as ffi
from jax import numpy as numpy
from jax import random as random
from jax import tree_util as tree_util

_P = ParamSpec("_P")
_R = TypeVar("_R")

class Array:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[np.generic]: ...

class ShapeDtypeStruct:
    def __init__(self, shape: Sequence[object], dtype: object) -> None: ...
    @property
    def shape(self) -> Sequence[object]: ...
    @property
    def dtype(self) -> object: ...

class custom_vjp:
    def __init__(
        self, function: Callable[..., object], nondiff_argnums: Sequence[int] = ()
    ) -> None: ...
    def defvjp(self, forward: Callable[..., object], backward: Callable[..., object]) -> None: ...
    def __call__(self, *args: object) -> list[Array]: ...

def jit(
    function: Callable[_P, _R], *, static_argnums: int | Sequence[int] = ...
) -> Callable[_P, _R]: ...
def eval_shape(function: Callable[..., object], *args: object) -> Sequence[object]: ...

class _Config:
    jax_enable_x64: bool

config: _Config
