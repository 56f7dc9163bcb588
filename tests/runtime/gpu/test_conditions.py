"""Loops and branches that the device decides on: one launch for the whole program, and the same results."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.codegen.nvptx.ptx import find_ptxas, has_ptxas
from dlc.driver.compile.settings import Settings
from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.errors import CallError
from dlc.runtime.abi import STEP_WORDS, ArgKind, Opcode, Root
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.cuda.driver import ConditionKernels, Driver, Kernel
from dlc.runtime.gpu.conditions import PTX
from dlc.runtime.gpu.errors import WAIT
from dlc.runtime.gpu.graphs import GraphMaker
from dlc.runtime.gpu.segments import IfNode, Item, Launch, WhileNode
from dlc.runtime.gpu.steps import IMMEDIATE, StepTable
from dlc.runtime.model import Model
from tests.runtime.gpu.fake_gpu import FakeGpu, Graph, Modules, fake_gpu
from tests.suites import every

EXAMPLES = Path(__file__).parents[3] / "examples"
Array = NDArray[np.generic]
TEXT = """dlc 1
dim B = 1..16
export fn root(a: f32) -> f32 =
  while abs(x * x - a) > 1e-5 with x = a limit 100 { next x = (x + a / x) / 2 }
export fn roots(a: f32[B]) -> f32[B] =
  while any(abs(x * x - a) > 1e-5) with x = a limit 100 { next x = (x + a / x) / 2 }
export fn either(a: f32, x: f32[B]) -> f32[B] = if a > 0.0 then exp(x) else -x
export fn chosen(c: bool, x: f32[2]) -> f32[2] = if c then 2 * x else -x
export fn nested(n: f32, k: f32) -> f32 {
  let (s, ..) = while i < n with s = 0.0, i = 0.0 limit 50 {
    next s = if s < 20.0 then added(s, k) else s - 7
    next i = i + 1
  }
  return s
}
fn added(s: f32, k: f32) -> f32 {
  let (t, ..) = while j < k with t = s, j = 0.0 limit 9 {
    next t = t + j + 1
    next j = j + 1
  }
  return t
}
export fn stepped(x: f32[4], n: f32) -> f32[4] {
  let (.., y) = scan k in x with z = 0.0 {
    next z = added(z, k) * n
    yield z
  }
  return y
}
export fn looped(x: f32[4], n: f32) -> f32 {
  let (s, ..) = while i < n with s = 1.0, i = 0.0 limit 9 {
    let t = scan y in x with t = s { next t = if t > 9 then t / 4 else t * 2 + y }
    next s = t
    next i = i + 1
  }
  return s
}
export fn walked(x: f32[4], i: i64[2]) -> f32 =
  while s >= 0 with s = 0.0 limit 5 { next s = s + sum(x[i]) }
