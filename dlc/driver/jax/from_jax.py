"""`dlc.from_jax`: from a function of JAX to a compiled model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dlc.driver.compile.compile import Report, compile_model
from dlc.driver.compile.host_target import placed_here, to_run_here
from dlc.driver.compile.settings import Settings
from dlc.driver.jax.compiled_function import CompiledFunction
from dlc.driver.jax.exporting import Dynamic, exported, name_of
from dlc.driver.python_arguments import names_of, of_kind, whole
from dlc.driver.source.imported import source_of
from dlc.errors import UsageError, memory_needed
from dlc.errors.boundary import without_frames
from dlc.errors.options import in_python
from dlc.importers.stablehlo.facts import Program
from dlc.importers.stablehlo.importing import import_program
from dlc.importers.stablehlo.opening import jax_needed, program_of
from dlc.planning.capacity import check_interface
from dlc.runtime.model import Model

if TYPE_CHECKING:
    from jax.export import Exported


@without_frames
@in_python()
@memory_needed
def from_jax(
    function: Callable[..., object] | Exported,
    *args: object,
    dynamic: Dynamic = None,
    level: int = 2,
    target: str = "cpu",
    matmul: str = "auto",
    disable: Iterable[str] = (),
    verify_each: bool = False,
    threads: int | None = None,
) -> CompiledFunction:
    """Compile a function of JAX, to be called here with arrays as the function is.

    `args` are example arguments: arrays, or `jax.ShapeDtypeStruct`, nested as the function takes them.
    `dynamic` says which axes have a size that each call chooses: `{"x": {0: "B"}}` by the names of
    arguments, `[{0: "B"}]` in their order; a shape in JAX's words, `"B, 2*T"`, says more. Arrays that the
    function closes over are its weights. A function that `jax.export` gave takes no example arguments. The
    other options are those of `dlc.compile`. Raises Unsupported for what `jax.export` cannot export
    (D0719), and with every type (D0718) and every operation (D0710) that is not imported.
    """
    jax_needed()
    from jax.export import Exported

    settings = Settings(
        whole("level", level),
        of_kind("target", target, str, 'what to compile for, such as "cpu"'),
        of_kind("matmul", matmul, str, '"blas", "generated" or "auto"'),
        names_of("disable", disable),
        verify_each,
    )
    if isinstance(function, Exported):
        found, name = function, function.fun_name
    elif callable(cast("object", function)):
        found, name = exported(function, args, dynamic), name_of(function)
    else:
        raise UsageError(
            f"dlc.from_jax takes a function, found a {type(function).__name__}", code="D0901"
        )
    if found.out_tree.num_leaves == 0:
        raise UsageError(f"{name} returns no array", code="D0901")
    program = program_of(found.mlir_module_serialized, f"{name}.mlir")
    return CompiledFunction(_compiled(program, settings, threads), found)


def _compiled(program: Program, settings: Settings, threads: int | None) -> Model:
    """A program compiled for this machine."""
    model = source_of(import_program(program), program.file, Path.cwd())
    model.reopen = lambda: source_of(import_program(program), program.file, Path.cwd())
    with model.quoting():
        check_interface(model.module)
        here = placed_here(to_run_here(settings, None), model.module, None)
        artifact = compile_model(model, here, None, report=Report())
    return Model(artifact, threads=threads)


__all__ = ["from_jax"]
