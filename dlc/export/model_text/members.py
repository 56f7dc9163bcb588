"""The names in a body and in all braces in it: the members of its module, and values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dlc.dialects.array import tensor_type
from dlc.export.model_text.expressions import declared, setting, type_text
from dlc.export.model_text.names import RESERVED, Names, brief, readable, short_name
from dlc.export.model_text.terms import Item, Layer, Weight
from dlc.frontend.builtins import BUILTINS
from dlc.ir.core import Value


@dataclass(frozen=True, slots=True)
class Member:
    """A declaration of a module: `use`, `param` or `state`."""

    text: str
    remark: str


class Members:
    """Declares weights and layers at their first use, and gives values their names, each once."""

    def __init__(
        self,
        given: Mapping[Value, str],
        weights: Mapping[Value, Weight],
        shapes: Mapping[Value, Sequence[Item]] | None,
        scope: Iterable[str],
        *,
        named: bool = False,
    ) -> None:
        self.declared: list[Member] = []
        self.paths: dict[str, Weight] = {}
        """The weights by their path in the module."""
        self.shapes = shapes
        self.named = named
        """Whether names say where in the network something stands: no remark repeats it."""
        self._weights = weights
        self._called = dict(given)
        self._layers: dict[Layer, str] = {}
        self._names = Names([*given.values(), *scope])

    def known(self, value: Value) -> str | None:
        """The name of a value, if it has one or is a weight."""
        if value not in self._called and value in self._weights:
            self._called[value] = self._param(value)
        return self._called.get(value)

    def give(self, value: Value, otherwise: str) -> str:
        """A name for a value: its own if that is one for people."""
        # PyTorch has no names of values: those of its exporters are of operators.
        name = otherwise if self.named else readable(value.name, otherwise)
        self._called[value] = self._names.of(name)
        return self._called[value]

    def call(self, value: Value, text: str) -> None:
        """Write a value like this from now on."""
        self._called[value] = text

    def _param(self, value: Value) -> str:
        weight = self._weights[value]
        told = self.shapes is None or self.named
        name = self._names.of(readable(weight.origin, "w") if told else "w")
        kind = "param" if weight.trained else "state"
        type = type_text(tensor_type(value))
        if self.shapes is not None:
            sizes = ", ".join(setting(item) for item in self.shapes[value])
            type = f"{weight.dtype.name}[{sizes}]"
        remark = "" if self.named else brief(weight.origin)
        self.declared.append(Member(f"{kind} {name}: {type}", remark))
        self.paths[name] = weight
        return name

    def layer(self, layer: Layer) -> str:
        """The name of a layer."""
        found = self._layers.get(layer)
        if found is not None:
            return found
        name = self._name_of(layer)
        self._layers[layer] = name
        origins = [brief(weight.origin) for _, weight in layer.weights if weight.origin]
        remark = ", ".join(origins) if len(origins) <= 3 else f"{origins[0]} ... {origins[-1]}"
        times = f"{layer.count} * " if layer.count else ""
        text = f"use {name} = {times}{declared(layer.module, layer.settings)}"
        self.declared.append(Member(text, "" if self.named else remark))
        for path, weight in layer.weights:
            self.paths[f"{name}.{path}"] = weight
        return name

    def _name_of(self, layer: Layer) -> str:
        """The name that it had, or one by its kind with a number.

        No member hides a function of the language.
        """
        is_class = layer.name[:1].isupper()
        wanted = short_name(layer.module) if is_class or not layer.name else layer.name
        if not layer.name or wanted in BUILTINS:
            return self._names.numbered(wanted)
        return self._names.of(f"{wanted}_" if wanted in RESERVED else wanted)

    def fresh(self, wanted: str) -> str:
        """A name for what is not a value of the graph."""
        return self._names.of(wanted)