export fn picked(x: f32[4], n: i64[1]) -> f32[1] {
  let i = while all(i < n) with i = n - n limit 5 { next i = i + 1 }
  return x[i]
}
export fn later(x: f32[4], n: i64[1]) -> f32 {
  let (s, ..) = while s < 100 with s = 0.0, k = n - n limit 4 {
    let i = while all(i < n) with i = k limit 5 { next i = i + 1 }
    next s = s + sum(x[i - 3])
    next k = k - 1
  }
  return s
}
export fn endless(x: f32) -> f32 = while s >= 0 with s = x { next s = s + 1 }
"""


@pytest.fixture(scope="module")
def compiled_for_gpu() -> tuple[Artifact, Modules]:
    """The text for a GPU, and its kernels."""
    modules: Modules = {}
    with fake_gpu(modules):
        wanted = CompileRequest("model.dlm", text=TEXT, settings=Settings(target="cuda:sm_80"))
        return make_artifact(wanted).artifact, modules


@pytest.fixture
def fake(compiled_for_gpu: tuple[Artifact, Modules]) -> Iterator[FakeGpu]:
    with fake_gpu(compiled_for_gpu[1]) as found:
        yield found


@pytest.fixture(scope="module")
def compiled() -> Model:
    """The same for a processor."""
    return dlc.compile(text=TEXT, threads=1)


@pytest.fixture
def model(fake: FakeGpu, compiled_for_gpu: tuple[Artifact, Modules]) -> Model:
    return Model(compiled_for_gpu[0])


def f32(*values: float) -> Array:
    return np.array(values, np.float32).reshape(() if len(values) == 1 else -1)


def same(found: object, wanted: object) -> None:
    np.testing.assert_allclose(
        np.asarray(found, np.float32), np.asarray(wanted, np.float32), rtol=1e-5
    )


def launches(fake: FakeGpu) -> int:
    """How often graphs were launched."""
    return sum(graph.launches for graph in fake.graphs)


def bodies(graph: Graph) -> int:
    return len(list(graph.with_bodies())) - 1


CALLS: dict[str, list[tuple[Array, ...]]] = {
    "root": [(f32(9),), (f32(2),), (f32(1),), (f32(1e-3),)],
    "either": [(f32(a), f32(1, 2)) for a in (1, -1, 1)],
    "nested": [(f32(n), f32(k)) for n, k in ((7, 3), (0, 3), (9, 0), (12, 5))],
    "looped": [(f32(1, 5, 3, 2), f32(n)) for n in (3, 0, 5)],
    "stepped": [(f32(*x), f32(2)) for x in ((1, 0, 3, 2), (0, 0, 0, 5), (3, 3, 3, 3))],
}


@pytest.mark.parametrize("entry", every(5, CALLS))
def test_a_program_with_conditions_is_one_launch_from_the_second_call_on(
    fake: FakeGpu, model: Model, compiled: Model, entry: str
) -> None:
    same(model[entry](*CALLS[entry][0]), compiled[entry](*CALLS[entry][0]))
    before, made = launches(fake), len(fake.graphs)
    for number, arguments in enumerate(CALLS[entry], start=1):
        found = np.asarray(model[entry](*arguments))
        same(found, compiled[entry](*arguments))
        assert launches(fake) == before + number
    (graph,) = fake.graphs[made:]
    assert bodies(graph) > 0


class Noted:
    """Notes what is put into graphs: where, what, and behind what."""

    supports_conditions = True
    condition_kernels = ConditionKernels(Kernel("branch", 1), Kernel("round", 1))

    def __init__(self) -> None:
        self.nodes: list[tuple[str, str, list[str]]] = []

    def create_graph(self) -> str:
        return "whole"

    def _node(self, graph: str, what: str, after: Sequence[str]) -> str:
        self.nodes.append((graph, what, list(after)))
        return what

    def add_kernel_node(
        self, graph: str, kernel: Kernel, tiles: int, words: Sequence[int], after: Sequence[str]
    ) -> str:
        number = f" {words[0]}" if kernel in self.condition_kernels else ""
        return self._node(graph, f"{kernel.function}{number}", after)

    def create_condition(self, graph: str) -> int:
        return len(self.nodes)

    def add_conditional_node(
        self, graph: str, condition: int, again: bool, after: Sequence[str]
    ) -> tuple[str, str]:
        name = f"{'while' if again else 'if'} {condition}"
        return self._node(graph, name, after), f"{graph}/{name}"

    def instantiate(self, graph: str) -> None: ...

    def destroy_graph(self, graph: str) -> None: ...


def put(*items: Item) -> list[tuple[str, str, list[str]]]:
    """What a graph of items is made of; its kernels are called by letters."""
    noted = Noted()
    kernels = [Kernel(letter, 32) for letter in "abc"]
    GraphMaker(cast(Driver, noted), kernels, 0).graph(items, [0] * len(Root))
    return noted.nodes


A, B, C = [Launch(number, 1, (), 0, 0) for number in range(3)]
HERE = (IMMEDIATE, 0)


def test_a_test_stands_before_the_loop_and_at_the_end_of_its_body() -> None:
    loop = WhileNode((HERE,), test=(A,), body=(B,), wave=0)
    assert put(loop, C._replace(wave=1)) == [
        ("whole", "a", []),
        ("whole", "round 0", ["a"]),
        ("whole", "while 0", ["round 0"]),
        ("whole/while 0", "b", []),
        ("whole/while 0", "a", ["b"]),
        ("whole/while 0", "round 0", ["a"]),
        ("whole", "c", ["while 0"]),
    ]


def test_a_side_begins_when_both_conditions_of_a_branch_are_set() -> None:
    """What the condition is read from may be written over then."""
    assert put(A, IfNode(HERE, then=(B,), otherwise=(C,), wave=1), A._replace(wave=2)) == [
        ("whole", "a", []),
        ("whole", "branch 1", ["a"]),
        ("whole", "branch 2", ["a"]),
        ("whole", "if 1", ["branch 1", "branch 2"]),
        ("whole/if 1", "b", []),
        ("whole", "if 2", ["branch 1", "branch 2"]),
        ("whole/if 2", "c", []),
        ("whole", "a", ["if 1", "if 2"]),
    ]


def test_a_side_that_does_nothing_is_no_node() -> None:
    assert put(IfNode(HERE, then=(), otherwise=(C,), wave=0), A._replace(wave=1)) == [
        ("whole", "branch 0", []),
        ("whole", "if 0", ["branch 0"]),
        ("whole/if 0", "c", []),
        ("whole", "a", ["if 0"]),
    ]
    assert put(A, IfNode(HERE, (), (), 1), A._replace(wave=2)) == [
        ("whole", "a", []),
        ("whole", "a", ["a"]),
    ]


@pytest.mark.long
def test_a_loop_beyond_its_limit_is_told_as_where_the_host_counts(
    fake: FakeGpu, model: Model
) -> None:
    told = [raised(lambda: model.root(f32(1e30))) for _ in range(3)]
    assert "limit of 100" in told[0]
    assert "model.dlm:4" in told[0]
    assert told[1:] == told[:1] * 2
    assert bodies(fake.graphs[-1]) == 1
    same(model.root(f32(9)), 3)


def raised(call: Callable[[], object]) -> str:
    with pytest.raises(CallError) as caught:
        call()
    (said,) = caught.value.diagnostics
    return f"{said.code} {said.message} {said.place}"


def test_what_fails_behind_a_loop_that_ended_is_not_told(fake: FakeGpu, model: Model) -> None:
    x = f32(1, 2, 3, 4)
    for _ in range(3):
        same(model.picked(x, np.array([3])), [4])
        assert "index 4" in raised(lambda: model.picked(x, np.array([4])))
        assert "D0808" in raised(lambda: model.picked(x, np.array([9])))
    assert bodies(fake.graphs[-1]) == 1


def test_what_failed_before_a_loop_ended_is_told(model: Model, compiled: Model) -> None:
    """The first round has an index before the array; a later one ends by the limit of the loop inside."""
    x = f32(1, 2, 3, 4)
    for n, why in ((2, "index -1 is out of range"), (4, "limit of 5")) * 3:
        told = raised(lambda n=n: model.later(x, np.array([n])))
        assert why in told
        assert told == raised(lambda n=n: compiled.later(x, np.array([n])))


def test_a_byte_that_is_not_0_is_true(model: Model) -> None:
    for byte, wanted in ((2, [2, 4]), (1, [2, 4]), (0, [-1, -2]), (255, [2, 4])):
        given = np.array(byte, np.uint8).view(np.bool_)
        same(model.chosen(given, f32(1, 2)), wanted)


def test_a_kernel_that_fails_in_a_body_is_told_before_the_limit(model: Model) -> None:
    far, near = np.array([3, 9]), np.array([3, 2])
    for _ in range(3):
        assert "index 9" in raised(lambda: model.walked(np.ones(4, np.float32), far))
        assert "D0808" in raised(lambda: model.walked(np.ones(4, np.float32), near))


def test_a_loop_without_a_limit_is_ended_by_cancel(fake: FakeGpu, model: Model) -> None:
    rounds = 0

    def another() -> None:
        nonlocal rounds
        rounds += 1
        assert rounds < 50, "it goes on"
        if rounds == 20:
            model.cancel()

    fake.in_rounds = another
    model.endless(f32(-1))
    for _ in range(2):
        rounds = 0
        assert "D0809" in raised(lambda: model.endless(f32(1)))
        assert rounds == 21
        assert model.endless(f32(-2)) == -2


def test_bodies_follow_memory_that_has_moved(fake: FakeGpu, model: Model) -> None:
    wanted = [f32(4, 9, 16), f32(1, 2, 3), f32(25, 36, 49)]
    tensors = [Tensor(a).to("cuda") for a in wanted]
    result = Tensor(np.zeros(3, np.float32)).to("cuda")
    for number in (0, 1, 2, 0):
        model.roots(tensors[number], out=result)
        same(result.numpy(), np.sqrt(wanted[number]))
    graph = fake.graphs[-1]
    assert graph.launches == 3
    assert graph.changes > 0


def test_each_tuple_of_sizes_has_its_graph(fake: FakeGpu, model: Model) -> None:
    for _ in range(3):
        for rows in (2, 5):
            a = np.arange(1, rows + 1, dtype=np.float32)
            same(model.roots(a), np.sqrt(a))
    assert sorted(graph.launches for graph in fake.graphs if bodies(graph)) == [2, 2]


@pytest.mark.parametrize("entry", every(3, CALLS))
def test_a_driver_without_conditions_is_asked_once(
    fake: FakeGpu, model: Model, compiled: Model, entry: str
) -> None:
    fake.knows_conditions = False
    for arguments in CALLS[entry] * 2:
        found = np.asarray(model[entry](*arguments))
        same(found, compiled[entry](*arguments))
    assert fake.condition_refusal.endswith("as told")
    assert all(bodies(graph) == 0 for graph in fake.graphs)
    assert sum(graph.is_free and not graph.is_complete for graph in fake.graphs) == 1
    assert fake.condition_kernels is None


@pytest.mark.parametrize("name", every(3, ["instantiate", "launch_graph", "set_kernel_arguments"]))
def test_a_graph_with_conditions_that_is_refused_later_is_none(
    fake: FakeGpu, model: Model, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The host reads the conditions from then on."""
    arrays = [f32(4, 9, 16), f32(1, 2, 3), f32(25, 36, 49)]
    tensors = [Tensor(a).to("cuda") for a in arrays]
    result = Tensor(np.zeros(3, np.float32)).to("cuda")
    model.roots(tensors[0], out=result)
    if name == "set_kernel_arguments":
        model.roots(tensors[0], out=result)
    real: Callable[..., None] = getattr(fake, name)

    def refusing(graph: Graph, *arguments: object) -> None:
        if bodies(graph):
            raise CallError("the GPU's driver refuses it: as told", code="D0818")
        real(graph, *arguments)

    monkeypatch.setattr(fake, name, refusing)
    for number in (1, 2, 0):
        model.roots(tensors[number], out=result)
        same(result.numpy(), np.sqrt(arrays[number]))
    assert fake.condition_refusal.endswith("as told")


