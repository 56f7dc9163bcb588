"""What is compiled for a GPU, run there, and compared: operations, derivatives, programs, networks.

A case is compiled in one process and run in another, so it is known by names; `compile` gives artifacts as
bytes. `check` runs them and raises what a test fails with. Operations and derivatives are compared with
their evaluation in NumPy, programs likewise, networks and steps of training with the processor's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.gpu import kernels as gpu_kernels
from dlc.dialects import func
from dlc.dialects.builtin import Module
from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.settings import Settings
from dlc.driver.run.calls import Arguments, CallRequest, call, call_with
from dlc.driver.run.inputs import random_value
from dlc.driver.run.interpret import evaluate_entry
from dlc.driver.run.request import CompileRequest
from dlc.driver.source.open import open_training
from dlc.driver.source.source_model import SourceModel
from dlc.errors import CallError
from dlc.ir.attributes import decode
from dlc.ir.core import OPS, Block, Builder
from dlc.ir.passes import Context
from dlc.ir.types import TensorType
from dlc.runtime.arrays.dtypes import DTYPES
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import Entry, Input
from dlc.runtime.cuda.devices import driver_of
from dlc.runtime.model import Model
from dlc.runtime.training.trainer import Trainer
from tests.op_examples.calls import as_argument, given_dims, stored
from tests.op_examples.derivative import by_differences, derivative, inputs_of
from tests.op_examples.every import OPERATORS
from tests.op_examples.example import EXAMPLES, HERE, TOLERANCE, Example, Numbers

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests/conformance/programs"
NO_WEIGHTS = "init:0"

MOST = 64
"""The upper bound of each named size of an example."""
SECONDS = 60.0
"""How long the check of a case may take."""
NETWORK_SECONDS = 150.0
"""The same where the processor computes a network, too, beside processes that compile."""
CALLS = 3
"""Kernel by kernel, as a graph that was just made, and as one that is kept."""
PROGRAM_TOLERANCE = {"f64": 1e-12, "f32": 5e-6, "f16": 2e-3, "bf16": 1e-2}
"""Of the largest magnitude of a result; integers and conditions are equal."""
NETWORK_TOLERANCE = {"f64": 1e-9, "f32": 1e-3, "f16": 3e-2, "bf16": 1e-1}
"""The same after the many layers of a network, each of which adds in another order."""
CHOOSING = ("mlp in bf16", "resnet50 in bf16", "detector")
"""Networks that only tell the likeliest class, or faces: of two that are nearly alike rounding chooses."""


class Case(Protocol):
    """One thing to compile and compare."""

    @property
    def title(self) -> str: ...

    @property
    def seconds(self) -> float:
        """How long checking may take; a kernel that hangs takes longer."""
        ...

    def compile(self, target: str) -> list[bytes]:
        """Artifacts for a GPU, and behind it perhaps one for the processor to compare with."""
        ...

    def check(self, artifacts: Sequence[bytes]) -> None:
        """Run them. Raises AssertionError where results differ."""
        ...


# Operations ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Operator:
    """Every example of an operation, each a function of one model."""

    name: str
    level: int
    most: int | None = None
    """Only so many examples."""

    seconds: float = SECONDS

    @property
    def title(self) -> str:
        return f"{self.name}-O{self.level}"

    @property
    def _examples(self) -> Sequence[Example]:
        return EXAMPLES[self.name][: self.most]

    def compile(self, target: str) -> list[bytes]:
        blocks = [(example.block()[0], example) for example in self._examples]
        return [_compiled(blocks, Settings(self.level, target=target))]

    def check(self, artifacts: Sequence[bytes]) -> None:
        with Model.from_bytes(artifacts[0]) as model:
            for number, example in enumerate(self._examples):
                block, op = example.block()
                found = _results(model, number, example, [as_argument(x) for x in example.inputs])
                for value, one, other in zip(op.results, found, example.run(block), strict=True):
                    assert isinstance(value.type, TensorType)
                    dtype = value.type.dtype
                    tolerance = 4 * TOLERANCE[dtype] if dtype.is_float else 0
                    what = f"{self.name}, example {number}: {op}"
                    _close(decode(one, dtype), decode(other, dtype), tolerance, what)


@dataclass(frozen=True)
class Derivatives:
    """The derivatives of an operation's smooth examples, of an order, in f64."""

    name: str
    order: int
    most: int | None = None

    seconds: float = SECONDS

    @property
    def title(self) -> str:
        return f"{self.name}-order{self.order}"

    @property
    def examples(self) -> Sequence[Example]:
        """Those that are differentiated."""
        found = [each for each in EXAMPLES[self.name] if each.is_smooth]
        return [each for each in found if self.order <= each.orders][: self.most]

    def compile(self, target: str) -> list[bytes]:
        blocks = [(derivative(example, self.order), example) for example in self.examples]
        return [_compiled(blocks, Settings(2, target=target))]

    def check(self, artifacts: Sequence[bytes]) -> None:
        with Model.from_bytes(artifacts[0]) as model:
            for number, example in enumerate(self.examples):
                given = inputs_of(example, self.order)
                found = _results(model, number, example, given)
                for one, wanted in zip(found, by_differences(example, self.order), strict=True):
                    _close(one, wanted, 1e-6, f"{self.name}, example {number}")


