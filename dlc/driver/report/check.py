"""`dlc check`: read and verify a model without compiling it."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.driver.compile.entries import interfaces, settle_interfaces
from dlc.driver.compile.job import CompileJob, check_kept
from dlc.driver.compile.settings import Settings
from dlc.driver.report.check_training import CheckedTraining, check_trainings, differentiate
from dlc.driver.report.interface import entry_data
from dlc.driver.run.request import CompileRequest
from dlc.driver.run.train import without_own
from dlc.driver.source.dim_bounds import narrow_dims
from dlc.errors import Diagnostic, diagnostic_data
from dlc.ir.verify import verify
from dlc.lowering.graph_to_kernel.call_conditions import check_least
from dlc.runtime.artifact.manifest import Entry
from dlc.runtime.calling.signature import signature_text


@dataclass(frozen=True, slots=True)
class Checked:
    """A model that is right: its entry points, and what the compiler remarks."""

    path: str
    entries: tuple[Entry, ...]
    warnings: tuple[Diagnostic, ...] = ()
    remarks: tuple[str, ...] = ()
    """The warnings as they are shown."""
    trainings: tuple[CheckedTraining, ...] = ()

    @property
    def heads(self) -> list[str]:
        """The entry points as the language writes them, each with what its calls must fulfil below it; then
        the `train` blocks, each with what it trains."""
        entries = [
            "\n    if ".join([signature_text(entry), *[need.condition for need in entry.needs]])
            for entry in self.entries
        ]
        return [*entries, *[training.head for training in self.trainings]]

    def data(self) -> dict[str, object]:
        """All of it, for programs."""
        return {
            "path": self.path,
            "entries": [entry_data(entry) for entry in self.entries],
            "trainings": [training.data() for training in self.trainings],
            "warnings": [diagnostic_data(warning) for warning in self.warnings],
        }


def check_model(request: CompileRequest, data: str | None = None) -> Checked:
    """Read a model completely, with what the request asks of its sizes.

    `data` is a file of examples that it will be trained on, in place of what its text names.
    Raises ModelError with everything that is wrong, Unsupported for what its text demands and no
    compilation would keep, and for `train` blocks what `check_trainings` raises.
    """
    model = without_own(request).open()
    verify(model.module)
    check_kept(model)
    CompileJob.of(model, Settings())
    with model.quoting():
        narrow_dims(model, request.settings.dims)
        check_least(model.module)
        settle_interfaces(model.module)
    entries = interfaces(model.module)
    differentiate(model)
    trainings = check_trainings(request, model, data)
    return Checked(request.path, tuple(entries), model.warnings, model.remarks, trainings)
