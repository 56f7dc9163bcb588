"""What a network of the zoo is: a module, inputs whose sizes have names, and three sizes for each name.

Runs in the peers' environment; nothing of ours is imported.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

# PyTorch is not installed where types are checked.
torch: Any = importlib.import_module("torch")
Tensor: TypeAlias = Any
Model: TypeAlias = Any
"""A module of PyTorch, or what a package makes of them."""
Array: TypeAlias = NDArray[Any]
Size: TypeAlias = int | str
"""A number, or a name, or a sum of names: `past + sequence`."""

Sizes: TypeAlias = Mapping[str, tuple[int, int, int]]
"""Three numbers for each name."""

if TYPE_CHECKING:

    class Module:
        """As much of PyTorch's as is used here."""

        def __init__(self) -> None: ...
        def __call__(self, *given: Tensor, **named: Tensor) -> Tensor: ...
        def eval(self) -> Module: ...
        def parameters(self) -> Iterator[Tensor]: ...
        def register_buffer(self, name: str, value: Tensor) -> None: ...
else:
    Module = torch.nn.Module

MIDDLE = 1
"""Which of the three sizes is exported: exporters treat a size of 1 as a number."""


@dataclass(frozen=True, slots=True)
class Input:
    """An input: its sizes, and how its elements are drawn."""

    shape: tuple[Size, ...]
    draw: Callable[[np.random.Generator, tuple[int, ...]], Array]

    def array(self, stream: np.random.Generator, sizes: Mapping[str, int]) -> Array:
        """Random elements at these sizes."""
        return self.draw(stream, tuple([number(size, sizes) for size in self.shape]))

    @property
    def axes(self) -> dict[int, str]:
        """The axes whose size has a name."""
        return {
            k: size.replace(" + ", "_and_")
            for k, size in enumerate(self.shape)
            if isinstance(size, str)
        }


def number(size: Size, sizes: Mapping[str, int]) -> int:
    """What a size is when its names have these numbers."""
    if isinstance(size, int):
        return size
    return sum([sizes[name] for name in size.split(" + ")])


def floats(*shape: Size) -> Input:
    """Normally distributed f32."""
    return Input(shape, lambda stream, sizes: stream.standard_normal(sizes).astype(np.float32))


def unit(*shape: Size) -> Input:
    """F32 between 0 and 1."""
    return Input(shape, lambda stream, sizes: stream.random(sizes, dtype=np.float32))


def integers(below: int, *shape: Size, start: int = 0) -> Input:
    """Evenly distributed i64 from `start` up to `below`."""
    return Input(shape, lambda stream, sizes: stream.integers(start, below, sizes, np.int64))


def mask(*shape: Size) -> Input:
    """I64: ones with zeros at the end of the last axis, of the second row and so on, as padding does."""

    def draw(_: np.random.Generator, sizes: tuple[int, ...]) -> Array:
        rows = np.arange(sizes[0]).reshape(-1, *[1] * (len(sizes) - 1))
        places = np.arange(sizes[-1])
        shown = np.broadcast_to(places < np.maximum(sizes[-1] - rows, 1), sizes)
        return np.array(shown, np.int64)

    return Input(shape, draw)


@dataclass(frozen=True, slots=True)
class Network:
    """A module in evaluation mode, called with its inputs in this order.

    `sizes` has three numbers for each name that a shape of an input uses.
    """

    module: Module
    inputs: Mapping[str, Input]
    sizes: Sizes

    def given(self, which: int) -> dict[str, Array]:
        """The inputs at the smallest (0), the exported (1) or the largest size (2)."""
        return drawn(self.inputs, self.sizes, which)


def drawn(inputs: Mapping[str, Input], sizes: Sizes, which: int) -> dict[str, Array]:
    """Random inputs at one of the three sizes, the same at each call."""
    stream = np.random.default_rng(which)
    numbers = {name: each[which] for name, each in sizes.items()}
    return {name: each.array(stream, numbers) for name, each in inputs.items()}


CATALOGUE: dict[str, Callable[[], Network]] = {}
"""Every network by name; calling one makes its module with random weights."""


def network(make: Callable[[], Network]) -> Callable[[], Network]:
    """Enter a function into the catalogue by its name."""
    return add(make.__name__, make)


def add(name: str, make: Callable[[], Network]) -> Callable[[], Network]:
    """Enter a function into the catalogue."""
    assert name not in CATALOGUE, name
    CATALOGUE[name] = make
    return make


class Flat(Module):
    """A module whose `forward` takes all inputs as one tuple: exporters want to know."""


class Named(Flat):
    """Calls a module with named arguments and gives its tensors as a tuple, as users of exporters do."""

    def __init__(
        self, module: Model, names: Sequence[str], constants: Mapping[str, object] | None = None
    ) -> None:
        super().__init__()
        self.module = module
        self.names = tuple(names)
        self.constants = dict(constants or {})

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        named = dict(zip(self.names, given, strict=True))
        return tuple(tensors(self.module(**named, **self.constants)))


def tensors(value: Model) -> Iterator[Tensor]:
    """The tensors in what a module gives: tuples, lists and dictionaries in their order."""
    if isinstance(value, torch.Tensor):
        yield value
        return
    inside: Iterable[Any] = ()
    if isinstance(value, Mapping):
        inside = cast("Mapping[str, Any]", value).values()
    elif isinstance(value, list | tuple):
        inside = cast("Sequence[Any]", value)
    for each in inside:
        yield from tensors(each)
