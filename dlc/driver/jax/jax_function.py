"""The result of `dlc.to_jax`: an entry point that JAX traces, differentiates and maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dlc.driver.jax.derived import gradient
from dlc.driver.jax.native_calls import Registered, register
from dlc.errors import CallError, Unsupported, UsageError
from dlc.runtime.arrays.dtypes import BF16, DTYPES, numpy_bfloat16
from dlc.runtime.artifact.manifest import Input
from dlc.runtime.artifact.spelling import describe
from dlc.runtime.calling.arguments import as_array
from dlc.runtime.calling.call_arguments import ArgumentReader
from dlc.runtime.calling.entry import EntryPoint
from dlc.runtime.calling.results import Results

if TYPE_CHECKING:
    import jax

Sizes = tuple[tuple[str, int], ...]
"""The sizes that no input tells, by name: static in what JAX traces."""


class JaxFunction:
    """An entry point as a function of JAX, with the arguments and results of the entry point.

    It may be used in `jit`, `grad`, `vjp`, `vmap` and `eval_shape`; the gradient, and that of the gradient,
    is dlc's, compiled when it is first asked for. `vmap` calls it once for each row. It runs on the
    processor, without Python, on JAX's own memory. Raises CallError where an argument does not fit.
    """

    def __init__(self, entry: EntryPoint) -> None:
        self.entry = entry
        self.__name__ = entry.name
        self.__doc__ = entry.doc or None
        _check_sizes_known(entry)
        self._reader = ArgumentReader(entry.entry, entry.free_dims)
        self._results = Results(entry.entry)
        self._handlers: dict[tuple[object, ...], Registered] = {}

    def __call__(self, /, *args: object, **named: object) -> object:
        values, sizes = self._reader.sorted(args, named)
        results = self.flat(values, sizes)
        return self._results.packed([results[k] for k in self._results.visible])

    def flat(self, values: Sequence[object], sizes: Mapping[str, int]) -> list[jax.Array]:
        """All results, hidden ones too, for the values of all inputs and the sizes that none tells."""
        self._check_64_bits()
        arrays = [
            _as_jax(value, item, self.entry.name)
            for value, item in zip(values, self.entry.inputs, strict=True)
        ]
        return self._traced(tuple(sorted(sizes.items())), *arrays)

    def __repr__(self) -> str:
        return f"function of JAX for {self.entry!r}"

    @cached_property
    def _traced(self) -> Callable[..., list[jax.Array]]:
        """The call as JAX traces it, once for each tuple of shapes, with its derivative."""
        import jax

        call = jax.custom_vjp(self._call, nondiff_argnums=(0,))
        call.defvjp(self._forward, self._backward)
        return jax.jit(call, static_argnums=0)

    def _call(self, sizes: Sizes, *arrays: jax.Array) -> list[jax.Array]:
        import jax

        handler = self._handler(sizes, [array.shape for array in arrays])
        results = [
            jax.ShapeDtypeStruct(storage.shape, _dtype(output.dtype))
            for storage, output in zip(handler.outputs, self.entry.entry.outputs, strict=True)
        ]
        work = jax.ShapeDtypeStruct((handler.working_bytes,), np.uint8)
        call = jax.ffi.ffi_call(
            handler.target,
            [*results, work],
            vmap_method="sequential",
            input_output_aliases=self._aliases,
        )
        return list(call(*arrays))[:-1]

    @cached_property
    def _aliases(self) -> dict[int, int]:
        """The inputs that outputs overwrite: XLA copies those that are still needed."""
        return {
            place: number for number, place in enumerate(self._results.updates) if place is not None
        }

    def _handler(self, sizes: Sizes, shapes: Sequence[tuple[int, ...]]) -> Registered:
        key = (sizes, *shapes)
        if key not in self._handlers:
            self._handlers[key] = register(self.entry, shapes, dict(sizes))
        return self._handlers[key]

    # The derivative.

    def _forward(
        self, sizes: Sizes, *arrays: jax.Array
    ) -> tuple[list[jax.Array], tuple[jax.Array, ...]]:
        # With its derivative, which the gradient of a gradient asks for.
        return self._traced(sizes, *arrays), arrays

    def _backward(
        self, sizes: Sizes, arrays: tuple[jax.Array, ...], cotangents: Sequence[jax.Array]
    ) -> tuple[jax.Array | None, ...]:
        """The gradient by each input, None for those that are not floats."""
        outputs = self.entry.entry.outputs
        floats = [
            cotangent
            for cotangent, output in zip(cotangents, outputs, strict=True)
            if _is_float(output.dtype)
        ]
        inner = self._gradient
        free = {name: size for name, size in sizes if name in inner.entry.free_dims}
        gradients = iter(inner.flat([*arrays, *floats], free))
        return tuple(
            [next(gradients) if _is_float(item.dtype) else None for item in self.entry.inputs]
        )

    @cached_property
    def _gradient(self) -> JaxFunction:
        outputs = self.entry.entry.outputs
        if not any(_is_float(each.dtype) for each in outputs):
            raise UsageError(
                f"{self.entry.name} has no float results, and so no derivative", code="D0905"
            )
        return JaxFunction(gradient(self.entry))

    def _check_64_bits(self) -> None:
        """Raise UsageError (D0935) for a type that JAX would narrow."""
        import jax

        if jax.config.jax_enable_x64:
            return
        for each in (*self.entry.inputs, *self.entry.entry.outputs):
            if each.dtype in ("f64", "i64", "u64"):
                raise UsageError(
                    f"{self.entry.name}: {each.name or 'the result'} is {describe(each)}, and JAX "
                    "narrows 64 bits to 32",
                    code="D0935",
                    help='write jax.config.update("jax_enable_x64", True) before the first array',
                )


def _check_sizes_known(entry: EntryPoint) -> None:
    """Raise Unsupported (D0725) for a result whose size is counted in the call."""
    for dim in entry.dims:
        if dim.measured is not None:
            raise Unsupported(
                f"{entry.name}: a call counts {dim.name}, and JAX needs every size before it",
                code="D0725",
                help="call the entry point itself, outside of JAX",
            )


def _as_jax(value: object, item: Input, entry: str) -> jax.Array:
    """An argument as an array of JAX, or as what JAX traces.

    Raises CallError: D0802 for another dtype, D0805 for a value that is not an array.
    """
    import jax
    import jax.numpy as jnp

    wanted = _dtype(item.dtype)
    if not isinstance(value, jax.Array):
        return jnp.asarray(as_array(value, item, entry).view(wanted))
    if value.dtype != wanted:
        raise CallError(
            f"{entry}: {item.name} is {value.dtype}{list(value.shape)}, where {describe(item)} is expected",
            code="D0802",
            help=f"write {item.name}.astype(jnp.{wanted.name})",
        )
    return value


def _dtype(name: str) -> np.dtype[np.generic]:
    """The dtype as JAX has it, which brings `ml_dtypes` along."""
    found = numpy_bfloat16() if name == BF16.name else DTYPES[name].numpy
    assert found is not None
    return found


def _is_float(dtype: str) -> bool:
    return DTYPES[dtype].kind == "f"


__all__ = ["JaxFunction"]
