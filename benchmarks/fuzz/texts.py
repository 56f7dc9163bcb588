"""Random model texts: values, first and second derivatives against JAX and our evaluator.

A text has one function of floats and integers; its entry points give its value, the gradient of
`sum(tanh(value))`, and that of the sum of the sines of this gradient.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from random import Random
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.contenders.environment import JAX
from benchmarks.fuzz.cases import Kind, Outcome, reason
from benchmarks.fuzz.closeness import epsilon, judge, near
from benchmarks.fuzz.peer import NoAnswer, Peer
from benchmarks.fuzz.program import DIMS, Axis, Program, Value
from benchmarks.fuzz.program_steps import STEPS
from benchmarks.fuzz.shaken import evaluated
from dlc.dialects import func
from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model
from dlc.errors import ArtifactError, CallError
from dlc.ir.passes import Manager, parse_passes
from dlc.runtime.model import Model

Array: TypeAlias = NDArray[Any]

ENTRIES = ("value", "first", "second")
DTYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16}
MOST_STEPS, FEW_STEPS = 7, 3
LONG = 0.125
"""The part of the texts that has up to `MOST_STEPS`, as of graphs."""
MOST_ELEMENTS = 300
LEAST = (0, 1, 1, 2)
"""Lower bounds of sizes with names."""
AT_BOUNDS = 2
"""The number of the sizes at the lower bounds, behind those of `DIMS`."""


@dataclass(frozen=True, slots=True)
class Case:
    """A program in both languages, and what it is run with."""

    program: Program
    result: Value
    dtype: str
    order: int
    """How many derivatives are taken."""
    seed: int
    least: int
    """The lower bound of its sizes with names."""

    @property
    def floats(self) -> list[Value]:
        """The inputs that derivatives are taken by."""
        return [value for value in self.program.inputs if value.letter == "f"]

    @property
    def python(self) -> str:
        """The program for JAX."""
        names = ", ".join(value.name for value in self.program.inputs)
        lines = "\n".join(f"    {line}" for line in self.program.theirs)
        return f"def g({names}):\n{lines}\n    return {self.result.name}\n"

    def text(self, dtype: str) -> str:
        """The program in our language, in a dtype."""
        inputs, floats = self.program.inputs, self.floats
        declared = ", ".join(f"{v.name}: {v.type}" for v in inputs)
        names = ", ".join(v.name for v in inputs)
        wrt = ", ".join(v.name for v in floats)
        given = ", ".join(v.type for v in floats)
        slopes = " + ".join(f"sum(sin(d{k}))" for k in range(len(floats)))
        bound = ", ".join(f"d{k}" for k in range(len(floats)))
        comma = "," if len(floats) == 1 else ""
        wrt, given, bound = (f"({names}{comma})" for names in (wrt, given, bound))
        lines = [
            "dlc 1",
            *[f"dim {name} = {self.least}..8" for name in sorted(self.program.dims)],
            "fn doubled(x) = x + x",
            "fn mixed(x) = tanh(x * full([size(x, axis=-1)], 0.75, dtype={F})) + x",
            f"fn g({declared}) {{{{",
            *[f"  {line}" for line in self.program.ours],
            f"  return {self.result.name}",
            "}}",
            f"export fn value({declared}) -> {self.result.type} = g({names})",
        ]
        if self.order > 0:
            lines += [
                f"fn loss({declared}) = sum(tanh(g({names})))",
                f"export fn first({declared}) -> {given} = grad(loss, wrt={wrt})({names})",
            ]
        if self.order > 1:
            lines += [
                f"fn slope({declared}) {{{{",
                f"  let {bound} = grad(loss, wrt={wrt})({names})",
                f"  return {slopes}",
                "}}",
                f"export fn second({declared}) -> {given} = grad(slope, wrt={wrt})({names})",
            ]
        return "\n".join(lines).format(F=dtype) + "\n"

    @property
    def eps(self) -> float:
        """The precision of its dtype."""
        return epsilon(np.dtype(DTYPES[self.dtype]))

    def arrays(self, at: int, dtype: str) -> list[Array]:
        """The inputs at some of its sizes, numbers that the program's own dtype holds."""
        sizes = self.sizes(at)
        found: list[Array] = []
        for k, value in enumerate(self.program.inputs):
            stream = np.random.default_rng([self.seed, at, k])
            shape = tuple([sizes.get(axis.text, axis.sizes[0]) for axis in value.shape])
            if value.letter == "i":
                found.append(stream.integers(-6, 7, shape, np.int32))
                continue
            numbers = stream.uniform(-1.5, 1.5, shape).astype(DTYPES[self.dtype])
            found.append(numbers.astype(DTYPES[dtype]))
        return found

    def sizes(self, at: int) -> dict[str, int]:
        """The sizes with names: the first, the second, or the lower bounds."""
        if at == AT_BOUNDS:
            return dict.fromkeys(self.program.dims, self.least)
        return {name: pair[at] for name, pair in self.program.dims.items()}