def test_waiting_for_each_kernel_asks_for_no_conditions(
    fake: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WAIT, "1")
    model = dlc.compile(text=TEXT, target="cuda")
    for _ in range(3):
        same(model.root(f32(9)), 3)
    assert fake.graphs == []


MEASURED = """dlc 1
export fn behind(x: f32[6], n: f32) -> f32 {
  let (y, ..) = while i < n with y = x, i = 0.0 limit 4 {
    next y = y - 1
    next i = i + 1
  }
  return sum(exp(compress(y, y > 0)))
}
export fn inside(x: f32[6], n: f32) -> f32 {
  let (s, ..) = while i < n with s = 1.0, i = 0.0 limit 4 {
    let more = if s > 3 then exp(-s) else s * 2
    next s = sum(compress(x, x < s)) + more
    next i = i + 1
  }
  return s
}
"""


def test_a_length_that_is_measured_behind_a_loop_is_read_by_the_host(fake: FakeGpu) -> None:
    model, cpu = (dlc.compile(text=MEASURED, target=target) for target in ("cuda", "cpu"))
    x = np.arange(6, dtype=np.float32)
    for n in (1, 3, 2, 0):
        before = len(fake.launched)
        same(model.behind(x, f32(n)), cpu.behind(x, f32(n)))
    last = fake.launched[-1]
    assert last in fake.launched[before:]
    assert [bodies(graph) for graph in fake.graphs if bodies(graph)] == [1]
    for _ in range(2):
        before = len(fake.launched)
        assert "limit of 4" in raised(lambda: model.behind(x, f32(9)))
        assert last not in fake.launched[before:], "nothing is launched when the call has ended"