def derivatives() -> list[Derivatives]:
    """Of every operation that has some."""
    found = [
        Derivatives(name, order)
        for name in OPERATORS
        for order in (1, 2)
        if not OPS[name].not_differentiable
    ]
    return [case for case in found if case.examples]


def _compiled(blocks: Sequence[tuple[Block, Example]], settings: Settings) -> bytes:
    """A model with a function of each block, `f0` and so on."""
    module = Module.empty(HERE)
    for number, (block, example) in enumerate(blocks):
        for place, argument in enumerate(block.arguments):
            argument.name = f"x{place}"
        made = func.Func(block, f"f{number}", func.signature(block, block.terminator.operands))
        example.bound(made, MOST)
        Builder(module.body, HERE).place(made)
    opened = SourceModel(module, Context(), "examples.dlm", {"examples.dlm": "dlc 1\n"}, Path())
    return bytes(compile_model(opened, settings).to_bytes())


def _results(model: Model, number: int, example: Example, given: Sequence[object]) -> list[Numbers]:
    """What a function gives, as the evaluator holds it: bf16 as its bits."""
    entry = cast("Callable[..., object]", model[f"f{number}"])
    found = entry(*given, **given_dims(example))
    results = cast("tuple[object, ...]", found) if isinstance(found, tuple) else (found,)
    return [stored(result) for result in results]


def _close(found: Numbers, wanted: Numbers, tolerance: float, what: str) -> None:
    """Equal up to the tolerance of the largest element."""
    one, other = found.astype(np.float64), wanted.astype(np.float64)
    finite = np.abs(other[np.isfinite(other)])
    scale = max(1.0, float(np.max(finite, initial=0)))
    np.testing.assert_allclose(one, other, tolerance, tolerance * scale, err_msg=what)


# Programs and networks ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """A text whose functions are compared with their evaluation."""

    path: str
    level: int = 2

    seconds: float = SECONDS

    @property
    def title(self) -> str:
        return Path(self.path).stem

    def compile(self, target: str) -> list[bytes]:
        wanted = CompileRequest(str(ROOT / self.path))
        made = compile_model(wanted.open(), Settings(self.level, target=target), NO_WEIGHTS)
        return [bytes(made.to_bytes())]

    def check(self, artifacts: Sequence[bytes]) -> None:
        path = str(ROOT / self.path)
        with Model.from_bytes(artifacts[0]) as model:
            for entry in model.entry_points:
                request = CallRequest(path, entry, seed=3)
                wanted, _ = evaluate_entry(
                    CompileRequest(path, weights=NO_WEIGHTS).open(), request, NO_WEIGHTS
                )
                for found in [call(model, request) for _ in range(CALLS)]:
                    pairs = zip(wanted.values, found.values, strict=True)
                    for (_, one), (_, other) in pairs:
                        _agree(other, one, PROGRAM_TOLERANCE, entry)


