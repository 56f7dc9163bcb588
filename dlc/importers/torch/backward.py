"""The backward pass of a program as PyTorch itself derives it: a graph of its operators like any other.

The program runs on tensors without data, PyTorch's autograd differentiates it, and AOTAutograd writes down
what both did. So every derivative is PyTorch's, also at kinks and where it is infinite, and an input that
the results do not depend on has none. The forward pass is a part of the graph, and nothing is kept of one
between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, cast

from dlc.errors import DlcError, Unsupported
from dlc.importers.identifiers import Identifiers
from dlc.importers.torch.decompositions import before_autograd, decompositions
from dlc.importers.torch.exporting import Exported, quiet
from dlc.importers.torch.facts import Graph, Input, Result
from dlc.importers.torch.reading import Reader, constants_of, outputs_of
from dlc.ir.dims import names, symbol

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import GraphModule


class Backward:
    """Derives the backward pass of an exported program, for the results that a loss depends on.

    `differentiable` are the numbers of the results of its graph that have a gradient, `wrt` those of the
    inputs that gradients are asked for. Raises Unsupported (D0717) where PyTorch does not derive a program.
    """

    def __init__(self, read: Exported) -> None:
        import torch

        self._read = read
        self._graph = read.graph
        self._values = _placeholders(read)
        self.wrt = tuple([k for k, each in enumerate(read.graph.inputs) if each.name in read.wrt])
        with _deriving(read), self._mode(), torch.enable_grad():
            made = self._results(list(self._values.values()))
            self.differentiable = tuple([k for k, each in made.items() if each.requires_grad])
            self._shaped = {k: made[k].detach() for k in self.differentiable}

    @contextmanager
    def _mode(self) -> Generator[None]:
        """Make tensors without data; what is counted meanwhile needs no place in PyTorch's books."""
        from torch._guards import detect_fake_mode

        mode = detect_fake_mode(list(self._values.values()))
        with mode, mode.shape_env.ignore_fresh_unbacked_symbols():
            yield

    def graph(self, given: Sequence[int]) -> tuple[Graph, tuple[int, ...]]:
        """The backward pass, given cotangents of these results, and the inputs that it differentiates by.

        The graph takes the inputs of the program's graph, then a cotangent for each of the results, and
        makes a cotangent for each of the inputs whose numbers are the second result: those among `wrt`
        that the results depend on.
        """
        from torch._functorch.aot_autograd import aot_export_joint_simple

        reached: list[int] = []

        def joint(*flat: Tensor) -> list[Tensor]:
            values, cotangents = flat[: len(self._values)], flat[len(self._values) :]
            found, by_number = self._differentiated(values, given, cotangents)
            reached[:] = by_number
            return found

        with _deriving(self._read), self._mode():
            flat = [*map(_plain, self._values.values()), *[self._shaped[k] for k in given]]
            traced = aot_export_joint_simple(
                joint, flat, trace_joint=False, decompositions=decompositions()
            )
        return self._facts(traced, given, reached), tuple(reached)

    def _differentiated(
        self, values: Sequence[Tensor], given: Sequence[int], cotangents: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[int]]:
        """The results of the program, then the cotangents of inputs; and the numbers of these inputs.

        The results are there so that all random numbers of the forward pass are drawn again.
        """
        import torch

        with torch.enable_grad():
            inputs = self._inputs(values)
            made = self._results(inputs)
            names = list(self._values)
            wanted = {k: inputs[names.index(self._graph.inputs[k].name)] for k in self.wrt}
            counted = [_counted(each, made[k]) for each, k in zip(cotangents, given, strict=True)]
            found = torch.autograd.grad(
                [made[k] for k in given], [*wanted.values()], counted, allow_unused=True
            )
        by_number = {k: each for k, each in zip(wanted, found, strict=True) if each is not None}
        results = [*made.values(), *by_number.values()]
        # Copies, since AOTAutograd refuses results that are inputs or views of them.
        return [each.detach().clone() for each in results], [*by_number]

    def _inputs(self, values: Sequence[Tensor]) -> list[Tensor]:
        """What the program is given: copies of what it changes, and leaves of what has a gradient."""
        states = {each.name for each in self._graph.inputs if each.label in self._read.states}
        return [
            value.detach().requires_grad_()
            if name in self._read.wrt
            else value.clone()
            if name in states
            else value
            for name, value in zip(self._values, values, strict=True)
        ]

    def _results(self, inputs: Sequence[Tensor]) -> dict[int, Tensor]:
        """The results of the program that are tensors, by their numbers in its graph."""
        import torch

        program = self._read.source
        tensors = dict(zip(self._values, inputs, strict=True))
        given = [
            tensors.get(node.name, node.meta.get("val"))
            for node in program.graph.nodes
            if node.op == "placeholder"
        ]
        made = cast("Sequence[object]", _running(program.graph_module)(*given))
        return {
            number: each
            for each, (number, _) in zip(
                made[-len(self._read.outputs) :], self._read.outputs, strict=True
            )
            if number is not None and isinstance(each, torch.Tensor)
        }

    def _facts(self, traced: GraphModule, given: Sequence[int], reached: Sequence[int]) -> Graph:
        """A traced graph as facts: its inputs are those of the program, then the cotangents."""
        forward = self._graph
        reader = Reader(self._read.sizes, forward.file, forward.bounds, lines=len(forward.nodes))
        taken = [node for node in traced.graph.nodes if node.op == "placeholder"]
        nodes = dict(zip(self._values, taken, strict=False))
        called = Identifiers("x", taken=(each.label for each in forward.inputs))
        cotangents: list[Input] = []
        lengths = Identifiers("size", taken=(*forward.bounds, *self._graph_names()))
        bounds = {**forward.bounds}
        for node, number in zip(taken[len(nodes) :], given, strict=True):
            type = reader.type(node.meta["val"])
            assert type is not None
            label = called.of(f"d_{forward.results[number].label}")
            shape = [*type.shape]
            for axis, size in enumerate(shape):
                if names(size) - forward.bounds.keys():  # counted in the forward pass
                    length = lengths.of(f"{label}_{axis}")
                    shape[axis], bounds[length] = symbol(length), (0, None)
            type = type.with_shape(tuple(shape))
            cotangents.append(Input(node.name, label, type, tuple(range(type.rank))))
        made = outputs_of(traced)
        results = [
            Result(reader.argument(each), f"d_{forward.inputs[k].label}")
            for each, k in zip(made[len(made) - len(reached) :], reached, strict=True)
        ]
        weights = [
            replace(each, name=nodes[each.name].name)
            for each in forward.weights
            if each.name in nodes
        ]
        return Graph(
            forward.name,
            forward.file,
            (*[replace(each, name=nodes[each.name].name) for each in forward.inputs], *cotangents),
            (*weights, *constants_of(traced, reader)),
            reader.nodes(traced),
            tuple(results),
            bounds,
        )

    def _graph_names(self) -> list[str]:
        """What inputs and results of the graph are called."""
        graph = self._graph
        return [*[each.label for each in graph.inputs], *[each.label for each in graph.results]]


