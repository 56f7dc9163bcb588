"""The pass manager: passes with options, pipelines, and checked reasons for the order of passes.

A pass is a function of the module and the context that changes the module in place and leaves it
valid; its keyword parameters are the options of the pass. In text, as `dlc opt --passes` takes it, a
pipeline is `fuse{max_inputs=4},dce`. The callbacks `before` and `after` of the manager serve dumps,
verification, and evaluation before and after each pass.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeAlias, cast

from dlc.errors import DlcError, InternalError, UsageError
from dlc.errors.suggest import did_you_mean
from dlc.ir.core import Op
from dlc.ir.log import DecisionLog
from dlc.ir.native import Compiler, interpreted
from dlc.ir.pass_options import Option, OptionValue, option_of, read_pipeline, spelled
from dlc.ir.rewrite import RewriteCount, Rewriter
from dlc.ir.value_map import ValueMap

P = ParamSpec("P")


class TargetName(Protocol):
    """The part of `dlc.target.Target` that the pass manager, a lower layer, uses."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Options:
    """The user's settings that passes may depend on."""

    level: int = 2
    """0 to 3, as `-O`."""
    matmul: str = "auto"
    """`blas`, `generated` or `auto`."""
    conv: str = "auto"
    """`direct`, `winograd` or `auto`."""
    matmul_precision: str = "ieee"
    """The precision of f32 products on GPUs: `ieee`, or `tf32`, whose factors have 10 bits of mantissa."""
    accuracy: str = "default"
    """How exact functions of f32 are on GPUs: `default`, or `fast`, by approximate instructions."""
    disabled: frozenset[str] = frozenset()
    fast_narrow: bool = False
    """Whether 16-bit values inside a kernel may stay in f32: `limit fast_narrow`."""
    target: TargetName | None = None
    """The target machine, a `dlc.target.Target` (see `dlc.target.target_of`)."""
    batch: int | None = None
    """The batch size of a training step; None without training."""
    for_largest: bool = False
    """Whether memory is planned for the largest sizes that there may be, as a limit of it asks, rather than
    for the batch."""
    plan_effort: int = 1
    """The time to search for a memory plan, as a multiple of the usual one."""
    recompute: float = 0.02
    """The part of a call's time that rematerialization may add; from 1 on, products are recomputed, too."""

    @property
    def planned_batch(self) -> int | None:
        """The batch that memory is planned for; None for the largest sizes."""
        return None if self.for_largest else self.batch


@dataclass(slots=True)
class Context:
    """What passes share: options, the decision log, the value map, and the time each pass took."""

    options: Options = field(default_factory=Options)
    log: DecisionLog = field(default_factory=DecisionLog)
    values: ValueMap = field(default_factory=ValueMap)
    seconds: dict[str, float] = field(default_factory=dict)
    rewrites: RewriteCount = field(default_factory=RewriteCount)
    compiler: Compiler = interpreted
    """Compiles the search functions of the planner to machine code, or interprets them."""
    kernel_lowered: Callable[[Op], None] | None = None
    """Is told of the function of each kernel once it is complete: its code can be made meanwhile."""

    @property
    def rewriter(self) -> Rewriter:
        """A rewriter that maintains this context's value map and log."""
        return Rewriter(self.values, self.log, self.rewrites)


@dataclass(frozen=True, slots=True)
class Pass(Generic[P]):
    """A named pass with values for some of its options.

    `required` passes run at every level and cannot be disabled. `str` gives the form in which
    `parse_passes` reads it.
    """

    name: str
    function: Callable[Concatenate[Op, Context, P], None]
    required: bool = False
    values: tuple[tuple[str, OptionValue], ...] = ()
    """The options that are set, by name; the others have their defaults."""

    @property
    def doc(self) -> str:
        """What it does: the first line of its docstring or of its module's."""
        doc = self.function.__doc__ or sys.modules[self.function.__module__].__doc__ or ""
        return doc.strip().split("\n")[0]

    @property
    def options(self) -> tuple[Option, ...]:
        """The options that it takes, in declared order."""
        parameters = inspect.signature(self.function, eval_str=True).parameters.values()
        return tuple(map(option_of, list(parameters)[2:]))

    def using(self, *args: P.args, **options: P.kwargs) -> Pass[P]:
        """The same pass with values for options."""
        assert not args, "options are given by name"
        return replace(self, values=tuple(cast("dict[str, OptionValue]", options).items()))

    def run(self, module: Op, context: Context) -> None:
        """Run it on a module."""
        cast("Callable[..., None]", self.function)(module, context, **dict(self.values))

    def __str__(self) -> str:
        values = ",".join(f"{name}={spelled(value)}" for name, value in self.values)
        return f"{self.name}{{{values}}}" if values else self.name


