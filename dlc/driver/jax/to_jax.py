"""`dlc.to_jax`: from a compiled entry point to a function of JAX."""

from __future__ import annotations

from typing import cast

from dlc.driver.jax.jax_function import JaxFunction
from dlc.driver.jax.parameter_function import ParameterFunction
from dlc.errors import Unsupported, UsageError, memory_needed
from dlc.errors.boundary import without_frames
from dlc.errors.options import in_python
from dlc.importers.stablehlo.opening import jax_needed
from dlc.runtime.calling.entry import EntryPoint


@without_frames
@in_python()
@memory_needed
def to_jax(entry: EntryPoint, *, params: bool = False) -> JaxFunction | ParameterFunction:
    """An entry point of a model, such as `model.predict`, as a function of JAX.

    It takes and returns arrays of JAX, and may be used in `jit`, `grad`, `vjp`, `vmap` (which calls it for
    one row after the other) and `eval_shape`. With `params=True` its first argument are the weights, by
    their paths, such as `dict(model.weights)`; gradients by them train the model, and
    `model.with_weights` takes them back. Gradients are compiled when they are first asked for, from the
    graph that every model carries. Raises UsageError where JAX is not installed (D0921), the model has no
    graph (D0905) or has 64-bit types that JAX is not set to (D0935), Unsupported for sizes that only a
    call knows (D0725), for `inout` parameters (D0726) and for code of a GPU (D0714).
    """
    jax_needed()
    if not isinstance(cast("object", entry), EntryPoint):
        raise UsageError(
            f"dlc.to_jax takes an entry point, found a {type(entry).__name__}",
            code="D0902",
            help="write dlc.to_jax(model.predict)",
        )
    if inouts := entry.entry.inouts:
        raise Unsupported(
            f"{entry.name} changes {', '.join(inouts)} in place, and arrays of JAX never change",
            code="D0726",
            help="write another entry point, which returns what they become",
        )
    return ParameterFunction(entry) if params else JaxFunction(entry)


__all__ = ["to_jax"]
