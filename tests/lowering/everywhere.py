"""Runs a graph function at every level: evaluated after each pass, and as machine code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np

from dlc.dialects import func, kernel, mem
from dlc.dialects.builtin import Module
from dlc.dialects.interface import bounds_attribute
from dlc.driver.compile.build_artifact import Sources, build_artifact, interface_of
from dlc.driver.compile.cache import open_cache
from dlc.driver.compile.code_maker import CodeMaker
from dlc.driver.compile.pipelines import pipeline
from dlc.driver.source.weight_sources import Weights
from dlc.evaluation.compare_levels import Compare, compare_loops, planned_copy
from dlc.evaluation.plan import evaluate_plan
from dlc.ir.attributes import decode
from dlc.ir.clone import clone_block
from dlc.ir.core import Array, Block, Builder, Evaluation, Op, Value
from dlc.ir.fingerprint import fingerprint
from dlc.ir.location import FileLocation
from dlc.ir.passes import Context, Manager, Options, Pipeline
from dlc.ir.types import DType, TensorType
from dlc.ir.verify import verify
from dlc.planning.return_counts import return_counts
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.artifact.manifest import Entry
from dlc.runtime.cpu.features import host_features
from dlc.runtime.model import Model
from dlc.target import Target
from dlc.target.cpu import CpuTarget
from dlc.text.ir.printer import print_module

Program = Callable[..., Sequence[Value]]
"""Places operations with the builder on the arguments and gives the results."""

LOOP_STEPS = 3000
"""Operations of the loops of each kernel that are evaluated."""

HERE = FileLocation("program.dlm", 1, 1)


def function_of(
    program: Program, types: Sequence[TensorType], dims: Mapping[str, tuple[int, int | None]]
) -> tuple[Module, func.Func]:
    """A module with one function `f`."""
    body = Block(types, [f"x{k}" for k in range(len(types))])
    emit = Builder(body, HERE)
    results = program(emit, *body.arguments)
    emit.place(func.Return(list(results)))
    made = func.Func(body, "f", func.signature(body, results))
    if dims:
        made.attributes["dlc.dims"] = bounds_attribute(dict(dims))
    module = Module.empty(HERE)
    Builder(module.body, HERE).place(made)
    return module, made


def random_inputs(
    types: Sequence[TensorType], dims: Mapping[str, int], seed: int = 0
) -> list[Array]:
    """Normal numbers for floats, small ones for integers."""
    random = np.random.default_rng(seed)
    at = Evaluation(dims)
    inputs: list[Array] = []
    for type in types:
        values = random.standard_normal(at.shape(type.shape))
        scaled = values if type.dtype.is_float else values * 3
        inputs.append(np.asarray(scaled).astype(type.dtype.numpy))
    return inputs


def check(
    program: Program,
    *types: TensorType,
    level: int = 2,
    matmul: str = "auto",
    conv: str = "auto",
    dims: Mapping[str, tuple[int, int | None]] | None = None,
    at: Sequence[Mapping[str, int]] = ({},),
    rtol: float = 1e-5,
    target: Target | None = None,
) -> Context:
    """Compare machine code, and the evaluation after every pass, with the evaluated graph.

    With `dims`, everything is compared at each of the sizes `at`. Vectors wider than the processor's
    are several registers in machine code.
    """
    context = Context(options=Options(level=level, matmul=matmul, conv=conv, target=target))
    module, function = function_of(program, types, dims or {})
    return_counts(function)
    visible = len(function.results_returned) - function.hidden_results
    original = clone_block(function.body)
    cases = [(sizes, random_inputs(types, sizes)) for sizes in at]
    expected = [Evaluation(sizes).run(original, inputs) for sizes, inputs in cases]
    entry = interface_of(function)

    plans: list[mem.Program] = []
    seen: list[object] = [None]

    def compare(name: str, changed: Op) -> None:
        seen.append(fingerprint(changed))
        if seen[-1] == seen[-2]:  # the pass has left everything as it was
            return
        verify(changed)
        assert isinstance(changed, Module)
        now = changed.symbol("f")
        if isinstance(now, mem.Program) and name == "plan_memory":
            plans.append(planned_copy(now))
            for (sizes, inputs), wanted in zip(cases, expected, strict=True):
                assert_close(evaluate_plan(now, inputs, sizes), wanted, rtol, name)
        if isinstance(now, mem.Program) and name == "lower_to_loops":
            for sizes, inputs in cases:
                compare_loops(
                    plans[0], now, inputs, Evaluation(sizes), same_as_loops(rtol), LOOP_STEPS
                )
        if isinstance(now, func.Func):
            for (sizes, inputs), wanted in zip(cases, expected, strict=True):
                assert_close(Evaluation(sizes).run(now.body, inputs), wanted, rtol, name)

    Manager(context, after=compare).run(module, pipeline("graph", "loop", level))
    if target is not None and _needs_other_processor(context, target):
        return context  # no instructions of this one take the place of its own
    artifact = artifact_of(module, entry, level)
    for threads in (1, 2):
        model = Model(artifact, threads=threads)
        for (_, inputs), wanted in zip(cases, expected, strict=True):
            assert_close(called(model, inputs), wanted[:visible], rtol, "machine code")
    return context


def model_of(
    program: Program,
    types: Sequence[TensorType],
    options: Options,
    *,
    threads: int = 1,
    target: str = "host",
) -> Model:
    """A program as machine code, compiled without looking at what happens between."""
    module, function = function_of(program, types, {})
    return_counts(function)
    entry = interface_of(function)
    Manager(Context(options=options)).run(module, pipeline("graph", "loop", options.level))
    return Model(artifact_of(module, entry, options.level, target), threads=threads)


def _needs_other_processor(context: Context, target: Target) -> bool:
    """Whether the code has products of pairs that this machine lacks."""
    host = host_features()
    if target.cpu.dot_bf16 and "avx512bf16" not in host:
        return True
    in_pairs = any("pairs of i16" in each.what for each in context.log)
    wide = target.cpu.vector_bytes == 64
    return in_pairs and wide and "avx512bw" not in host


def artifact_of(module: Module, entry: Entry, level: int, target: str = "host") -> Artifact:
    """The artifact of a module of loops with one entry point."""
    code = CodeMaker(CpuTarget.named(target), level, open_cache())
    sources = Sources("program.dlm", {"program.dlm": "dlc 1\n"}, "")
    return build_artifact(module, (entry,), Weights((), memoryview(b"")), sources, code)


def called(model: Model, inputs: Sequence[Array], arena: object = None) -> list[Array]:
    """The results of the entry point `f`, which may be lent memory."""
    given = model.f(*inputs, arena=arena)
    if not isinstance(given, tuple):
        return [np.asarray(given)]
    return [np.asarray(cast("object", result)) for result in given]  # pyright: ignore[reportUnknownVariableType]


def assert_close(found: Sequence[Array], wanted: Sequence[Array], rtol: float, when: str) -> None:
    """Equal up to `rtol` of the largest element of each result; integers and bools exactly."""
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        found_values, wanted_values = one.astype(np.float64), other.astype(np.float64)
        finite = np.abs(wanted_values[np.isfinite(wanted_values)])
        scale = float(np.max(finite, initial=1.0)) if other.dtype.kind == "f" else 0
        np.testing.assert_allclose(
            found_values, wanted_values, rtol=rtol, atol=rtol * scale, err_msg=when
        )


def same_as_loops(rtol: float) -> Compare:
    """Asserts that loops write what the kernel computes, up to `rtol` of the largest element."""

    def compare(op: kernel.Kernel, wanted: Array, found: Array, _: Array, dtype: DType) -> None:
        values = [decode(array, dtype) for array in (found, wanted)]
        assert_close(values[:1], values[1:], rtol, f"the loops of {op.name}")

    return compare


def text_after(program: Program, types: Sequence[TensorType], passes: Pipeline) -> str:
    """The module after some passes, as text."""
    module, _ = function_of(program, types, {})
    Manager(Context()).run(module, passes)
    return print_module(module)
