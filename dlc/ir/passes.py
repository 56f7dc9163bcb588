"""The pass manager: named passes in named pipelines, with reasons for their order that are checked.

A pass is a function of the module and the context that changes the module in place and leaves it
valid. Whoever runs a pipeline may look in between: `after` is called with each pass and is where dumps,
verification and evaluation of both sides hang.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from dlc.errors import DlcError, InternalError, UsageError
from dlc.errors.suggest import did_you_mean
from dlc.ir.core import Op
from dlc.ir.log import DecisionLog
from dlc.ir.rewrite import Rewriter
from dlc.ir.value_map import ValueMap

PassFunction: TypeAlias = Callable[[Op, "Context"], None]


class TargetName(Protocol):
    """What the pass manager knows of a target, which is described further up."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Options:
    """What the user chose that passes may depend on."""

    level: int = 2
    """0 to 3, as `-O`."""
    matmul: str = "auto"
    """`blas`, `generated` or `auto`."""
    matmul_precision: str = "ieee"
    """How GPUs multiply f32: `ieee`, or `tf32` for factors rounded to 10 bits of mantissa."""
    disabled: frozenset[str] = frozenset()
    fast_narrow: bool = False
    """Whether 16-bit values inside a kernel may stay wider: `limit fast_narrow`."""
    target: TargetName | None = None
    """The machine that code is made for: a `dlc.target.Target`, which `dlc.target.target_of` gives."""
    batch: int | None = None
    """The examples in a step of training, where there is one."""
    plan_effort: int = 1
    """How many times as long as usual to search for a good memory plan."""
    recompute: float = 0.02
    """How much longer a call may take for values that are computed again; from 1 on also products are."""


@dataclass(slots=True)
class Context:
    """What passes share: options, the decision log, the value map, and the time each pass took."""

    options: Options = field(default_factory=Options)
    log: DecisionLog = field(default_factory=DecisionLog)
    values: ValueMap = field(default_factory=ValueMap)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def rewriter(self) -> Rewriter:
        """A rewriter that keeps this context's map and log."""
        return Rewriter(self.values, self.log)


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass by name. `required` passes run at every level and cannot be disabled."""

    name: str
    run: PassFunction
    doc: str
    required: bool = False


PASSES: dict[str, Pass] = {}
"""Every pass known, by name."""


def define_pass(name: str, *, required: bool = False) -> Callable[[PassFunction], PassFunction]:
    """Make a function known as a pass; the first line of its module's docstring describes it."""

    def apply(run: PassFunction) -> PassFunction:
        assert name not in PASSES, f"pass {name} is defined twice"
        module = __import__(run.__module__, fromlist=["__doc__"])
        doc = (run.__doc__ or module.__doc__ or "").strip().split("\n")[0]
        PASSES[name] = Pass(name, run, doc, required)
        return run

    return apply


@dataclass(frozen=True, slots=True)
class Order:
    """Why one pass must come before another wherever both are in a pipeline."""

    first: str
    second: str
    because: str


def check_order(pipeline: Sequence[str], reasons: Iterable[Order]) -> None:
    """Refuse a pipeline in which a pass comes (first) after one that must follow it."""
    position = {name: index for index, name in reversed(list(enumerate(pipeline)))}
    for reason in reasons:
        if reason.first in position and reason.second in position:
            last = max(i for i, name in enumerate(pipeline) if name == reason.second)
            assert position[reason.first] < last, (
                f"{reason.first} must come before {reason.second}: {reason.because}"
            )


def unknown_pass(name: str) -> UsageError:
    """The error for a name that is no pass, with the one that was perhaps meant."""
    question = did_you_mean(name, PASSES)
    listed = f"passes are {', '.join(sorted(PASSES))}"
    return UsageError(
        f"there is no pass {name!r}", help=f"{question} {listed}" if question else listed
    )


Observer: TypeAlias = Callable[[str, Op], None]


class Manager:
    """Runs passes in order.

    `before` and `after` are called with the name of each pass and the module. When a pass fails for a
    reason that is ours, `reproduce` is called with its name: it runs the earlier passes again on the
    user's input, writes what the pass was given to a file, and gives back the name of the file.
    """

    def __init__(
        self,
        context: Context,
        *,
        before: Observer | None = None,
        after: Observer | None = None,
        reproduce: Callable[[str], str] | None = None,
    ) -> None:
        self.context = context
        self._before = before
        self._after = after
        self._reproduce = reproduce

    def run(self, module: Op, pipeline: Sequence[str]) -> None:
        """Run a pipeline on a module. The cyclic garbage collector rests meanwhile."""
        disabled = self.context.options.disabled
        unknown = [name for name in (*pipeline, *sorted(disabled)) if name not in PASSES]
        if unknown:
            raise unknown_pass(unknown[0])
        for name in pipeline:
            if name not in disabled or PASSES[name].required:
                self._run_one(PASSES[name], module)

    def _run_one(self, which: Pass, module: Op) -> None:
        if self._before is not None:
            self._before(which.name, module)
        self.context.log.current_pass = which.name
        start = time.perf_counter()
        try:
            which.run(module, self.context)
        except DlcError:
            raise
        except Exception as error:
            raise self._internal(which, error) from error
        spent = time.perf_counter() - start
        self.context.seconds[which.name] = self.context.seconds.get(which.name, 0.0) + spent
        if self._after is not None:
            self._after(which.name, module)

    def _internal(self, which: Pass, error: Exception) -> InternalError:
        where = self._reproduce(which.name) if self._reproduce is not None else ""
        return InternalError(
            f"pass {which.name} failed: {type(error).__name__}: {error}",
            help=f"its input is in {where}; please report it with that file" if where else None,
        )