@dataclass(frozen=True)
class Conditions:
    """Loops and branches that the device decides on.

    Where the driver refused them, the host would, and nothing else would tell.
    """

    title: str = "conditions"
    seconds: float = SECONDS

    def compile(self, target: str) -> list[bytes]:
        opened = CompileRequest(str(ROOT / "tests/gpu/conditions.dlm")).open()
        return [bytes(compile_model(opened, Settings(target=target)).to_bytes())]

    def check(self, artifacts: Sequence[bytes]) -> None:
        with Model.from_bytes(artifacts[0]) as model:
            for a in (9, 4, 2):
                found = np.asarray(model.root(np.float32(a)))
                np.testing.assert_allclose(found, np.sqrt(a), rtol=1e-5)
            for a in (1, -1, 2, -2):
                wanted = np.exp(a) if a > 0 else -a
                found = np.asarray(model.either(np.float32(a)))
                np.testing.assert_allclose(found, wanted, rtol=1e-5)
            with pytest.raises(CallError, match="limit of 100"):
                model.root(np.float32(1e30))
            assert driver_of(model.device).condition_refusal == ""


@dataclass(frozen=True)
class Network:
    """A model whose functions are compared with the processor's, and profiled between two calls."""

    name: str

    seconds: float = NETWORK_SECONDS

    @property
    def title(self) -> str:
        return self.name

    def compile(self, target: str) -> list[bytes]:
        return [_network(self.name, target), _network(self.name, "cpu")]

    def check(self, artifacts: Sequence[bytes]) -> None:
        on_gpu, on_cpu = (Model.from_bytes(data) for data in artifacts)
        with on_gpu, on_cpu:
            for entry in on_cpu.entry_points:
                arguments = _arguments(on_cpu, entry)
                wanted = call_with(on_cpu, arguments)
                calls = [call_with(on_gpu, arguments) for _ in range(CALLS)]
                profile = on_gpu.entry_points[entry].profile(rounds=1, **arguments.named)
                assert profile.kernels_ms > 0, "no kernel has taken any time"
                for found in [*calls, call_with(on_gpu, arguments)]:
                    for (_, one), (_, other) in zip(found.values, wanted.values, strict=True):
                        _agree(one, other, tolerances(self.name), entry)


@dataclass(frozen=True)
class Training:
    """Steps of training, compared with the processor's by their losses.

    `name` is that of a model, or the path of a text. Metrics count how often the likeliest is right: in
    bf16, where rounding chooses between two that are nearly alike, they are not compared.
    """

    name: str
    steps: int = 3

    seconds: float = NETWORK_SECONDS

    @property
    def title(self) -> str:
        return self.name

    @property
    def is_narrow(self) -> bool:
        return gpu_kernels.IN_BF16 in self.name

    def compile(self, target: str) -> list[bytes]:
        return [_network(self.name, target), _network(self.name, "cpu")]

    def check(self, artifacts: Sequence[bytes]) -> None:
        found, wanted = (
            _losses(Trainer(Artifact.from_bytes(data)), self.steps, metrics=not self.is_narrow)
            for data in artifacts
        )
        assert all(np.isfinite(wanted)), wanted
        tolerance = tolerances(self.name)["f32"]
        np.testing.assert_allclose(found, wanted, rtol=tolerance, err_msg=self.name)


def tolerances(name: str) -> Mapping[str, float]:
    """In bf16 the f32 that a network gives is as exact as its layers."""
    narrow = {"f32": NETWORK_TOLERANCE["bf16"]} if gpu_kernels.IN_BF16 in name else {}
    return {**NETWORK_TOLERANCE, **narrow}


