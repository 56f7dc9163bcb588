"""Runs operators or models between guard pages: `python -m tests.runtime.cpu.guarded_runs operators 9 0`.

That is every ninth one, from the first on. A read or write outside an array ends the process, so the name
of what runs is printed before it does; results are compared with those in usual memory.
"""

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.dialects import func
from dlc.driver.compile.build_artifact import Sources, build_artifact, interface_of
from dlc.driver.compile.cache import open_cache
from dlc.driver.compile.code_maker import CodeMaker
from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.entries import entry_functions
from dlc.driver.compile.pipelines import pipeline
from dlc.driver.compile.settings import Settings
from dlc.driver.run.calls import CallRequest
from dlc.driver.run.inputs import ZEROS
from dlc.driver.source.open import open_model
from dlc.driver.source.weight_sources import Weights
from dlc.ir.passes import Context, Manager
from dlc.planning.return_counts import return_counts
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.calling.dim_binding import DimBinder
from dlc.runtime.model import Model
from dlc.runtime.system.buffers import as_bytes
from tests import example_models
from tests.op_examples.every import OPERATORS
from tests.op_examples.example import EXAMPLES, Example
from tests.runtime.cpu.guard_pages import guarded_copy, guarding

Array = NDArray[np.generic]
Run = Callable[[bool | None], Sequence[Array]]
"""Runs something with guards behind arrays, in front of them, or (None) in usual memory."""


def operators() -> Iterator[tuple[str, Run]]:
    """All examples of operations, as written and optimised."""
    for name in OPERATORS:
        for number, example in enumerate(EXAMPLES.get(name, ())):
            for level in (0, 2):
                yield f"{name} {number} -O{level}", run_of(example, level)


def run_of(example: Example, level: int) -> Run:
    def run(after: bool | None) -> Sequence[Array]:
        model = Model(compiled(example, Settings(level)), threads=1)
        given = [placed(each.array, after) for each in example.inputs]
        pairs = zip(given, example.inputs, strict=True)
        named = {name: n for name, n in example.dims.items() if name in free_of(model)}
        values = [Tensor.from_bits(bits, each.dtype.name) for bits, each in pairs]
        return bits_of(model.main(*values, **named))  # pyright: ignore[reportArgumentType]

    return run


def compiled(example: Example, settings: Settings) -> Artifact:
    """An example of an operation as an artifact."""
    module = example.module()
    main = module.symbol("main")
    assert isinstance(main, func.Func)
    return_counts(main)
    entry, level = interface_of(main), settings.level
    Manager(Context(options=settings.options())).run(module, pipeline("graph", "loop", level))
    sources = Sources("example.dlm", {"example.dlm": "dlc 1\n"}, "")
    code = CodeMaker(settings.processor, level, open_cache())
    return build_artifact(module, (entry,), Weights((), memoryview(b"")), sources, code)


def free_of(model: Model) -> Sequence[str]:
    """The sizes that are given by name."""
    return DimBinder(model.main.entry).free


def models() -> Iterator[tuple[str, Run]]:
    """All entry points of the examples, optimised, with random inputs; integers may be indices: 0."""
    for name in example_models.NAMES:
        for function in entry_functions(example_models.opened(name).module):
            yield f"{name} {function.sym_name}", model_run(name, function.sym_name)


@cache
def compiled_model(name: str) -> Artifact:
    """An example model as an artifact."""
    return compile_model(example_models.opened(name), Settings(), "init:0")


def model_run(name: str, entry_name: str) -> Run:
    def run(after: bool | None) -> Sequence[Array]:
        artifact = compiled_model(name)
        (entry,) = [each for each in artifact.manifest.entries if each.name == entry_name]
        dims = {dim.name: dim.lower + 1 for dim in entry.dims if dim.measured is None}
        integers = [item for item in entry.inputs if item.dtype[0] in "iu"]
        inputs = {item.name: ZEROS for item in integers}
        request = CallRequest(name, entry.name, inputs, dims, seed=0)
        weights = placed(as_bytes(artifact.section("weights")), after)
        model = Model(artifact.with_weights(weights.data), threads=2)
        points = [point.entry for point in model.entry_points.values()]
        found = request.arguments(points)
        named = {name: moved(value, after) for name, value in found.named.items()}
        return bits_of(model.entry_points[found.entry](**named))  # pyright: ignore[reportArgumentType]

    return run