def test_a_branch_in_a_loop_of_the_host_is_the_devices(fake: FakeGpu) -> None:
    model, cpu = (dlc.compile(text=MEASURED, target=target) for target in ("cuda", "cpu"))
    x = np.arange(6, dtype=np.float32)
    for n in (3, 1, 4, 0):
        same(model.inside(x, f32(n)), cpu.inside(x, f32(n)))
    assert "limit of 4" in raised(lambda: model.inside(x, f32(5)))
    assert {bodies(graph) for graph in fake.graphs} == {0, 2}


TAPED = """dlc 1
fn root(a: f32) -> f32 =
  while abs(x * x - a) > 1e-5 with x = a limit 20 { next x = (x + a / x) / 2 }
export fn slope(a: f32) -> f32 = grad(root)(a)
"""


def test_the_gradient_of_a_loop_is_one_launch(fake: FakeGpu) -> None:
    model, cpu = (dlc.compile(text=TAPED, target=target) for target in ("cuda", "cpu"))
    for a in (9, 4, 16, 2):
        before = launches(fake)
        same(model.slope(f32(a)), cpu.slope(f32(a)))
    assert launches(fake) == before + 1
    assert bodies(fake.graphs[-1]) == 2


def table(*steps: Sequence[int], counter: int) -> StepTable:
    """A program of these steps, whose calls and branches are given what moves with a counter."""
    rows = [[*step, *[0] * (STEP_WORDS - len(step))] for step in (*steps, (Opcode.END,))]
    given = [ArgKind.POINTER, Root.ARENA, 0, counter, 0]
    words = [len(rows), 0, 1, *[word for row in rows for word in row], *given]
    return StepTable(np.array(words, np.int64).view(np.uint8), len(Root))


