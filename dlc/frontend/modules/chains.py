"""`chain(a, b, ...)`: layers one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlc.frontend.elaboration.evaluator import Evaluator, attributes_of, calls
from dlc.frontend.elaboration.values import Argument, Arguments, Callee, Datum
from dlc.runtime.system.counts import whole_number
from dlc.text.model import ast

__all__ = ["Chain"]


@dataclass(frozen=True, slots=True, eq=False)
class Chain(Callee):
    """`chain(a, b, ...)`: layers one after the other."""

    layers: tuple[Datum, ...]
    device: str | None = None
    """Their device, if the chain was placed."""
    size: int = field(init=False)
    """The number of layers, those of nested chains included."""

    def __post_init__(self) -> None:
        sizes = [layer.size if isinstance(layer, Chain) else 1 for layer in self.layers]
        object.__setattr__(self, "size", sum(sizes))

    @property
    def called(self) -> str:
        return f"a chain of {len(self.layers)} layers"

    @property
    def parameter_names(self) -> tuple[str, ...]:
        first = self.layers[0] if self.layers else None
        return first.parameter_names[:1] if isinstance(first, Callee) else ("x",)


@calls(Chain)
def _call_chain(ev: Evaluator, chain: Chain, arguments: Arguments) -> Datum:
    if len(arguments.positional) + len(arguments.named) != 1:
        raise ev.at.fail(
            "D0208", "a chain takes one argument", place=arguments.source.place(arguments.span)
        )
    ev.at.count(2)
    value = (*arguments.positional, *arguments.named.values())[0].value
    with ev.at.on(chain.device):
        for layer in chain.layers:
            inner = Arguments(
                (Argument(value, arguments.span),), {}, arguments.source, arguments.span
            )
            value = ev.call(layer, inner)
    return value


@attributes_of(Chain)
def _layer_of(ev: Evaluator, chain: Chain, node: ast.Attribute) -> Datum:
    number = whole_number(node.name)
    if number is not None and number < len(chain.layers):
        return chain.layers[number]
    raise ev.at.fail(
        "D0206",
        f"{chain.called} has no {node.name}",
        node.name_span,
        help=f"its layers are 0 to {len(chain.layers) - 1}",
    )