def random_case(seed: int) -> Case:
    """The case of a seed."""
    random = Random(seed)
    dims = {name: DIMS[name] for name in sorted(DIMS) if random.random() < 0.35}
    program = Program(random, dims)
    for _ in range(random.choice((1, 1, 2))):
        program.input()
    if random.random() < 0.4:
        program.input("i")
    for _ in range(random.randint(2, MOST_STEPS if random.random() < LONG else FEW_STEPS)):
        known, lines = len(program.values), (len(program.ours), len(program.theirs))
        random.choice(STEPS)(program)
        if any(v.elements > MOST_ELEMENTS or v.rank > 5 for v in program.values[known:]):
            del program.values[known:]
            del program.ours[lines[0] :], program.theirs[lines[1] :]
    result = _result(program)
    shown = {name for value in program.inputs for axis in value.shape for name in (axis.text,)}
    program.dims = {name: pair for name, pair in dims.items() if name in shown}
    dtype = random.choices(("f32", "f64", "f16"), (80, 12, 8))[0]
    order = 0 if dtype == "f16" else random.choices((0, 1, 2), (3, 4, 3))[0]
    # Of a stream of its own, so that seeds keep their programs.
    least = Random(f"least {seed}").choice(LEAST)
    return Case(program, result, dtype, order, seed, least)


def _result(program: Program) -> Value:
    """The last value; or all that nothing else uses, one behind the other."""
    floats = [value for value in program.values if value.letter == "f"]
    words = Counter(re.findall(r"\w+", " ".join(program.theirs)))
    unused = [value for value in floats if words[value.name] == 1][-3:]
    if len(unused) < 2 or program.random.random() < 0.3:
        return floats[-1]
    one, two = (sum(_count(value, at) for value in unused) for at in (0, 1))
    text = " + ".join("*".join(f"({axis.text})" for axis in v.shape) or "1" for v in unused)
    ours = ", ".join(f"reshape({value.name}, [_])" for value in unused)
    theirs = ", ".join(f"p.reshape({value.name}, -1)" for value in unused)
    return program.let(f"concat([{ours}])", f"p.concat([{theirs}])", [Axis((one, two), text)])


def _count(value: Value, at: int) -> int:
    return prod(axis.sizes[at] for axis in value.shape)


PEER = Peer("contender_texts.py", "jax", JAX)


def start() -> Callable[[int], Outcome]:
    """What tries one text, with JAX."""
    PEER.start()
    return lambda seed: check(random_case(seed), PEER)


def check(case: Case, peer: Peer | None) -> Outcome:
    """Compare what a text computes with JAX, or without a peer with our evaluator alone."""
    random = Random(~case.seed)
    settings = Settings(random.randrange(4), matmul=random.choice(("blas", "generated")))
    text = case.text(case.dtype)
    model = Model(compile_model(open_model("fuzz.dlm", text=text), settings), threads=1)
    if case.program.dims and (refused := _refused_plan(case, model)):
        return Outcome("wrong", f"-O{settings.level} {refused}\n{text}")
    outcomes: list[Outcome] = []
    for at in range(3 if case.program.dims else 1):
        try:
            outcomes.append(_compared(case, at, model, f"-O{settings.level}", peer))
        except NoAnswer as error:
            return Outcome("no peer", str(error).split("\n")[0])
        except CallError:
            # A text may take elements by number that are not there at its smallest sizes.
            if at != AT_BOUNDS:
                raise
        if outcomes[-1].verdict == "wrong":
            what = f"--matmul {settings.matmul} at {case.sizes(at)}: {outcomes[-1].what}"
            return Outcome("wrong", f"{what}\n{text}")
    model.close()
    count = sum(each.count for each in outcomes)
    unstable = next((each for each in outcomes if each.verdict == "unstable"), None)
    return Outcome("unstable", unstable.what, count) if unstable else Outcome("agreed", "", count)


