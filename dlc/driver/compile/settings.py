"""Settings of a compilation, narrowed to the limits that the text states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dlc.codegen.kernels import Processor
from dlc.dialects.limits import Limit
from dlc.driver.compile.checks.own_kernels import OwnKernel
from dlc.driver.compile.cost_table import CostTable
from dlc.errors import Diagnostic, ModelError, UsageError
from dlc.errors.options import option
from dlc.ir.dims import Bounds
from dlc.ir.passes import PASSES, Options, unknown_pass
from dlc.target import Target
from dlc.target.cpu import HOST, TARGETS, CpuTarget
from dlc.target.gpu import GPUS, GpuTarget

AUTO = "auto"
"""The target that is chosen for the user."""

MATMUL = ("blas", "generated", "auto")
"""The implementations of matrix products."""
CONV = ("direct", "winograd", "auto")
"""The forms of convolutions on a processor."""
PRECISIONS = ("ieee", "tf32")
"""The precisions of f32 products on GPUs."""
ACCURACIES = ("default", "fast")
"""How exact functions of f32 are on GPUs."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a compilation, as the user chose them.

    `level` is 0 to 3; `target` is `cpu` (this machine), `cpu:NAME` (an x86-64 level or a processor),
    `cuda:NAME` (an NVIDIA GPU that runs all of it), `cpu+cuda:NAME` (also the GPU for what a text places on
    one), or `auto`, which `automatic` makes one of these; `matmul` says who computes products: `blas`,
    `generated`, or `auto`;
    `disabled` names passes to leave out. With `verify_each` the module is verified and evaluated after
    every pass. `max_memory` is the most bytes that a call may need, `dims` are narrower bounds of named
    sizes, and `fast_narrow` is the limit of that name. `recompute` is how much longer a call may take for
    values that are computed again instead of kept; a limit of the memory that is not kept raises it.
    `plan_effort` is how many times as long as usual to search for a good memory plan. `matmul_precision` is
    how GPUs multiply f32: `ieee`, or `tf32` with factors that are rounded to 10 bits of mantissa. `conv` is
    the form of 3 x 3 convolutions on processors: `direct`, `winograd`, which makes fewer products and
    rounds otherwise, or `auto`. `accuracy` is how GPUs compute exponentials, quotients and roots of f32:
    `default`, or `fast`, by approximate instructions; then 16-bit values stay f32 within a kernel, too.
    """

    level: int = 2
    target: str = "cpu"
    matmul: str = "auto"
    disabled: frozenset[str] = frozenset()
    verify_each: bool = False
    max_memory: int | None = None
    dims: Bounds = field(default_factory=dict[str, tuple[int, int | None]])
    fast_narrow: bool = False
    recompute: float = 0.02
    plan_effort: int = 1
    matmul_precision: str = "ieee"
    conv: str = "auto"
    accuracy: str = "default"
    bisect: int | None = None
    """The last optional rewrite that is done, counted over all passes; None for all."""
    kernels: tuple[OwnKernel, ...] = ()
    """Kernels that the user has written, in place of those of the same names."""
    costs: CostTable | None = None
    """The table of costs by which passes decide; None for the usual one, which `CompileJob` settles."""

    def __post_init__(self) -> None:
        if self.level not in range(4):
            raise UsageError(
                f"{option('level', self.level)} is out of range",
                code="D0902",
                help=f"use {option('level', 0)} to {option('level', 3)}",
            )
        self._check_target()
        if self.matmul not in MATMUL:
            raise UsageError(
                f"{option('matmul')} is {self.matmul!r}",
                code="D0902",
                help=f"use {option('matmul', *MATMUL)}",
            )
        if self.conv not in CONV:
            raise UsageError(
                f"{option('conv')} is {self.conv!r}",
                code="D0902",
                help=f"use {option('conv', *CONV)}",
            )
        if self.conv == "winograd" and self.kind == "cuda":
            raise UsageError(
                f"the target {self.target} has no Winograd form of convolutions",
                code="D0902",
                help=f"leave {option('conv')} out, or compile for a processor: {option('target', 'cpu')}",
            )
        if self.costs is not None and self.costs.rows and self.kind == "cuda":
            raise UsageError(
                f"{option('costs')} is for processors, and the target is {self.target}",
                code="D0902",
                help=f"leave {option('costs')} out, or compile for a processor: {option('target', 'cpu')}",
            )
        self._check_gpu_choices()
        for name in sorted(self.disabled):
            if name not in PASSES:
                raise unknown_pass(name)
            if PASSES[name].required:
                raise UsageError(
                    f"the pass {name} cannot be left out: what follows needs it", code="D0902"
                )

    def _check_gpu_choices(self) -> None:
        """Raises UsageError (D0902) for a kind of arithmetic on GPUs that is unknown, or without a GPU."""
        if self.matmul_precision not in PRECISIONS:
            raise UsageError(
                f"{option('matmul_precision')} is {self.matmul_precision!r}",
                code="D0902",
                help=f"use {option('matmul_precision', *PRECISIONS)}",
            )
        if self.accuracy not in ACCURACIES:
            raise UsageError(
                f"{option('accuracy')} is {self.accuracy!r}",
                code="D0902",
                help=f"use {option('accuracy', *ACCURACIES)}",
            )
        without = self.target.startswith("cpu") and "cuda" not in self.target
        if self.matmul_precision == "tf32" and without:
            raise UsageError(
                f"the target {self.target} multiplies f32 as it is, and has no tf32",
                code="D0902",
                help=f"leave {option('matmul_precision')} out, "
                f"or compile for a GPU: {option('target', 'cuda')}",
            )
        if self.accuracy == "fast" and without:
            raise UsageError(
                f"the target {self.target} has no approximate instructions for functions of f32",
                code="D0902",
                help=f"leave {option('accuracy')} out, "
                f"or compile for a GPU: {option('target', 'cuda')}",
            )

    def _check_target(self) -> None:
        """Raises UsageError (D0902, D0920) for a target that there is not, before any work."""
        kind, _, name = self.target.partition(":")
        if kind == AUTO:
            GpuTarget.named(name)
        elif self.target != "cpu":  # what this machine is takes time to find out
            _ = self.processor, self.gpu

    @property
    def kind(self) -> str:
        """The kind of device that runs what is placed nowhere: `cpu` or `cuda`."""
        return self._first.partition(":")[0]

    @property
    def is_for_host(self) -> bool:
        """Whether code is made for the processor of this machine."""
        return self._first in ("cpu", f"cpu:{HOST}")

    @property
    def _first(self) -> str:
        return self.target.partition("+")[0]

    @property
    def gpu(self) -> GpuTarget:
        """The GPU that code is made for, where some of it is. Raises UsageError (D0902, D0920)."""
        processor = self.processor
        if isinstance(processor, GpuTarget):
            return processor
        kind, _, name = self.target.partition("+")[2].partition(":")
        if kind not in ("", "cuda"):
            raise self._no_target()
        return GpuTarget.named(name)

    @property
    def processor(self) -> Processor:
        """The processor or GPU that code is made for, as far as nothing else is said."""
        name = self._first.partition(":")[2]
        match self.kind:
            case "cpu":
                cpu = CpuTarget.named(name or HOST)
                return cpu if self.costs is None else self.costs.applied(cpu)
            case "cuda" if "+" not in self.target:
                return GpuTarget.named(name)
            case _:
                raise self._no_target()

    def _no_target(self) -> UsageError:
        return UsageError(
            f"{option('target')} is {self.target!r}",
            code="D0902",
            help=f"use cpu, cpu:NAME with one of {', '.join(TARGETS)}, cuda:NAME with one of "
            f"{', '.join(GPUS)}, cpu+cuda:NAME, or auto",
        )

    @property
    def flags(self) -> tuple[str, ...]:
        """The choices that could change a byte of the artifact, as on the command line."""
        further = [f"--disable-pass={name}" for name in sorted(self.disabled)]
        if self.max_memory is not None:
            further.append(f"--max-memory={self.max_memory}")
        further += [
            f"--dim={name}={low}..{'' if high is None else high}"
            for name, (low, high) in self.dims.items()
        ]
        if self.plan_effort != 1:
            further.append(f"--plan-effort={self.plan_effort}")
        if self.matmul_precision != "ieee":
            further.append(f"--matmul-precision={self.matmul_precision}")
        if self.accuracy != "default":
            further.append(f"--accuracy={self.accuracy}")
        if self.bisect is not None:
            further.append(f"--bisect={self.bisect}")
        if self.conv != "auto":
            further.append(f"--conv={self.conv}")
        if self.costs is not None and self.kind == "cpu":
            cpu = CpuTarget.named(self._first.partition(":")[2] or HOST)
            changed = self.costs.changes(cpu)
            further += [f"--costs={changed.text}"] if changed.rows else []
        further += [f"--kernel={own.name}={own.digest}" for own in self.kernels]
        return (f"-O{self.level}", f"--target={self.target}", f"--matmul={self.matmul}", *further)

    def keeping(self, limits: Sequence[Limit]) -> Settings:
        """These choices, narrowed to what a text promises.

        Raises UsageError (D0709) where the two exclude each other, ModelError where two promises do.
        """
        found = self
        names = {limit.name for limit in limits}
        for limit in limits:
            match limit.name:
                case "deterministic":
                    if self.matmul == "blas":
                        why = "the bits are the library's"
                        raise UsageError([_contradiction(limit, option("matmul", "blas"), why)])
                    found = replace(found, matmul="generated")
                case "exact":
                    if "fast_narrow" in names:
                        why = "that changes bits"
                        raise ModelError([_contradiction(limit, "limit fast_narrow", why)])
                    if self.matmul_precision == "tf32":
                        why = "that rounds factors"
                        other = option("matmul_precision", "tf32")
                        raise UsageError([_contradiction(limit, other, why)])
                    if self.accuracy == "fast":
                        why = "that changes bits"
                        raise UsageError([_contradiction(limit, option("accuracy", "fast"), why)])
                    if self.conv == "winograd":
                        why = "that rounds otherwise"
                        raise UsageError([_contradiction(limit, option("conv", "winograd"), why)])
                    found = replace(found, level=min(found.level, 1))
                case "fast_narrow":
                    found = replace(found, fast_narrow=True)
                case _:
                    most = min(limit.bytes, found.max_memory or limit.bytes)
                    found = replace(found, max_memory=most)
        return found

    def options(self) -> Options:
        """The options that passes receive."""
        return Options(
            level=self.level,
            matmul=self.matmul,
            conv=self.conv,
            disabled=self.disabled,
            fast_narrow=self.fast_narrow or (self.accuracy == "fast" and self.kind == "cuda"),
            accuracy=self.accuracy,
            plan_effort=self.plan_effort,
            recompute=self.recompute,
            matmul_precision=self.matmul_precision,
            target=self.described,
        )

    @property
    def described(self) -> Target:
        """The machine that code is made for. Raises UsageError (D0902, D0920)."""
        processor = self.processor
        if isinstance(processor, GpuTarget):
            return Target.all_on(processor)
        return Target(processor, self.gpu)


def _contradiction(limit: Limit, other: str, why: str) -> Diagnostic:
    return Diagnostic(
        "D0709",
        f"limit {limit.name} and {other} exclude each other: {why}",
        limit.place,
        help="leave one of them out",
    )