LOOPED = (
    (Opcode.ZERO, 0),
    (Opcode.WAVE, 1),
    (Opcode.CALL, 0, 0, 1),
    (Opcode.BRANCH, 0, 7, 4),
    (Opcode.LIMIT, 0, 0, 0),
    (Opcode.COMBINE, 1, 2, 0, 2, 0),
    (Opcode.JUMP, 1),
)
"""A `while` that counts in 0 and combines 2 to 1."""


@pytest.mark.parametrize(("counter", "is_node"), [(0, False), (1, False), (2, True), (-1, True)])
def test_a_loop_is_a_node_unless_something_uses_the_counters_that_it_leaves(
    counter: int, is_node: bool
) -> None:
    """1 is combined at the end of a round and used in the next one; 2 is of a loop around it."""
    around = (Opcode.LOOP, 2, 0, 9), (Opcode.NEXT, 2, 0, 1)
    inside = [move(step) for step in LOOPED]
    assert (1 in table(around[0], *inside, around[1], counter=counter).nodes) == is_node


def move(step: Sequence[int]) -> Sequence[int]:
    """The step where one more stands before all."""
    opcode, *words = step
    moved = {Opcode.BRANCH: (1, 2), Opcode.JUMP: (0,)}.get(Opcode(opcode), ())
    return opcode, *[word + (k in moved) for k, word in enumerate(words)]


def test_the_mandelbrot_set_is_one_launch(fake: FakeGpu) -> None:
    small = {"height": 6, "width": 8, "steps": 9}
    model, cpu = (
        dlc.compile(EXAMPLES / "mandelbrot.dlm", target=target, settings=small)
        for target in ("cuda", "cpu")
    )
    model.picture(span=2.0)
    before = launches(fake)
    for number in (1, 2):
        same(model.picture(span=3.0), cpu.picture(span=3.0))
        assert launches(fake) == before + number


@pytest.mark.skipif(not has_ptxas(), reason="ptxas is not installed")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_the_kernels_that_set_conditions_are_assembled(tmp_path: Path, architecture: str) -> None:
    """As a module that is not whole: the driver has the function that sets one."""
    (tmp_path / "conditions.ptx").write_text(PTX)
    command = [find_ptxas(), "-c", f"-arch={architecture}", str(tmp_path / "conditions.ptx")]
    done = subprocess.run(
        [*command, "-o", str(tmp_path / "conditions.cubin")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
