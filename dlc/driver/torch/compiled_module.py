"""What `dlc.from_torch` gives: a model that is called as the module is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from dlc.driver.torch.tensors import argument, results_of, tensor_of
from dlc.errors import CallError

if TYPE_CHECKING:
    import torch

    from dlc.importers.torch.exporting import Exported
    from dlc.runtime.model import Model


class CompiledModule:
    """A compiled module of PyTorch. It takes the module's arguments and returns what the module returns.

    Tensors are passed and returned without copies; results have no gradient. `model` is the compiled model
    itself, whose entry point `run` takes NumPy arrays. `states` are the buffers of the module that a call
    changes, in place, such as the running means of a batch norm in training mode: they are further
    arguments and results of `run`. Raises CallError where an argument does not fit.
    """

    def __init__(self, model: Model, exported: Exported, *, draws: bool) -> None:
        self.model = model
        self._exported = exported
        self._run = model.entry_points["run"]
        self._draws = draws
        held = {**exported.program.constants, **exported.program.state_dict}
        self.states = {path: cast("torch.Tensor", held[path]) for path in exported.states}

    def __call__(self, *args: object, **kwargs: object) -> object:
        import torch
        from torch.utils import _pytree

        exported = self._exported
        given = _leaves_of(exported.program, args, kwargs)
        arguments: list[object] = []
        for number in exported.inputs:
            value = given[number]
            if not isinstance(value, torch.Tensor):
                raise CallError(
                    f"{self._run.inputs[len(arguments)].name} is a {type(value).__name__}, "
                    "where a tensor is expected",
                    code="D0805",
                )
            arguments.append(argument(value))
        arguments += [argument(state) for state in self.states.values()]
        if self._draws:
            arguments.append(int(torch.randint(0, 1 << 62, ()).item()))
        results = [tensor_of(each) for each in results_of(self._run, arguments)]
        for path, number in exported.states.items():
            self.states[path].copy_(results[number])
        leaves = [
            constant if number is None else results[number] for number, constant in exported.outputs
        ]
        return _pytree.tree_unflatten(leaves, exported.program.call_spec.out_spec)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the compiled model as a `.dlc` file, which runs without PyTorch."""
        self.model.save(path)

    def __repr__(self) -> str:
        return f"CompiledModule of {self.model!r}"


def _leaves_of(
    program: object, args: tuple[object, ...], kwargs: dict[str, object]
) -> list[object]:
    """The leaves of a call's arguments, in the order that the program was exported with.

    Raises CallError (D0803) where they are nested in another way.
    """
    from torch.utils import _pytree

    spec = getattr(program, "call_spec").in_spec  # noqa: B009
    order = [str(name) for name in spec.child(1).context]
    if {*order} == {*kwargs}:
        kwargs = {name: kwargs[name] for name in order}
    leaves, found = _pytree.tree_flatten((args, kwargs))
    if found != spec:
        raise CallError(
            "the module was exported with other arguments",
            code="D0803",
            help="pass as many, by the same names and nested alike, as the example inputs",
        )
    return leaves
