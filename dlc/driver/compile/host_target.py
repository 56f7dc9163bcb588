"""Settings for a model that runs in this process: its device must exist before the work begins."""

from __future__ import annotations

from dataclasses import replace

from dlc.driver.compile.settings import Settings
from dlc.errors import Unsupported
from dlc.errors.options import option
from dlc.ir.core import Op
from dlc.passes.graph.device_placement import uses_gpu
from dlc.runtime.cuda.devices import lacking
from dlc.runtime.system.device_names import CPU, FIRST_GPU
from dlc.target.gpu import GPUS


def to_run_here(settings: Settings, device: str | None = None) -> Settings:
    """The choices for code that runs here: `cuda` without a name is the kind of the GPU that runs it.

    That is the first one where no `device` is named. Raises Unsupported (D0714) where there is no GPU, no
    driver, or an older GPU than the named one, and UsageError for a target that does not exist.
    """
    if settings.kind != "cuda":
        return settings
    newest = newest_here(device)
    if settings.target == "cuda" and newest is not None:
        return replace(settings, target=f"cuda:{newest}")
    way_out = f"use {option('target', 'cpu')}"
    if device is not None:
        way_out = f"name another {option('device')}, or {way_out}"
    _check(settings, device, f"the target {settings.target}", way_out)
    return settings


def placed_here(settings: Settings, module: Op, device: str | None = None) -> Settings:
    """The choices for a model that is to run here, with the GPU of this machine for what is placed on one.

    Raises Unsupported (D0714) where a part is placed on a GPU and there is none that runs it, or nothing
    is and the device is a GPU.
    """
    if settings.kind != "cpu":
        return settings
    if not uses_gpu(module):
        if device not in (None, CPU):
            raise Unsupported(
                f"the target {settings.target} runs on the processor, and not on {device}",
                code="D0714",
                help=f"use {option('target', 'cuda')}, too",
            )
        return settings
    newest = newest_here(device)
    if "+" not in settings.target and newest is not None:
        return replace(settings, target=f"{settings.target}+cuda:{newest}")
    _check(settings, device, "what is placed on cuda:0", "place it on cpu")
    return settings


def newest_here(device: str | None = None) -> str | None:
    """The newest kind of code that a GPU of this machine runs, the first one; None where there is none."""
    named = device or FIRST_GPU
    return next((name for name in reversed(tuple(GPUS)) if lacking(name, named) is None), None)


def _check(settings: Settings, device: str | None, what: str, way_out: str) -> None:
    missing = lacking(settings.gpu.name, device or FIRST_GPU)
    if missing is not None:
        raise Unsupported(
            f"{what} {missing}",
            code="D0714",
            help=f"{way_out}; `dlc compile` makes artifacts for machines that have one",
        )
