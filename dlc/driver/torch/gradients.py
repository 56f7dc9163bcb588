"""The compiled backward passes of one module: one for each choice of results that a loss depends on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlc.driver.compile.settings import Settings
from dlc.driver.torch.compiling import compiled
from dlc.driver.torch.tensors import argument, results_of, tensor_of
from dlc.importers.torch.backward import Backward
from dlc.importers.torch.facts import Graph
from dlc.importers.torch.importing import GRADIENTS, SEED
from dlc.runtime.calling.entry import EntryPoint
from dlc.runtime.model import Model

if TYPE_CHECKING:
    import torch


class Gradients:
    """The backward passes of a program, of which that for all results is an entry point of its model.

    `differentiable` are the numbers of the results that have a gradient. The pass for other choices of them
    is compiled when it is asked for first, so what a loss leaves out has no part in it.
    """

    def __init__(self, backward: Backward, settings: Settings, threads: int | None) -> None:
        self.wrt = frozenset(backward.wrt)
        self.differentiable = backward.differentiable
        self._backward = backward
        self._settings, self._threads = settings, threads
        self._known: dict[tuple[int, ...], tuple[EntryPoint, tuple[int, ...]]] = {}
        self.whole, self._reached = (
            backward.graph(self.differentiable) if self.differentiable else (None, ())
        )

    whole: Graph | None
    """The backward pass for all results; None where none has a gradient."""

    def take(self, model: Model) -> None:
        """Use the entry point of the model that was compiled from `whole`."""
        if self.whole is not None:
            entry = model.entry_points[GRADIENTS]
            self._known[self.differentiable] = entry, self._reached

    def __call__(
        self,
        tensors: Sequence[torch.Tensor],
        seed: Sequence[int],
        of_results: Sequence[torch.Tensor | None],
    ) -> list[torch.Tensor | None]:
        """The cotangents of the tensors, None for those that the given results do not depend on."""
        given = tuple([k for k, each in enumerate(of_results) if each is not None])
        entry, reached = self._known.get(given) or self._compiled(given)
        cotangents = [argument(each) for each in of_results if each is not None]
        draws = any(each.name == SEED for each in entry.inputs)
        arguments = [*map(argument, tensors), *cotangents, *(seed if draws else ())]
        made = results_of(entry, arguments) if reached else ()
        found = dict(zip(reached, map(tensor_of, made), strict=True))
        return [found.get(k) for k in range(len(tensors))]

    def _compiled(self, given: tuple[int, ...]) -> tuple[EntryPoint, tuple[int, ...]]:
        graph, reached = self._backward.graph(given)
        model, _ = compiled(graph, self._settings, self._threads)
        self._known[given] = found = model.entry_points["run"], reached
        return found