def moved(value: object, after: bool | None) -> object:
    """An argument whose elements lie between guards; sizes are as they were."""
    match value:
        case Tensor():
            return Tensor.from_bits(placed(value.bits, after), value.dtype)
        case np.ndarray():
            return placed(cast("Array", value), after)
        case _:
            return value


EMPTY_PADDED: Sequence[tuple[str, Sequence[tuple[int, ...]]]] = (
    ("f32[_, 5] = pad(x, [[2, 1], [0, 0]]) + 1", [(0, 5)]),
    ("f32[3, _] = 2 * pad(transpose(x), [[0, 0], [2, 1]])", [(0, 3)]),
    ("f32[_, 5] = exp(concat([x, y, x], axis=0))", [(0, 5), (3, 5)]),
    ("f32[1, _, _, 2] = max_pool2d(x, 2, stride=1, padding=1)", [(1, 0, 4, 2)]),
    ("f32[1, _, _, 2] = avg_pool2d(x, 2, stride=1, padding=1)", [(1, 0, 0, 2)]),
    ("f32[1, _, 5] = conv(x, y, padding=3)", [(1, 0, 4), (3, 4, 5)]),
    ("f32[1, _, _, 5] = conv(x, y, padding=3)", [(1, 0, 0, 4), (3, 3, 4, 5)]),
    ("f32[1, _, _, 5] = conv(x, y, padding=[[2, 1], [2, 1]])", [(1, 0, 0, 4), (3, 3, 4, 5)]),
    ("f32[1, _, _, 8] = conv(x, y, padding=3, groups=8)", [(1, 0, 0, 8), (3, 3, 1, 8)]),
    ("f32[1, _, _, 5] = f32(conv(f16(x), f16(y), padding=3))", [(1, 0, 0, 4), (3, 3, 4, 5)]),
    ("f32[1, _, _, 5] = conv_transpose(x, y)", [(1, 0, 0, 4), (3, 3, 4, 5)]),
)
"""Results that read around or beside x, and the shapes of x and y, in which 0 has a name or is a number."""


def empty_arrays() -> Iterator[tuple[str, Run]]:
    """Programs with an empty input, which is padded, joined to others, or met by windows."""
    for result, shapes in EMPTY_PADDED:
        for size in ("N", "0"):
            types = [f"f32[{', '.join(str(n) if n else size for n in shape)}]" for shape in shapes]
            inputs = ", ".join(map("{}: {}".format, "xy", types))
            text = f"dlc 1\ndim N = 0..\nexport fn main({inputs}) -> {result}\n"
            for level in (0, 2, 3):
                yield f"{result} {size} -O{level}", text_run(text, shapes, level)


def text_run(text: str, shapes: Sequence[tuple[int, ...]], level: int) -> Run:
    def run(after: bool | None) -> Sequence[Array]:
        opened = open_model("m.dlm", text=text)
        model = Model(compile_model(opened, Settings(level)), threads=1)
        return bits_of(model.main(*[placed(np.ones(shape, np.float32), after) for shape in shapes]))

    return run


def placed(array: Array, after: bool | None) -> Array:
    return array.copy() if after is None else guarded_copy(array, after=after)


def bits_of(result: object) -> list[Array]:
    """The results as unsigned numbers: NaN is equal to itself."""
    several = cast("tuple[object, ...]", result) if isinstance(result, tuple) else (result,)
    found = [x.bits if isinstance(x, Tensor) else np.asarray(x) for x in several]
    return [np.frombuffer(x.tobytes(), np.uint8) for x in found]


def check(run: Run) -> None:
    """Compare what comes out between guards with what does in usual memory."""
    wanted = run(None)
    patch = pytest.MonkeyPatch()
    for after in (True, False):
        with guarding(patch, after=after):
            found = run(after)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)


KINDS = {"operators": operators, "models": models, "empty": empty_arrays}
"""What may run, by the names on the command line."""


def main(what: str, every: int, first: int) -> None:
    faulthandler.enable()
    for number, (name, run) in enumerate(KINDS[what]()):
        if number % every == first:
            print(name, flush=True)
            check(run)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
