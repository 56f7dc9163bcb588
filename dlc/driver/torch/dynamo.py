"""The backend `dlc` of `torch.compile`: graphs of TorchDynamo, for inference and for training.

AOTAutograd makes a graph free of mutation, with its derivative beside it where one is asked for; dlc
compiles each of both. Parameters are inputs of every call, so an optimizer may change them in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from dlc.driver.compile.settings import Settings
from dlc.driver.python_arguments import CONV, of_kind, whole
from dlc.driver.torch.compiling import compiled
from dlc.driver.torch.tensors import argument, results_of, tensor_of
from dlc.errors import UsageError
from dlc.importers.torch.decompositions import decompositions
from dlc.importers.torch.exporting import torch_needed
from dlc.importers.torch.facts import Ref
from dlc.importers.torch.traced import Passed, Traced, read_traced

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule

    from dlc.runtime.calling.entry import EntryPoint

OPTIONS = frozenset({"level", "matmul", "conv"})
"""What `torch.compile(..., options={...})` may say."""


def backend(
    module: GraphModule, inputs: Sequence[object], options: Mapping[str, object] | None = None
) -> Callable[..., object]:
    """Compile a graph of TorchDynamo: what `torch.compile(model, backend="dlc")` calls.

    `options` may have `level` (0 to 3), `matmul` and `conv`, as `dlc.compile` has them. Raises Unsupported
    with every operator that is not imported.
    """
    torch_needed()
    from torch._dynamo.backends.common import aot_autograd

    settings = _settings(options or {})

    def compile_graph(graph: GraphModule, examples: Sequence[object]) -> Callable[..., object]:
        return _boxed(_call_of(graph, settings))

    make = aot_autograd(
        fw_compiler=compile_graph, bw_compiler=compile_graph, decompositions=decompositions()
    )
    return make(module, inputs)


def _settings(options: Mapping[str, object]) -> Settings:
    unknown = sorted(options.keys() - OPTIONS)
    if unknown:
        raise UsageError(
            f"the backend dlc has no option {unknown[0]}",
            code="D0901",
            help=f"it has {', '.join(sorted(OPTIONS))}",
        )
    usual = Settings()
    return Settings(
        whole("level", options.get("level", usual.level)),
        matmul=of_kind("matmul", options.get("matmul", usual.matmul), str, '"blas" or "generated"'),
        conv=of_kind("conv", options.get("conv", usual.conv), str, CONV),
    )


def _boxed(call: Callable[[Sequence[object]], list[object]]) -> Callable[..., object]:
    """A function that AOTAutograd calls with one list, which it may empty."""

    def boxed(arguments: list[object]) -> list[object]:
        given = list(arguments)
        arguments.clear()
        return call(given)

    boxed._boxed_call = True  # pyright: ignore[reportFunctionMemberAccess]
    return boxed


def _call_of(graph: GraphModule, settings: Settings) -> Callable[[Sequence[object]], list[object]]:
    """The compiled graph as a function from its inputs to its results."""
    traced = read_traced(graph)
    if not any(number is not None for number, _ in traced.outputs):
        return lambda given: [constant_of(constant, given) for _, constant in traced.outputs]
    model, imported = compiled(traced.graph, settings)
    entry = model.entry_points["run"]
    return lambda given: _called(entry, traced, given, draws=imported.draws)


def constant_of(constant: object, given: Sequence[object]) -> object:
    """A result that is a constant, or one of the inputs by its number."""
    return given[constant.number] if isinstance(constant, Passed) else constant


def _called(
    entry: EntryPoint, traced: Traced, given: Sequence[object], *, draws: bool
) -> list[object]:
    import torch

    arguments = [
        argument(cast("torch.Tensor", given[number]), declared.order)
        for number, declared in zip(traced.inputs, traced.graph.inputs, strict=True)
    ]
    if draws:
        arguments.append(int(torch.randint(0, 1 << 62, ()).item()))
    free = entry.free_dims
    sizes = {name: given[number] for name, number in traced.sizes if name in free}
    found = results_of(entry, arguments, sizes)
    return [
        constant_of(constant, given) if number is None else _made(traced, number, found[number])
        for number, constant in traced.outputs
    ]


def _made(traced: Traced, number: int, result: object) -> object:
    """A result as a tensor, or as the size that it is."""
    declared = traced.graph.results[number]
    return (
        tensor_of(result, declared.order) if isinstance(declared.value, Ref) else int(str(result))
    )