def _compared(case: Case, at: int, model: Model, level: str, peer: Peer | None) -> Outcome:
    """What the evaluator and the machine code give at some sizes, each entry point beside the peer's."""
    # At the lower bounds, where much is empty, implementations differ in what they refuse.
    judged = _Judge(case, at, None if at == AT_BOUNDS else peer)
    given = case.arrays(at, case.dtype)
    meant = _evaluated(case, at, case.dtype)
    count, unstable = 0, ""
    for k, entry in enumerate(ENTRIES[: case.order + 1]):
        found = _arrays(model.entry_points[entry](*given))
        for who, ours in (("evaluated", meant[k]), (level, found)):
            outcome = judged.of(k, ours)
            count += 1
            if outcome.verdict == "wrong":
                return Outcome("wrong", f"{entry} {who}: {outcome.what}", count)
            unstable = unstable or outcome.what
    return Outcome("unstable", unstable, count) if unstable else Outcome("agreed", "", count)


def _refused_plan(case: Case, model: Model) -> str:
    """Which memory plan is refused at sizes at and near the lower bounds, and why; empty for none."""
    names = sorted(case.program.dims)
    near_bounds = range(case.least, case.least + 3)
    for sizes in itertools.product(near_bounds, repeat=len(names)):
        given = dict(zip(names, sizes, strict=True))
        for entry in model.entry_points.values():
            try:
                entry.working_memory(**given)
            except ArtifactError as error:
                return reason(error)
    return ""


class _Judge:
    """Judges results at one size: by the peer's in f64, and only where they are not near by all else."""

    def __init__(self, case: Case, at: int, peer: Peer | None) -> None:
        self._case, self._at, self._peer = case, at, peer
        self._known: dict[tuple[str, int], Sequence[Sequence[Array]]] = {}

    def of(self, entry: int, found: Sequence[Array]) -> Outcome:
        """What results of an entry point are."""
        eps = self._case.eps
        exact = self._results("f64", 0)[entry]
        rounded = [
            one.astype(other.dtype) if other.dtype.kind == "f" else one
            for one, other in zip(exact, found, strict=True)
        ]
        alike = [
            a.shape == b.shape and a.dtype == b.dtype for a, b in zip(found, rounded, strict=True)
        ]
        if all(alike) and all(near(a, b, eps) for a, b in zip(found, rounded, strict=True)):
            return Outcome("agreed")
        own = self._results(self._case.dtype, 0)[entry]
        return judge(found, own, lambda shake: self._results("f64", shake)[entry], eps)

    def _results(self, dtype: str, shake: int) -> Sequence[Sequence[Array]]:
        case, key = self._case, (dtype, shake)
        if key not in self._known:
            if self._peer is None:
                self._known[key] = _evaluated(case, self._at, dtype, shake)
            else:
                request = case.python, len(case.floats), case.order, case.arrays(self._at, dtype)
                self._known[key] = self._peer.ask(*request, shake, case.eps)
        return self._known[key]


@lru_cache(maxsize=2)
def functions_of(text: str) -> dict[str, func.Func]:
    """The functions of a text by name, derivatives expanded."""
    opened = open_model("fuzz.dlm", text=text)
    Manager(opened.context).run(opened.module, parse_passes("autodiff"))
    return {op.sym_name: op for op in opened.module.body if isinstance(op, func.Func)}


def _evaluated(case: Case, at: int, dtype: str, shake: int = 0) -> list[list[Array]]:
    """The results of all entry points by our evaluator."""
    functions = functions_of(case.text(dtype))
    given, sizes = case.arrays(at, dtype), case.sizes(at)
    return [
        evaluated(functions[name].body, given, sizes, None, shake, case.eps)
        for name in ENTRIES[: case.order + 1]
    ]


def _arrays(found: object) -> list[Array]:
    if isinstance(found, tuple):
        return [np.asarray(one) for one in cast("tuple[Array, ...]", found)]
    return [np.asarray(found)]


KIND = Kind("random model texts against JAX", start)
