"""Options that several verbs share: each means the same everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar, get_type_hints

import typer

from dlc import driver
from dlc.cli.quick import PlainRun
from dlc.cli.values import bounds, pairs, parameters
from dlc.errors import UsageError
from dlc.runtime.cpu.pinning import pin_threads
from dlc.runtime.system.counts import whole_number
from dlc.runtime.system.device_names import device_or_none
from dlc.text.model import literals

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Result = TypeVar("Result")

Model: TypeAlias = Annotated[str, typer.Argument(help="A model: .dlm, .dlir, .dlc or .onnx.")]
Entry: TypeAlias = Annotated[
    str | None, typer.Option(help="The entry point; not needed if there is only one.")
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Give the result as JSON.")]
Inputs: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--input",
        metavar="NAME=VALUE",
        help="A file (.npy, .npz, .safetensors, a picture), numbers, zeros, or text:...",
    ),
]
Dims: TypeAlias = Annotated[
    list[str], typer.Option("--dim", metavar="NAME=SIZE", help="A named size, such as B=8.")
]
Seed: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--random-inputs", metavar="SEED", min=0, help="Random numbers for the inputs left out."
    ),
]
Threads: TypeAlias = Annotated[
    int | None,
    typer.Option(help="The maximum number of threads of a call; results do not depend on it."),
]
Pin: TypeAlias = Annotated[
    bool, typer.Option("--pin", help="Pin each worker thread to a processor of its own.")
]
Untrusted: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--untrusted", help="Do not run the machine code of a .dlc: compile its graph again."
    ),
]
TrustIr: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--trust-ir", help="Compile kernels, plans and loops, which may use any memory: trust them."
    ),
]
Memory: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="The limit of the working memory of a call, such as 512MiB."),
]
Bounds: TypeAlias = Annotated[
    list[str],
    typer.Option("--dim", metavar="NAME=LOW..HIGH", help="Narrower bounds of a size: B=1..64."),
]
Shapes: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--shape",
        metavar="INPUT=SIZES",
        help="Another shape for an input of an .onnx file, such as image=B,3,32*H,32*W.",
    ),
]
Fixed: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--fix",
        metavar="INPUT=VALUE",
        help="A fixed value for an input of an .onnx file that decides shapes, such as axes=[1].",
    ),
]
Level: TypeAlias = Annotated[
    int, typer.Option("-O", help="Optimization level: 0 to 3.", metavar="LEVEL")
]
Target: TypeAlias = Annotated[
    str, typer.Option(help="cpu (this machine), cpu:x86-64-v3, cuda, cuda:sm_90a, auto ...")
]
Device: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Run on cpu, or a GPU: cuda:0, cuda:1 ... (the first one by default)."),
]
Weights: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="A weight file, narrow:FILE to round its floats, or init:SEED for initial values."
    ),
]
Matmul: TypeAlias = Annotated[
    str, typer.Option(help="How matrices are multiplied: blas, generated or auto.")
]
Conv: TypeAlias = Annotated[
    str, typer.Option(help="The form of 3 x 3 convolutions on CPUs: direct, winograd or auto.")
]
Costs: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="TABLE",
        help="The costs by which passes decide: default, tuned, a file of dlc tune, or product=6,...",
    ),
]
Precision: TypeAlias = Annotated[
    str,
    typer.Option(
        "--matmul-precision",
        help="How a GPU multiplies f32: ieee, or tf32 with factors of 10 bits of mantissa.",
    ),
]
Accuracy: TypeAlias = Annotated[
    str,
    typer.Option(
        help="How a GPU computes functions of f32: default, or fast by approximate instructions."
    ),
]
Disabled: TypeAlias = Annotated[
    list[str], typer.Option("--disable-pass", metavar="NAME", help="Leave out a pass.")
]
Bisect: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--bisect", metavar="N", min=0, help="Do only the first N optional rewrites of all passes."
    ),
]
OpStats: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--print-op-stats", help="Print how many operations each pass began with and left, by kind."
    ),
]
Kernels: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--kernel",
        metavar="NAME=FILE",
        help="Replace a kernel by your own (.ll or .dlir), if it computes the same.",
    ),
]
Chosen: TypeAlias = Annotated[
    list[str],
    typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the root module."),
]
Module: TypeAlias = Annotated[str | None, typer.Option(help="The root module.")]
Block: TypeAlias = Annotated[
    str | None, typer.Option(help="The train block, where the text has several.")
]
Placed: TypeAlias = Annotated[
    list[str],
    typer.Option("--place", metavar="PATH=DEVICE", help="Run a submodule on a device: head=cpu:1."),
]
Verify: TypeAlias = Annotated[
    bool, typer.Option("--verify-each", help="Verify and evaluate the module after every pass.")
]
PlanEffort: TypeAlias = Annotated[
    int,
    typer.Option(
        "--plan-effort", min=1, help="Search for a memory plan this many times as long as usual."
    ),
]


def memory(text: str | None, option: str = "--max-memory") -> int | None:
    """Bytes, such as 1048576, or 512MiB as the language writes it; None where nothing is given.

    Raises UsageError (D0901) for what is not a size of memory.
    """
    if text is None:
        return None
    number = whole_number(text)
    try:
        return literals.size(text) if number is None else number
    except literals.LiteralError:
        raise UsageError(
            f"{option} {text!r} is not a size of memory", code="D0901", help="write 512MiB or 2GiB"
        ) from None


def pin_workers(asked: bool, comm: object = None) -> None:
    """Let each worker keep to a processor, where `--pin` asks for it.

    Raises UsageError (D0901) for ranks, which would all take the same processors.
    """
    if asked and comm is not None:
        raise UsageError(
            "--pin is for one process, and ranks would all take the same processors",
            code="D0901",
            help="leave it out, and let MPI bind the processes: mpiexec --bind-to core",
        )
    if asked:
        pin_threads()


@dataclass(frozen=True, slots=True)
class Compilation:
    """The options of a compilation from the command line; `compiling` names those that a verb has."""

    level: Level = 2
    target: Target = "cpu"
    device: Device = None
    weights: Weights = None
    matmul: Matmul = "auto"
    conv: Conv = "auto"
    costs: Costs = None
    matmul_precision: Precision = "ieee"
    accuracy: Accuracy = "default"
    disable_pass: Disabled = field(default_factory=list[str])
    chosen: Chosen = field(default_factory=list[str])
    module: Module = None
    block: Block = None
    place: Placed = field(default_factory=list[str])
    verify_each: Verify = False
    max_memory: Memory = None
    plan_effort: PlanEffort = 1
    dims: Bounds = field(default_factory=list[str])
    untrusted: Untrusted = False
    shapes: Shapes = field(default_factory=list[str])
    fixed: Fixed = field(default_factory=list[str])
    trust_ir: TrustIr = False
    bisect: Bisect = None
    kernel: Kernels = field(default_factory=list[str])

    def settings(self) -> driver.Settings:
        """The settings of the code. Raises UsageError (D0901, D0902)."""
        return driver.Settings(
            self.level,
            self.target,
            self.matmul,
            frozenset(self.disable_pass),
            self.verify_each,
            memory(self.max_memory),
            bounds(self.dims),
            plan_effort=self.plan_effort,
            matmul_precision=self.matmul_precision,
            accuracy=self.accuracy,
            conv=self.conv,
            costs=None if self.costs is None else driver.cost_table(self.costs),
            bisect=self.bisect,
            kernels=driver.read_kernels(pairs("--kernel", self.kernel)),
        )

    def of(
        self, path: str, *, trains: bool = False, call_sizes: Mapping[str, int] | None = None
    ) -> driver.CompileRequest:
        """The compilation of that model with these choices, for training where it trains.

        `call_sizes` are the sizes of the call that it is for. Raises UsageError (D0901, D0902).
        """
        if self.untrusted and self.trust_ir:
            raise UsageError(
                "--untrusted and --trust-ir contradict each other", code="D0901", help="choose one"
            )
        request = driver.CompileRequest(
            path,
            module=self.module,
            block=self.block,
            parameters=parameters(self.chosen),
            places=pairs("--place", self.place),
            device=device_or_none(self.device),
            weights=self.weights,
            settings=self.settings(),
            untrusted=self.untrusted,
            shapes=pairs("--shape", self.shapes),
            fixed=pairs("--fix", self.fixed),
            call_sizes=call_sizes or {},
            trust_ir=self.trust_ir,
        )
        return driver.automatic(request, trains=trains) if request.is_undecided else request


@dataclass(frozen=True, slots=True)
class Call:
    """The options of a call from the command line; `calling` names those that a verb has.

    Inputs that are not given are random.
    """

    entry: Entry = None
    inputs: Inputs = field(default_factory=list[str])
    dims: Dims = field(default_factory=list[str])
    random_inputs: Seed = 0
    threads: Threads = None

    def of(self, path: str) -> driver.CallRequest:
        """The call of that model with these choices. Raises UsageError for texts that are not pairs."""
        inputs, dims = tuple(self.inputs), tuple(self.dims)
        return PlainRun(path, self.entry, inputs, dims=dims, seed=self.random_inputs).request()


FORMS = ("matmul", "conv", "costs", "matmul_precision", "accuracy")
"""The options of a compilation that say in which form things are computed."""
RUNNABLE = ("weights", "level", "target", "device", *FORMS)
"""Those of a compilation whose program runs at once."""


def compiling(*names: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Let a verb have these options of a compilation: it is called with them as `compilation`."""
    return _gathering("compilation", Compilation(), names)


