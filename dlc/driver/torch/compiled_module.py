"""The result of `dlc.from_torch`: a model that is called as the module is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, cast

from dlc.driver.torch.differentiable import differentiable
from dlc.driver.torch.tensors import argument, results_of, tensor_of
from dlc.errors import CallError
from dlc.importers.torch.reading import DTYPES

if TYPE_CHECKING:
    import torch

    from dlc.driver.torch.gradients import Gradients
    from dlc.importers.torch.exporting import Exported
    from dlc.runtime.model import Model


class CompiledModule:
    """A compiled module of PyTorch. It takes the module's arguments and returns what the module returns.

    Tensors are passed and returned without copies. `model` is the compiled model itself, whose entry point
    `run` takes NumPy arrays. `states` are the buffers of the module that a call changes, in place, such as
    the running means of a batch norm in training mode: they are further arguments and results of `run`.
    Results have a gradient if the module was compiled with `gradients=True`; then `parameters` are the last
    arguments of `run`, and the entry point `gradients` computes the backward pass. Each call takes the
    states and parameters that the module has then. Raises CallError where an argument does not fit.
    """

    def __init__(
        self,
        model: Model,
        exported: Exported,
        gradients: Gradients | None = None,
        *,
        module: torch.nn.Module | None = None,
        draws: bool,
    ) -> None:
        self.model = model
        self._exported = exported
        self._run = model.entry_points["run"]
        self._draws = draws
        self._gradients = gradients
        self._module = module
        self._held = cast(
            "dict[str, torch.Tensor]", {**exported.program.constants, **exported.program.state_dict}
        )

    @property
    def states(self) -> dict[str, torch.Tensor]:
        """The buffers of the module that a call changes, by path."""
        return {path: self._tensor(path) for path in self._exported.states}

    @property
    def parameters(self) -> dict[str, torch.Tensor]:
        """The parameters that are arguments of each call, by path."""
        return {path: self._tensor(path) for path in self._exported.trained}

    def _tensor(self, path: str) -> torch.Tensor:
        """What the module has there now, which may be another tensor than when it was compiled."""
        if self._module is None:
            return self._held[path]
        found = reduce(_member, path.split("."), cast("object", self._module))
        if hasattr(found, "detach"):
            return cast("torch.Tensor", found)
        raise CallError(
            f"the module has no tensor {path} any more, which it was compiled with",
            code="D0805",
            help="compile the module again",
        )

    def __call__(self, *args: object, **kwargs: object) -> object:
        import torch
        from torch.utils import _pytree

        exported = self._exported
        given = self._tensors(leaves_of(exported.program, args, kwargs))
        held, parameters = self.states, [*self.parameters.values()]
        states = [*held.values()]
        seed = (int(torch.randint(0, 1 << 62, ()).item()),) if self._draws else ()
        if self._gradients is not None and torch.is_grad_enabled():
            kept = [state.clone() for state in states]
            tensors = [*given, *kept, *parameters]
            results = differentiable(
                self._results, self._gradients, self._gradients.differentiable, tensors, seed
            )
        else:
            results = self._results([*given, *states, *parameters], seed)
        for path, number in exported.states.items():
            held[path].copy_(results[number].detach())
        leaves = [
            constant if number is None else results[number] for number, constant in exported.outputs
        ]
        return _pytree.tree_unflatten(leaves, exported.program.call_spec.out_spec)

    def _tensors(self, leaves: Sequence[object]) -> list[torch.Tensor]:
        """Those leaves of the arguments that are inputs."""
        import torch

        found: list[torch.Tensor] = []
        wrt = self._gradients and self._gradients.wrt
        for k, number in enumerate(self._exported.inputs):
            declared, value = self._run.inputs[k], leaves[number]
            if not isinstance(value, torch.Tensor):
                raise CallError(
                    f"{declared.name} is a {type(value).__name__}, where a tensor is expected",
                    code="D0805",
                )
            given = DTYPES.get(str(value.dtype))
            if given is not None and given.name != declared.dtype:
                wanted = next(
                    name for name, dtype in DTYPES.items() if dtype.name == declared.dtype
                )
                raise CallError(
                    f"{declared.name} is of {value.dtype}, where {wanted} is expected",
                    code="D0802",
                    help=f"write {declared.name}.to({wanted})",
                )
            if wrt is not None and value.requires_grad and k not in wrt:
                raise CallError(
                    f"{declared.name} requires a gradient, which its example did not",
                    code="D0805",
                    help="compile with an example that requires one, or pass the tensor detached",
                )
            found.append(value)
        return found

    def _results(self, tensors: Sequence[torch.Tensor], seed: Sequence[int]) -> list[torch.Tensor]:
        """What `run` computes."""
        given = [argument(each) for each in tensors]
        return [tensor_of(each) for each in results_of(self._run, [*given, *seed])]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the compiled model as a `.dlc` file, which runs without PyTorch."""
        self.model.save(path)

    def __repr__(self) -> str:
        return f"CompiledModule of {self.model!r}"


def _member(owner: object, name: str) -> object:
    return getattr(owner, name, None)


def requiring_gradients(leaves: Sequence[object]) -> tuple[int, ...]:
    """The numbers of the tensors that require a gradient."""
    return tuple([k for k, leaf in enumerate(leaves) if getattr(leaf, "requires_grad", False)])


def leaves_of(program: object, args: tuple[object, ...], kwargs: dict[str, object]) -> list[object]:
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
