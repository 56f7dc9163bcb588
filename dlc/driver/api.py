"""The Python API: `dlc.compile`, `dlc.trainer` and `dlc.trainers`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple, cast, get_args

from dlc.driver.compile.checks.own_kernels import read_kernels
from dlc.driver.compile.settings import Settings
from dlc.driver.python_arguments import (
    CONV,
    Bounds,
    Setting,
    bounds_of,
    costs_of,
    model_path,
    names_of,
    of_kind,
    or_none,
    paths_of,
    settings_of,
    weights_of,
    whole,
)
from dlc.driver.run.auto_device import automatic
from dlc.driver.run.request import CompileRequest, make_model
from dlc.driver.run.train import TrainingPlan, make_trainers, plan_training
from dlc.driver.source.weight_sources import WeightsArgument
from dlc.errors import UsageError, memory_needed
from dlc.errors.boundary import without_frames
from dlc.errors.options import in_python
from dlc.runtime.model import Model
from dlc.runtime.ranks.agreement import made_by_all
from dlc.runtime.ranks.links import ranks_of
from dlc.runtime.ranks.parts import Shard
from dlc.runtime.system.device_names import device_or_none
from dlc.runtime.training.trainer import Trainer

PRECISION = '"ieee" or "tf32"'
ACCURACY = '"default" or "fast"'
TARGET = 'what to compile for, such as "cpu" or "cuda"'
DEVICE = 'what to run on, such as "cuda:1"'


@without_frames
@in_python()
@memory_needed
def compile(
    path: str | os.PathLike[str] | None = None,
    *,
    text: str | None = None,
    weights: WeightsArgument = None,
    module: str | None = None,
    settings: Mapping[str, Setting] | None = None,
    level: int = 2,
    target: str = "cpu",
    device: str | None = None,
    matmul: str = "auto",
    conv: str = "auto",
    matmul_precision: str = "ieee",
    costs: str | os.PathLike[str] | None = None,
    accuracy: str = "default",
    disable: Iterable[str] = (),
    verify_each: bool = False,
    threads: int | None = None,
    max_memory: int | None = None,
    dims: Mapping[str, Bounds] | None = None,
    places: Mapping[str, str] | None = None,
    trust_ir: bool = False,
    kernels: Mapping[str, str] | None = None,
) -> Model:
    """Compile a model, from a file (`.dlm`, `.dlir`, `.onnx`, `.pt2`, `.dlc`) or its text, to be called.

    `weights` is the path of a weight file, `"init:SEED"`, or arrays by name; without it the model's own
    files and initialisers are used. `settings` gives values to the parameters of the root module, which
    `module` names where several have entry points. `level` is 0 to 3 as `-O`, `target` as `--target`,
    `device` which GPU runs it (`cuda:1`; without it the first one), `matmul` is `blas`, `generated` or
    `auto`, `conv` the form of 3 x 3 convolutions on processors (`direct`, `winograd` or `auto`),
    `matmul_precision` how a GPU multiplies f32 (`ieee` or `tf32`, which has factors of 10 bits of
    mantissa), `accuracy` how it computes functions of f32 (`default`, or `fast` by approximate
    instructions), `costs` the table of costs by which passes decide (`default`, `tuned`, rows such as
    `product=6`, or a file of `dlc tune`), `disable` names passes to leave out. `max_memory` is the most
    bytes that a call may need, as `limit memory`; `dims` are narrower bounds of sizes, such as `{"B": (1,
    64)}`; `places` puts submodules on devices, such as `{"head": "cpu:1"}`; `kernels` has files with
    kernels of your own (`.ll`, `.dlir`) by name, which are used if they compute the same. Kernels, plans
    and loops, of a `.dlir` or in a `.dlc`, may use any memory and are compiled only with `trust_ir=True`.
    Raises ModelError with everything that is wrong in the model, ArtifactError (D0616) for what nobody
    said to trust, Unsupported for what dlc cannot do, NumbersDiffer for a kernel that computes something
    else.
    """
    request = CompileRequest(
        path=model_path(path, text, "dlc.compile"),
        text=text,
        module=or_none("module", module, str, "the name of a module"),
        parameters=settings_of(settings),
        places=places or {},
        device=device_or_none(or_none("device", device, str, DEVICE)),
        weights=weights_of(weights),
        settings=Settings(
            whole("level", level),
            of_kind("target", target, str, TARGET),
            of_kind("matmul", matmul, str, '"blas", "generated" or "auto"'),
            names_of("disable", disable),
            verify_each,
            None if max_memory is None else whole("max_memory", max_memory),
            bounds_of(dims),
            matmul_precision=of_kind("matmul_precision", matmul_precision, str, PRECISION),
            accuracy=of_kind("accuracy", accuracy, str, ACCURACY),
            conv=of_kind("conv", conv, str, CONV),
            costs=costs_of(costs),
            kernels=read_kernels(paths_of("kernels", kernels)),
        ),
        trust_ir=of_kind("trust_ir", trust_ir, bool, "True or False"),
    )
    model, _ = make_model(automatic(request), threads)
    return model


@without_frames
@in_python()
@memory_needed
def trainer(
    path: str | os.PathLike[str] | None = None,
    *,
    text: str | None = None,
    weights: WeightsArgument = None,
    module: str | None = None,
    block: str | None = None,
    level: int = 2,
    target: str = "cpu",
    device: str | None = None,
    matmul: str = "auto",
    conv: str = "auto",
    matmul_precision: str = "ieee",
    costs: str | os.PathLike[str] | None = None,
    accuracy: str = "default",
    threads: int | None = None,
    comm: object = None,
    shard: Shard | None = None,
    **settings: Setting,
) -> Trainer:
    """A trainer for a model with a `train` block, from a file (`.dlm`, or a `.dlc` made to train) or text.

    `settings` are parameters of the root module, and `batch`, `epochs` and `seed` of the `train` block.
    The whole step, forward, backward and optimizer, is compiled as one program. `target` is `cpu` or
    `cuda`: a GPU, where the weights stay between steps, and `device` says which one. `weights` are what it
    begins with: a file, `"init:SEED"`, or arrays by name. `block` is the name of the `train` block, where
    the text has several; `dlc.trainers` makes a trainer for each.

    `comm` is the communicator of mpi4py whose ranks train together: all call it, and every method of the
    trainer, at the same time with the same arguments. The first one compiles; of each batch a rank computes
    its part, and `shard` (`"optimizer"`, `"gradients"` or `"weights"`) says of which arrays it has a part
    only. Raises UsageError (D0936, D0937) for ranks that do not fit together, CallError (D0824) where
    another rank fails.
    """

    def plan() -> tuple[TrainingPlan, Shard | None]:
        request = _training_request(
            model_path(path, text, "dlc.trainer"),
            or_none("block", block, str, "the name of a train block"),
            _Choices(
                text,
                weights,
                module,
                level,
                target,
                device,
                matmul,
                conv,
                matmul_precision,
                costs,
                accuracy,
            ),
            settings,
        )
        split = _split(shard, comm)
        return plan_training(automatic(request, trains=True).to_run_here()), split

    planned, split = made_by_all(comm, plan)
    found, _ = planned.trainer(threads, comm, split)
    return found


@without_frames
@in_python()
@memory_needed
def trainers(
    path: str | os.PathLike[str] | None = None,
    *,
    text: str | None = None,
    weights: WeightsArgument = None,
    module: str | None = None,
    level: int = 2,
    target: str = "cpu",
    device: str | None = None,
    matmul: str = "auto",
    conv: str = "auto",
    matmul_precision: str = "ieee",
    costs: str | os.PathLike[str] | None = None,
    accuracy: str = "default",
    threads: int | None = None,
    **settings: Setting,
) -> dict[str, Trainer]:
    """A trainer for each `train` block of a module, by the name of the block, with common weights.

    A step of one changes what the next step of another begins with, as the two sides of a GAN need it. A
    checkpoint of one has the progress of all. The other arguments are those of `dlc.trainer`.
    """
    request = _training_request(
        model_path(path, text, "dlc.trainers"),
        None,
        _Choices(
            text,
            weights,
            module,
            level,
            target,
            device,
            matmul,
            conv,
            matmul_precision,
            costs,
            accuracy,
        ),
        settings,
    )
    return make_trainers(automatic(request), threads)


def _split(shard: object, comm: object) -> Shard | None:
    """What the ranks split. Raises UsageError: D0902 for other words, D0901 without ranks."""
    if shard is None:
        return None
    if shard not in get_args(Shard):
        raise UsageError(
            f'shard is "optimizer", "gradients" or "weights", found {shard!r}',
            code="D0902",
            help="leave it out: each rank then has all arrays",
        )
    if comm is None:
        raise UsageError(
            f"shard={shard!r} splits arrays among ranks, and this is one process",
            code="D0901",
            help="add comm=MPI.COMM_WORLD, or leave out shard",
        )
    return cast("Shard", shard) if ranks_of(comm) > 1 else None


class _Choices(NamedTuple):
    """Arguments of `dlc.trainer` as they were given."""

    text: str | None
    weights: WeightsArgument
    module: str | None
    level: int
    target: str
    device: str | None
    matmul: str
    conv: str
    matmul_precision: str
    costs: str | os.PathLike[str] | None
    accuracy: str


def _training_request(
    path: str, block: str | None, choices: _Choices, settings: Mapping[str, Setting]
) -> CompileRequest:
    """The request for a trainer, its arguments checked."""
    return CompileRequest(
        path=path,
        text=choices.text,
        module=or_none("module", choices.module, str, "the name of a module"),
        block=block,
        parameters=settings_of(settings),
        device=device_or_none(or_none("device", choices.device, str, DEVICE)),
        weights=weights_of(choices.weights),
        settings=Settings(
            whole("level", choices.level),
            target=of_kind("target", choices.target, str, TARGET),
            matmul=of_kind("matmul", choices.matmul, str, '"blas", "generated" or "auto"'),
            matmul_precision=of_kind("matmul_precision", choices.matmul_precision, str, PRECISION),
            accuracy=of_kind("accuracy", choices.accuracy, str, ACCURACY),
            conv=of_kind("conv", choices.conv, str, CONV),
            costs=costs_of(choices.costs),
        ),
    )