def calling(*names: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Let a verb have these options of a call: it is called with them as `call`."""
    return _gathering("call", Call(), names)


def gathering(
    group: str, usual: DataclassInstance
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Let a verb have the fields of a dataclass as options: it is called with them as `group`."""
    return _gathering(group, usual, [each.name for each in fields(usual)])


def _gathering(
    group: str, usual: DataclassInstance, names: Sequence[str]
) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Let a verb be called with some options as one parameter.

    In the signature that typer sees, they replace that parameter.
    """

    def apply(command: Callable[..., Result]) -> Callable[..., Result]:
        @wraps(command)
        def run(**values: object) -> Result:
            kept = {name: values.pop(name) for name in names}
            return command(**values, **{group: replace(usual, **kept)})

        shown = [
            parameter
            for own in signature(command, eval_str=True).parameters.values()
            for parameter in (
                [_option(usual, name) for name in names] if own.name == group else [own]
            )
        ]
        run.__signature__ = Signature(shown)  # pyright: ignore[reportAttributeAccessIssue]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
        return run

    return apply


def _option(usual: DataclassInstance, name: str) -> Parameter:
    """A field of a group of options as a parameter of a verb."""
    kind: object = get_type_hints(type(usual), include_extras=True)[name]
    default: object = getattr(usual, name)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
