"""What is compiled to be run in this process: the machine must be there before the work begins."""

from __future__ import annotations

from dataclasses import replace

from dlc.codegen.ptx import VERSIONS, Gpu
from dlc.driver.settings import Settings
from dlc.errors import Unsupported
from dlc.runtime.cuda.gpu import lacking


def to_run_here(settings: Settings) -> Settings:
    """The choices for code that runs here: `cuda` without a name is the GPU of this machine.

    Raises Unsupported (D0714) where there is no GPU, no driver, or an older GPU than the named one, and
    UsageError for a target that does not exist.
    """
    if settings.kind != "cuda":
        return settings
    if settings.target == "cuda":
        newest = next((name for name in reversed(VERSIONS) if lacking(name) is None), None)
        if newest is not None:
            return replace(settings, target=f"cuda:{newest}")
    gpu = settings.processor
    assert isinstance(gpu, Gpu)
    missing = lacking(gpu.architecture)
    if missing is None:
        return settings
    raise Unsupported(
        f"the target {settings.target} {missing}",
        code="D0714",
        help="use --target cpu; `dlc compile` makes artifacts for machines that have one",
    )
