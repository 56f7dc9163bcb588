"""A compilation with its choices resolved: once, before its first pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dlc.dialects.limits import read_limits
from dlc.driver.compile.cost_table import BUILT_IN, tuned_here
from dlc.driver.compile.flags import settings_of_flags
from dlc.driver.compile.native_planner import machine_code
from dlc.driver.compile.pipelines import Device, pipeline
from dlc.driver.compile.settings import Settings
from dlc.driver.source.source_model import SourceModel
from dlc.errors import DlcError, Unsupported
from dlc.ir.native import Compiler
from dlc.ir.passes import Options, Pass
from dlc.passes.graph.device_placement import uses_gpu


@dataclass(frozen=True, slots=True)
class CompileJob:
    """A model that is compiled, and all that decides what becomes of it.

    `settings` are the user's choices narrowed to what the model's text promises, `options` what passes
    are told of them. A job walks down through the levels: `model.stage` is where it is.
    """

    model: SourceModel
    settings: Settings
    options: Options
    compiler: Compiler = machine_code
    """Of the planner's searches."""

    @classmethod
    def of(cls, model: SourceModel, settings: Settings) -> CompileJob:
        """The job of compiling a model as a user chose.

        Raises UsageError or ModelError (D0709) for choices and promises that exclude each other.
        """
        try:
            settings = settings.keeping(read_limits(model.module))
        except DlcError as error:
            error.sources.update(model.texts)
            raise
        settings = with_costs(settings, model.made_with)
        batch = None if model.training is None else model.training.batch
        limited = settings.max_memory is not None
        return cls(model, settings, replace(settings.options(), batch=batch, for_largest=limited))

    @property
    def device(self) -> Device:
        """The devices that the module, as it is now, needs: its GPU part may be dead code by now."""
        if self.settings.kind == "cuda":
            return Device.CUDA
        return Device.HETERO if uses_gpu(self.model.module) else Device.CPU

    def pipeline(self, first: str, last: str) -> tuple[Pass[...], ...]:
        """The passes from one stage to another."""
        return pipeline(first, last, self.settings.level, self.device)

    @property
    def can_begin_again(self) -> bool:
        """Whether the model can be compiled once more from its graph."""
        return self.model.reopen is not None and self.model.read_at == "graph"

    @property
    def can_recompute(self) -> bool:
        """Whether more recomputation could need less memory."""
        return self.settings.level > 0 and "recompute" not in self.settings.disabled

    def with_recompute(self, budget: float) -> CompileJob:
        """The same job from its beginning, with more time for values that are computed again."""
        return self._again(replace(self.settings, recompute=budget))

    def with_direct_convolutions(self) -> CompileJob:
        """The same job from its beginning, without the memory of Winograd's form of convolutions."""
        return self._again(replace(self.settings, conv="direct"))

    def _again(self, settings: Settings) -> CompileJob:
        assert self.model.reopen is not None
        options = replace(self.options, recompute=settings.recompute, conv=settings.conv)
        model = self.model.reopen()
        # What was set from outside since it was read: epochs, batch and seed.
        model.training = self.model.training
        return CompileJob(model, settings, options)


def with_costs(settings: Settings, made_with: Sequence[str] | None = None) -> Settings:
    """The settings with the table of costs by which passes decide.

    Where the user has chosen none, an artifact that is compiled again, `made_with` these flags, keeps the
    table of its target, and code for this machine is made by the tuned table of its processor.
    """
    if settings.costs is not None or settings.kind != "cpu":
        return settings
    if made_with is not None:
        before = settings_of_flags(made_with)
        if before.target == settings.target:
            return replace(settings, costs=before.costs)
    table = tuned_here() if settings.is_for_host else None
    return replace(settings, costs=table or BUILT_IN)


def check_kept(model: SourceModel) -> None:
    """Raises Unsupported (D0707) for what a model's text demands and compiled code would not keep."""
    if model.unkept:
        raise Unsupported(model.unkept, sources=model.texts)
