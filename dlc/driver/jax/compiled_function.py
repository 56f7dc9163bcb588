"""The result of `dlc.from_jax`: a model that is called as the function is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from dlc.errors import CallError
from dlc.runtime.arrays.tensor import Tensor

if TYPE_CHECKING:
    import jax
    from jax.export import Exported

    from dlc.runtime.model import Model


class CompiledFunction:
    """A compiled function of JAX. It takes the function's arguments and returns what the function returns.

    Arrays on the CPU are passed without copies. `model` is the compiled model itself, whose entry point
    `run` takes NumPy arrays. Raises CallError where an argument does not fit.
    """

    def __init__(self, model: Model, exported: Exported) -> None:
        self.model = model
        self._run = model.entry_points["run"]
        self._in_tree = exported.in_tree
        self._out_tree = exported.out_tree
        self._kept = tuple(exported.module_kept_var_idx)
        self._dtypes = [str(exported.in_avals[index].dtype) for index in self._kept]
        self._made = [str(aval.dtype) for aval in exported.out_avals]

    def __call__(self, *args: object, **kwargs: object) -> object:
        import jax

        leaves, tree = jax.tree_util.tree_flatten((args, kwargs))
        if tree != self._in_tree:
            raise CallError(
                "the function was exported with other arguments",
                code="D0803",
                help="pass as many, nested alike, as the example arguments",
            )
        pairs = zip(self._kept, self._dtypes, strict=True)
        found = self._run(*[_argument(leaves[index], dtype) for index, dtype in pairs])
        results = cast("tuple[object, ...]", found) if isinstance(found, tuple) else (found,)
        made = [_result(each, dtype) for each, dtype in zip(results, self._made, strict=True)]
        return jax.tree_util.tree_unflatten(self._out_tree, made)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the compiled model as a `.dlc` file, which runs without JAX."""
        self.model.save(path)

    def __repr__(self) -> str:
        return f"CompiledFunction of {self.model!r}"


KEY = "key<"
"""What the dtype of keys for random numbers begins with, which are integers in a module."""


def _argument(leaf: object, dtype: str) -> object:
    """An array as an argument; numbers and arrays of other dtypes become what JAX makes of them."""
    import jax
    import jax.numpy as jnp

    if dtype.startswith(KEY):
        leaf = jax.random.key_data(leaf)
    elif str(getattr(leaf, "dtype", "")) != dtype:
        leaf = jnp.asarray(leaf)
    plain: NDArray[np.generic] = np.asarray(leaf)
    if str(plain.dtype) == "bfloat16":
        return Tensor.from_bits(plain.view(np.uint16), "bf16")
    return plain


def _result(made: object, dtype: str) -> jax.Array:
    """A result as an array of JAX of that dtype."""
    import jax
    import jax.numpy as jnp

    if isinstance(made, Tensor):
        return jnp.asarray(made.bits.view(jnp.bfloat16))
    found = jnp.asarray(made)
    return jax.random.wrap_key_data(found) if dtype.startswith(KEY) else found