def _counted(cotangent: Tensor, result: Tensor) -> Tensor:
    """The cotangent in the sizes of a result that were counted on the way to it, here once more."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return part_operator()(cotangent, result) if free_unbacked_symbols(result) else cotangent


@cache
def part_operator() -> Callable[[Tensor, Tensor], Tensor]:
    """The operator `dlc.counted_part`: the first elements of a tensor, as many as another one has."""
    import torch

    def computed(source: Tensor, like: Tensor) -> Tensor:
        raise NotImplementedError("only graphs have this operator")

    def shaped(source: Tensor, like: Tensor) -> Tensor:
        return source.new_empty(like.shape)

    schema = "(Tensor source, Tensor like) -> Tensor"
    made = torch.library.custom_op("dlc::counted_part", computed, mutates_args=(), schema=schema)
    made.register_fake(shaped)
    return cast("Callable[[Tensor, Tensor], Tensor]", torch.ops.dlc.counted_part.default)


def _placeholders(read: Exported) -> dict[str, Tensor]:
    """The tensors without data that a program takes, by name; those of `wrt` are leaves with a gradient."""
    import torch

    found: dict[str, Tensor] = {}
    for node in read.source.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and isinstance(value, torch.Tensor):
            found[node.name] = _plain(value).requires_grad_(node.name in read.wrt)
    return found


def _running(module: GraphModule) -> Callable[..., object]:
    """The graph as a function, in which operators whose derivative is none that dlc has are taken apart."""
    from torch.fx import Interpreter

    parts = before_autograd()

    class Run(Interpreter):
        def call_function(
            self, target: object, args: Sequence[object], kwargs: Mapping[str, object]
        ) -> object:
            return super().call_function(parts.get(target, target), args, kwargs)

    return Run(module).run


def _plain(value: Tensor) -> Tensor:
    return value.detach()


@contextmanager
def _deriving(read: Exported) -> Generator[None]:
    """Turn what PyTorch raises into Unsupported (D0717)."""
    try:
        with quiet():
            yield
    except DlcError:
        raise
    except Exception as error:  # what PyTorch raises here has no common class
        told = str(error).strip().splitlines()
        raise Unsupported(
            f"PyTorch does not derive the backward pass of {read.graph.name}: "
            f"{told[0] if told else error!r}",
            code="D0717",
            help="torch.compile(module, backend='dlc') takes such a module in parts",
        ) from error
