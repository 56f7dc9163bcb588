"""`dlc check` of a `train` block: everything that training does before its first step."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from dlc.dialects import func, weight
from dlc.driver.run.request import CompileRequest
from dlc.driver.run.train import TrainingPlan, plan_training
from dlc.driver.source.source_model import SourceModel
from dlc.errors import UsageError
from dlc.ir.passes import Manager
from dlc.ir.types import F32
from dlc.passes.graph.autodiff import autodiff
from dlc.runtime.artifact.manifest import STEP
from dlc.runtime.system.atomic_write import check_writable
from dlc.runtime.system.mapped_files import check_inside

MISSING = "D0501"
_ELSEWHERE = (
    "put it there, check what training will be given instead: dlc check --data FILE, "
    "or leave the path out of the text: the data is given later then"
)
_SHOWN = 4
"""How many weights of a row are named at most."""


@dataclass(frozen=True, slots=True)
class CheckedTraining:
    """A `train` block that is right: its name, its module, and the parameters of the module by what it does
    with them."""

    block: str
    module: str
    trained: tuple[weight.Source, ...]
    frozen: tuple[weight.Source, ...]
    unused: tuple[weight.Source, ...]
    data_path: str = ""
    """The examples that were checked; "" where they are given when it trains."""
    precision: str = F32.name
    """In what it computes products."""

    @property
    def head(self) -> str:
        """The block with its parameters, as people read it."""
        name = f"train {self.block} for {self.module}" if self.block else f"train {self.module}"
        rows = (("trains", self.trained), ("freezes", self.frozen), ("does not use", self.unused))
        told = [f"{what} {_told(sources)}" for what, sources in rows if sources]
        if not self.data_path:
            told.append("is given its data: dlc train --data FILE, or trainer.fit(data)")
        if self.precision != F32.name:
            told.append(f"computes products in {self.precision}")
        return "\n    ".join([name, *told])

    def data(self) -> dict[str, object]:
        """All of it, for programs: numbers of parameters, and the weights that have them."""
        rows = {"trained": self.trained, "frozen": self.frozen, "unused": self.unused}
        return {
            "block": self.block,
            "module": self.module,
            "data": self.data_path or None,
            "precision": self.precision,
            **{
                name: {"parameters": _count(sources), "weights": [s.sym_name for s in sources]}
                for name, sources in rows.items()
            },
        }


def _count(sources: Sequence[weight.Source]) -> int:
    return sum([prod([n for n in source.type.shape if isinstance(n, int)]) for source in sources])


def _told(sources: Sequence[weight.Source]) -> str:
    names = [source.sym_name for source in sources]
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    count = _count(sources)
    noun = "parameter" if count == 1 else "parameters"
    return f"{count:,} {noun}: {', '.join(names[:_SHOWN])}{more}"


def check_trainings(
    request: CompileRequest, model: SourceModel, data: str | None = None
) -> tuple[CheckedTraining, ...]:
    """Check the `train` blocks of a text, or the one that the request names, as far as the first step.

    Of the examples those in the file `data`, if there is one, in place of those that the text names.
    Raises ModelError or UsageError for what training would be refused for: a function that is wrong, data
    that is missing or does not fit, a batch that the sizes have no room for, a checkpoint that cannot be
    written.
    """
    if request.block is not None:
        return (_checked(request, data),)
    blocks = [row for row in model.blocks if request.module in (None, row.module)]
    requests = [replace(request, module=row.module, block=row.name or None) for row in blocks]
    return tuple([_checked(each, data) for each in requests])


def differentiate(model: SourceModel) -> None:
    """Take the derivatives of a model, for the errors of what has none; the model is used up."""
    with model.quoting():
        Manager(model.context).run(model.module, (autodiff,))


def _checked(request: CompileRequest, data: str | None) -> CheckedTraining:
    planned = plan_training(request)
    model = planned.source
    assert isinstance(model, SourceModel)
    facts = planned.facts
    _check_data(planned, data)
    if facts.checkpoint:
        with model.blaming("checkpoint"):
            check_inside(facts.checkpoint)
            check_writable(os.path.join(planned.folder, facts.checkpoint))
    step = model.module.symbol(STEP)
    assert isinstance(step, func.Func)
    updated = step.attributes["dlc.updates"]
    assert isinstance(updated, tuple)
    trained = [s for s in _parameters(model) if s.sym_name in updated]
    rest = [s for s in _parameters(model) if s.sym_name not in updated]
    frozen = [s for s in rest if s.sym_name in model.frozen]
    unused = [s for s in rest if s.sym_name not in model.frozen]
    differentiate(model)
    return CheckedTraining(
        facts.block,
        facts.module,
        tuple(trained),
        tuple(frozen),
        tuple(unused),
        data or facts.data.path,
        facts.precision,
    )


def _check_data(planned: TrainingPlan, data: str | None) -> None:
    """Check the examples, unless they are given only when the training begins."""
    if data is None and not planned.facts.data.path:
        return
    try:
        planned.data(data)
    except UsageError as error:
        is_there = data is not None or all(os.path.lexists(path) for path in planned.files)
        if is_there or any(d.code != MISSING for d in error.diagnostics):
            raise
        told = [replace(d, help=_ELSEWHERE) for d in error.diagnostics]
        raise UsageError(told, sources=error.sources) from None


def _parameters(model: SourceModel) -> Iterator[weight.Source]:
    """The trainable weights of the module, without what optimizers keep for them."""
    for op in model.module.body:
        if isinstance(op, weight.Source) and op.trained and not op.constant:
            yield op