def _arguments(model: Model, entry: str) -> Arguments:
    """Random arguments for an entry point; bytes are letters, which every table has a row for."""
    request = CallRequest(model.name, entry, seed=0)
    drawn = request.arguments([point.entry for point in model.entry_points.values()])
    named = dict(drawn.named)
    for item in model.entry_points[entry].inputs:
        if item.dtype == "u8" and item.name in named:
            named[item.name] = cast("NDArray[np.uint8]", named[item.name]) % 128
    return Arguments(drawn.entry, named)


def networks() -> list[Network]:
    """The models of the examples and benchmarks, and the light graphs."""
    names = [name for name in gpu_kernels.models() if not name.endswith(", training")]
    return [Network(name) for name in names if name not in CHOOSING]


def trainings() -> list[Training]:
    """Those of them that train; in bf16 a single step, after which rounding leads each its own way."""
    names = [name for name in gpu_kernels.models() if name.endswith(", training")]
    return [Training(name, 1 if gpu_kernels.IN_BF16 in name else 3) for name in names]


def _network(name: str, target: str) -> bytes:
    is_text = name.endswith(".dlm")
    opened = open_training(ROOT / name) if is_text else gpu_kernels.models()[name]()
    return bytes(compile_model(opened, Settings(target=target), NO_WEIGHTS).to_bytes())


def _losses(trainer: Trainer, steps: int, *, metrics: bool) -> list[float]:
    """The losses of some steps with the same numbers, and the loss, or all, that is measured after them."""
    facts = trainer.facts
    trainer.total_steps = steps
    inputs: dict[str, Input] = {}
    entries = [point.entry for point in trainer.model.entry_points.values()]
    for entry in entries:
        inputs.update({item.name: item for item in entry.inputs if item.name in facts.inputs})
    sizes = _sizes(entries)
    batch = {name: _example(item, sizes) for name, item in inputs.items()}
    step, measure = (
        {name: batch[name] for name in batch if name in {item.name for item in entry.inputs}}
        for entry in entries_by_name(entries)
    )
    losses = [trainer.step(**step) for _ in range(steps)]
    measured = trainer.measure(**measure)
    return [*losses, *measured.values()] if metrics else [*losses, measured["loss"]]


def _example(item: Input, sizes: Mapping[str, int]) -> Tensor:
    """Numbers for an input of a loss: 0 to 1, or whole ones that every table has a row for."""
    drawn = Tensor(random_value(item, sizes, 0))
    values = np.asarray(drawn.values(), np.float64)
    return Tensor(values % (1 if DTYPES[item.dtype].kind == "f" else 2), item.dtype)


def entries_by_name(entries: Sequence[Entry]) -> Sequence[Entry]:
    """The step, then the evaluation."""
    found = {entry.name: entry for entry in entries}
    return found["train_step"], found["evaluate"]


def _sizes(entries: Sequence[Entry]) -> Mapping[str, int]:
    """A number for each size: the nearest to 4."""
    return {
        dim.name: max(dim.lower, 4 if dim.upper is None else min(4, dim.upper))
        for entry in entries
        for dim in entry.dims
    }


def _agree(found: Tensor, wanted: Tensor, tolerance: Mapping[str, float], what: str) -> None:
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), what
    if wanted.dtype not in tolerance:
        assert found.tolist() == wanted.tolist(), what
        return
    one, other = (_numbers(tensor) for tensor in (found, wanted))
    scale = max(float(np.abs(other[np.isfinite(other)]).max(initial=0)), 1e-6)
    np.testing.assert_allclose(one, other, 0, tolerance[wanted.dtype] * scale, err_msg=what)


def _numbers(tensor: Tensor) -> NDArray[np.float64]:
    return np.asarray(tensor.values()).astype(np.float64)
