"""`dlc.from_torch`: from a module of PyTorch to a compiled model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

from dlc.driver.compile.settings import Settings
from dlc.driver.python_arguments import CONV, names_of, of_kind, whole
from dlc.driver.torch.compiled_module import CompiledModule, leaves_of, requiring_gradients
from dlc.driver.torch.compiling import compiled
from dlc.driver.torch.gradients import Gradients
from dlc.errors import UsageError, memory_needed
from dlc.errors.boundary import without_frames
from dlc.errors.options import in_python
from dlc.importers.torch.backward import Backward
from dlc.importers.torch.dynamic import Dynamic, size_names
from dlc.importers.torch.exporting import exported, read_program, torch_needed

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


@without_frames
@in_python()
@memory_needed
def from_torch(
    module: torch.nn.Module | ExportedProgram,
    args: object = (),
    kwargs: Mapping[str, object] | None = None,
    *,
    dynamic: Dynamic = None,
    gradients: bool = False,
    level: int = 2,
    target: str = "cpu",
    matmul: str = "auto",
    conv: str = "auto",
    disable: Iterable[str] = (),
    verify_each: bool = False,
    threads: int | None = None,
) -> CompiledModule:
    """Compile a module of PyTorch, to be called here with tensors as the module is.

    `args` and `kwargs` are example inputs of its `forward`; one tensor alone counts as one argument.
    `dynamic` says which axes have a size that each call chooses: `{"x": {0: "B"}}` by the names of inputs,
    `[{0: "B"}]` in their order, a `torch.export.Dim` in place of a name where it has bounds, True for
    every axis whose size the module does not fix. The other options are those of `dlc.compile`.

    Weights are copied as they are now, and results have no gradient. With `gradients`, parameters that
    require one are arguments of each call instead, and `backward` on results gives gradients to them and
    to the inputs whose examples require one.

    Raises UsageError for options that do not fit, Unsupported for what `torch.export` cannot export, and
    with every operator that is not imported.
    """
    torch_needed()
    settings = Settings(
        whole("level", level),
        of_kind("target", target, str, 'what to compile for, such as "cpu"'),
        of_kind("matmul", matmul, str, '"blas", "generated" or "auto"'),
        names_of("disable", disable),
        verify_each,
        conv=of_kind("conv", conv, str, CONV),
    )
    examples = _examples(args), dict(kwargs or {})
    own, program = _exported(module, examples, dynamic, gradients=gradients)
    name = "program" if own is None else type(own).__name__
    names = size_names(dynamic, program)
    wrt = requiring_gradients(leaves_of(program, *examples)) if gradients else None
    read = read_program(program, f"{name}.pt2", names, wrt)
    found = Gradients(Backward(read), settings, threads) if gradients else None
    model, imported = compiled(read.graph, settings, threads, found and found.whole)
    if found is not None:
        found.take(model)
    return CompiledModule(model, read, found, module=own, draws=imported.draws)


def _examples(args: object) -> tuple[object, ...]:
    """Example inputs; one tensor alone counts as one."""
    import torch

    return (args,) if isinstance(args, torch.Tensor) else tuple(cast("Iterable[object]", args))


def _exported(
    module: object,
    examples: tuple[tuple[object, ...], dict[str, object]],
    dynamic: Dynamic,
    *,
    gradients: bool,
) -> tuple[torch.nn.Module | None, ExportedProgram]:
    """The module, None where a program was given, and its program. Raises UsageError (D0901) for others."""
    import torch

    if isinstance(module, torch.nn.Module):
        return module, exported(module, *examples, dynamic, gradients=gradients)
    if not isinstance(module, torch.export.ExportedProgram):
        raise UsageError(
            f"dlc.from_torch takes a torch.nn.Module, found a {type(module).__name__}", code="D0901"
        )
    if gradients:
        raise UsageError(
            "gradients=True takes a module, found a program of torch.export",
            code="D0901",
            help="give dlc.from_torch the module that it was exported from",
        )
    return None, module


__all__ = ["from_torch"]
