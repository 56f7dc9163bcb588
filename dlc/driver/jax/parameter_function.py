"""An entry point as a function of JAX that takes the weights as its first argument."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from dlc.driver.jax.derived import with_weight_arguments
from dlc.driver.jax.jax_function import JaxFunction
from dlc.errors import CallError
from dlc.errors.suggest import did_you_mean
from dlc.runtime.calling.call_arguments import ArgumentReader
from dlc.runtime.calling.entry import EntryPoint
from dlc.runtime.calling.results import Results
from dlc.runtime.system.buffers import as_bytes
from dlc.runtime.weights.model_weights import WeightViews


class ParameterFunction:
    """The same with the weights as first argument: a mapping from their paths to arrays.

    Weights that it leaves out are those of the model.
    """

    def __init__(self, entry: EntryPoint) -> None:
        self.entry = entry
        self.__name__ = entry.name
        self.__doc__ = entry.doc or None
        self._function = JaxFunction(with_weight_arguments(entry))
        self._reader = ArgumentReader(entry.entry, entry.free_dims)
        self._results = Results(entry.entry)
        self._paths = [item.name for item in self._function.entry.inputs[len(entry.inputs) :]]
        artifact = entry.artifact
        self._own = WeightViews(artifact.manifest.weights, as_bytes(artifact.section("weights")))

    def __call__(self, params: Mapping[str, object], /, *args: object, **named: object) -> object:
        self._check(params)
        values, sizes = self._reader.sorted(args, named)
        weights = [params[p] if p in params else self._own[p] for p in self._paths]
        results = self._function.flat([*values, *weights], sizes)
        return self._results.packed([results[k] for k in self._results.visible])

    def __repr__(self) -> str:
        return f"function of JAX for {self.entry!r}, with its weights as first argument"

    def _check(self, params: object) -> None:
        if not isinstance(params, Mapping):
            raise CallError(
                f"{self.entry.name}: the first argument is a {type(params).__name__}, where weights "
                "by their paths are expected",
                code="D0805",
                help="pass dict(model.weights)",
            )
        for path in cast("Mapping[object, object]", params):
            if path not in self._own:
                raise CallError(
                    f"{self.entry.name}: the model has no weight {path!r}",
                    code="D0801",
                    help=did_you_mean(str(path), self._own) or f"it has {', '.join(self._own)}",
                )


__all__ = ["ParameterFunction"]