Pipeline: TypeAlias = Sequence[Pass[...]]

PASSES: dict[str, Pass[...]] = {}
"""Every defined pass by name, with the defaults of its options."""


def define_pass(
    name: str, *, required: bool = False
) -> Callable[[Callable[Concatenate[Op, Context, P], None]], Pass[P]]:
    """Make a function a pass; its keyword parameters are the options of the pass."""

    def apply(function: Callable[Concatenate[Op, Context, P], None]) -> Pass[P]:
        assert name not in PASSES, f"pass {name} is defined twice"
        defined = Pass(name, function, required)
        PASSES[name] = defined
        return defined

    return apply


def parse_passes(text: str) -> tuple[Pass[...], ...]:
    """The pipeline that a text spells: `fuse{max_inputs=4},dce`.

    Raises UsageError: D0901 for a pass that does not exist, D0902 for an option that the pass does not
    take, and for a value that the option does not.
    """
    return tuple(_parsed(name, options) for name, options in read_pipeline(text))


def _parsed(name: str, options: Iterable[tuple[str, str]]) -> Pass[...]:
    if name not in PASSES:
        raise unknown_pass(name)
    defined = PASSES[name]
    declared = {option.name: option for option in defined.options}
    values: dict[str, OptionValue] = {}
    for key, text in options:
        if key not in declared:
            raise _unknown_option(name, key, declared.values())
        if key in values:
            raise UsageError(
                f"option {key} of {name} is given twice", code="D0902", help="leave one of them out"
            )
        values[key] = declared[key].read(text, name)
    return replace(defined, values=tuple(values.items()))


@dataclass(frozen=True, slots=True)
class Order:
    """Why one pass must come before another wherever both are in a pipeline."""

    first: Pass[...]
    second: Pass[...]
    because: str


def check_order(pipeline: Pipeline, reasons: Iterable[Order]) -> None:
    """Refuse a pipeline in which a pass comes (first) after one that must follow it."""
    names = [each.name for each in pipeline]
    for reason in reasons:
        first, second = reason.first.name, reason.second.name
        if first in names and second in names:
            last = max(index for index, name in enumerate(names) if name == second)
            assert names.index(first) < last, f"{first} must come before {second}: {reason.because}"


def unknown_pass(name: str) -> UsageError:
    """The error for a name that is not a pass, with the one that was perhaps meant."""
    question = did_you_mean(name, PASSES)
    listed = f"passes are {', '.join(sorted(PASSES))}"
    return UsageError(
        f"there is no pass {name!r}", help=f"{question} {listed}" if question else listed
    )


def _unknown_option(name: str, key: str, options: Iterable[Option]) -> UsageError:
    question = did_you_mean(key, [option.name for option in options])
    meant = f"{question} " if question else ""
    listed = ", ".join(map(str, options))
    return UsageError(
        f"the pass {name} has no option {key!r}",
        code="D0902",
        help=f"{meant}its options are {listed}" if listed else f"{name} takes no options",
    )


Observer: TypeAlias = Callable[[str, Op], None]


class Manager:
    """Runs passes in order.

    `before` and `after` are called with the name of each pass and the module. When a pass fails with an
    internal error, `reproduce` is called with it: it runs the earlier passes again on the user's input,
    writes the input of the failing pass to a file, and returns the name of the file.
    """

    def __init__(
        self,
        context: Context,
        *,
        before: Observer | None = None,
        after: Observer | None = None,
        reproduce: Callable[[Pass[...]], str] | None = None,
    ) -> None:
        self.context = context
        self._before = before
        self._after = after
        self._reproduce = reproduce

    def run(self, module: Op, pipeline: Pipeline) -> None:
        """Run a pipeline on a module. Raises UsageError (D0901) where a disabled pass does not exist."""
        disabled = self.context.options.disabled
        for name in sorted(disabled):
            if name not in PASSES:
                raise unknown_pass(name)
        for each in pipeline:
            if each.name not in disabled or each.required:
                self._run_one(each, module)

    def _run_one(self, which: Pass[...], module: Op) -> None:
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

    def _internal(self, which: Pass[...], error: Exception) -> InternalError:
        where = self._reproduce(which) if self._reproduce is not None else ""
        return InternalError(
            f"pass {which.name} failed: {type(error).__name__}: {error}",
            help=f"its input is in {where}; please report it with that file" if where else None,
        )
