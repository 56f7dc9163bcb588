"""What is compiled to be run in this process: the machine must be there before the work begins."""

from __future__ import annotations

from dataclasses import replace

from dlc.codegen.ptx import VERSIONS
from dlc.driver.settings import Settings
from dlc.errors import Unsupported
from dlc.ir.core import Op
from dlc.passes.devices import uses_gpu
from dlc.runtime.cuda.devices import lacking


def to_run_here(settings: Settings) -> Settings:
    """The choices for code that runs here: `cuda` without a name is the GPU of this machine.

    Raises Unsupported (D0714) where there is no GPU, no driver, or an older GPU than the named one, and
    UsageError for a target that does not exist.
    """
    if settings.kind != "cuda":
        return settings
    newest = newest_here()
    if settings.target == "cuda" and newest is not None:
        return replace(settings, target=f"cuda:{newest}")
    _check(settings, f"the target {settings.target}", "use --target cpu")
    return settings


def placed_here(settings: Settings, module: Op) -> Settings:
    """The choices for a model that is to run here, with the GPU of this machine for what is placed on one.

    Raises Unsupported (D0714) where a part is placed on a GPU and there is none that runs it.
    """
    if settings.kind != "cpu" or not uses_gpu(module):
        return settings
    newest = newest_here()
    if "+" not in settings.target and newest is not None:
        return replace(settings, target=f"{settings.target}+cuda:{newest}")
    _check(settings, "what is placed on cuda:0", "place it on cpu")
    return settings


def newest_here() -> str | None:
    """The newest kind of code that the GPU of this machine runs; None where there is no GPU."""
    return next((name for name in reversed(VERSIONS) if lacking(name) is None), None)


def _check(settings: Settings, what: str, way_out: str) -> None:
    missing = lacking(settings.gpu.architecture)
    if missing is not None:
        raise Unsupported(
            f"{what} {missing}",
            code="D0714",
            help=f"{way_out}; `dlc compile` makes artifacts for machines that have one",
        )
