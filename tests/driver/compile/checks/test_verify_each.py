"""A pass that changes results, breaks the form or crashes is caught and named."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dlc.cli import main
from dlc.dialects import array, comm, func, mem, scalar, vec
from dlc.driver.compile.checks.random_calls import RandomArrays
from dlc.driver.compile.checks.verify_each import EachPass
from dlc.driver.compile.compile import Report, compile_model, lower
from dlc.driver.compile.run_passes import optimise_text
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model, read_ir
from dlc.driver.source.source_model import SourceModel
from dlc.errors import InternalError, ModelError, NumbersDiffer
from dlc.ir.core import Builder, Op
from dlc.ir.passes import Context, Manager, Pass, parse_passes
from dlc.ir.value_map import EQUAL
from dlc.lowering.cpu.kernel_to_loop import lower_to_loops
from dlc.passes.sharding.partition import Splits, partition, set_mesh
from dlc.planning.kernel_to_plan import plan_memory
from tests import example_models
from tests.suites import every

MODEL = "dlc 1\ndim B = 1..8\nexport fn f(x: f32[B, 3]) -> f32[B, 3] = 2 * x + exp(x)\n"


PRODUCTS = """dlc 1
export fn f(x: f32[4, 4], w: f32[4, 4]) -> f32[4, 4] {
  let a = x @ w
  let b = a @ w
  return transpose(b @ w) + a
}
"""
SUMS = """dlc 1
dim B = {}
export fn f(x: f32[B, 6]) -> f32[6] = 0.5 * sum(x, axis=0)
"""
PassFunction = Callable[[Op, Context], None]
PassReplacer = Callable[[str, PassFunction], None]


@pytest.fixture
def replace_pass(monkeypatch: pytest.MonkeyPatch) -> PassReplacer:
    """Puts another function in the place of a pass."""

    def replace(name: str, run: PassFunction) -> None:
        run_as_defined = Pass[...].run

        def run_pass(which: Pass[...], module: Op, context: Context) -> None:
            other = which.name == name
            run(module, context) if other else run_as_defined(which, module, context)

        monkeypatch.setattr(Pass, "run", run_pass)

    return replace


WEIGHTED = """dlc 1
module M() {
  param w: f32[3, 2]
  export fn f(x: f32[4, 3]) -> f32[4, 2] = x @ w
}
"""


def functions(module: Op) -> list[func.Func]:
    return [op for op in module.regions[0] if isinstance(op, func.Func)]


def swap_sum(module: Op, context: Context) -> None:
    """A wrong pass: sums become differences."""
    for op in list(module.walk()):
        if isinstance(op, array.Add):
            difference = context.rewriter.before(op)(array.Subtract(*op.operands))
            context.rewriter.replace(op, difference, relation=EQUAL)


def forget_type(module: Op, context: Context) -> None:
    """A wrong pass: the function returns other values than its type says."""
    for function in functions(module):
        terminator = function.body.terminator
        terminator.set_operands((*terminator.operands, *terminator.operands))


def crash(module: Op, context: Context) -> None:
    raise KeyError("lost")


def crash_at_three(module: Op, context: Context) -> None:
    if context.options.level == 3:
        crash(module, context)


def test_right_passes_change_no_result() -> None:
    opened = open_model("m.dlm", text=MODEL)
    compile_model(opened, Settings(verify_each=True))


@pytest.mark.parametrize("name", every(12, example_models.NAMES))
def test_no_pass_changes_what_an_example_computes(name: str) -> None:
    opened = example_models.opened(name)
    assert functions(opened.module)
    lower(opened, Settings(3, verify_each=True), "loop")


def store_opposites(module: Op, context: Context) -> None:
    """A wrong lowering: registers are stored with the other sign."""
    lower_to_loops.function(module, context)
    for store in [op for op in module.walk() if isinstance(op, vec.Store)]:
        opposite = Builder.before_op(store)(scalar.Negate(store.value))
        store.replace_operand(store.value, opposite)


@pytest.mark.usefixtures("avx2")
def test_loops_that_compute_something_else_are_named_by_their_kernel(
    replace_pass: PassReplacer,
) -> None:
    opened = open_model("m.dlm", text=MODEL)
    lower(opened, Settings(verify_each=True), "plan")
    replace_pass("lower_to_loops", store_opposites)
    with pytest.raises(
        NumbersDiffer, match=r"(?s)the loops of kernel\.generic are off by.*m\.dlm:3"
    ):
        lower(opened, Settings(verify_each=True), "loop")


def test_what_takes_too_long_to_compare_is_told() -> None:
    text = "dlc 1\nexport fn f(x: f32[1, 9000], w: f32[9000, 16]) -> f32[1, 16] = x @ w\n"
    report = Report()
    settings = Settings(verify_each=True, matmul="generated")
    compile_model(open_model("m.dlm", text=text), settings, report=report)
    assert [note for note in report.notes if "kernels of f were not compared with" in note]
    easy = Report()
    compile_model(open_model("m.dlm", text=MODEL), Settings(verify_each=True), report=easy)
    assert not easy.notes


def share_memory(module: Op, context: Context) -> None:
    """A wrong plan: everything in the arena lies at its start."""
    plan_memory.function(module, context)
    for op in module.walk():
        if isinstance(op, mem.Root) and op.kind == "arena":
            op.attributes["offset"] = 0


def test_random_weights_and_inputs_are_made_once() -> None:
    """They took four fifths of an evaluation, after each pass: a network was not checked within an hour."""
    opened, arrays = open_model("m.dlm", text=WEIGHTED), RandomArrays()
    (function,) = functions(opened.module)
    (first, [x]), (second, [y]) = [arrays.call(function, opened.module) for _ in range(2)]
    assert x is y
    assert first.weights["w"] is second.weights["w"]
    assert not x.flags.writeable


def test_a_plan_that_overwrites_what_is_still_needed_is_named(replace_pass: PassReplacer) -> None:
    replace_pass("plan_memory", share_memory)
    opened = open_model("m.dlm", text=PRODUCTS)
    with pytest.raises(NumbersDiffer, match="pass plan_memory leaves @f with wrong"):
        lower(opened, Settings(verify_each=True), "plan")


def test_every_kernel_of_an_example_is_compared_with_its_loops() -> None:
    opened = open_model("m.dlm", text=PRODUCTS)
    lower(opened, Settings(), "plan")
    check = EachPass()
    Manager(opened.context, before=check.before, after=check.after).run(
        opened.module, [lower_to_loops]
    )
    assert check.compared["f"].kernels >= 3
    assert not check.compared["f"].left_out


def test_a_pass_that_changes_a_result_is_named(replace_pass: PassReplacer) -> None:
    replace_pass("cse", swap_sum)
    opened = open_model("m.dlm", text=MODEL)
    with pytest.raises(
        NumbersDiffer, match=r"(?s)pass cse changes result 0 of f.*cse leaves the pass out"
    ):
        lower(opened, Settings(verify_each=True), "graph")


def test_a_pass_that_breaks_the_form_is_caught_at_once(replace_pass: PassReplacer) -> None:
    replace_pass("cse", forget_type)
    seen: list[str] = []
    opened = open_model("m.dlm", text=MODEL)
    with pytest.raises(ModelError, match="its type says"):
        lower(opened, Settings(verify_each=True), "graph", lambda name, module: seen.append(name))
    assert "cse" not in seen


def test_a_function_that_fails_on_random_inputs_is_skipped_with_the_reason() -> None:
    text = "dlc 1\nexport fn f(x: f32[1], i: i32[40]) -> f32[40] = take(x, i)\n"
    opened = open_model("m.dlm", text=text)
    check = EachPass()
    Manager(opened.context, before=check.before, after=check.after).run(
        opened.module, parse_passes("canonicalize")
    )
    assert list(check.skipped) == ["f"]
    assert "1" in check.skipped["f"]


@pytest.mark.parametrize(
    ("bounds", "mesh", "splits"),
    [
        ("1..64", {"data": 2}, [{"data": 0}, {}]),
        ("2..", {"data": 2, "model": 3}, [{"data": 0, "model": 1}, {"model": 0}]),
        ("1..64", {"data": 3, "model": 2}, [{"model": 1}, {}]),
    ],
)
def test_ranks_are_compared_where_sizes_have_names(
    bounds: str, mesh: dict[str, int], splits: Sequence[Splits]
) -> None:
    """Among the ranks each named size that is split is divided, too."""

    def with_mesh() -> SourceModel:
        opened = open_model("m.dlm", text=SUMS.format(bounds))
        set_mesh(functions(opened.module)[0], mesh, splits)
        return opened

    for wrong in (False, True):
        opened, check = with_mesh(), EachPass()
        check.before("partition", opened.module)
        partition.run(opened.module, opened.context)
        if wrong:
            forget_halves(opened.module, opened.context)
            with pytest.raises(NumbersDiffer, match="partition changes result 0 of f") as caught:
                check.after("partition", opened.module)
            assert "leaves the pass out" not in str(caught.value)
        else:
            check.after("partition", opened.module)
            assert check.skipped == {"f": "the ranks of a mesh run it"}


@pytest.mark.parametrize("stage", ["graph", "plan"])
def test_passes_behind_the_partition_are_checked_on_all_ranks(
    stage: str, replace_pass: PassReplacer
) -> None:
    opened = open_model("m.dlm", text=SUMS.format("1..64"))
    set_mesh(functions(opened.module)[0], {"data": 2}, [{"data": 0}, {}])
    partition.run(opened.module, opened.context)
    if stage == "plan":
        lower(opened, Settings(), "graph")
    replace_pass("cse" if stage == "graph" else "fuse", alone)
    with pytest.raises(NumbersDiffer, match=r"pass .* changes result 0 of f"):
        lower(opened, Settings(verify_each=True), stage)


def alone(module: Op, context: Context) -> None:
    """A wrong pass: each rank keeps its own sum."""
    for op in list(module.walk()):
        if isinstance(op, comm.AllReduce):
            context.rewriter.replace(op, [op.operands[0]], relation=EQUAL)


def forget_halves(module: Op, context: Context) -> None:
    """A wrong pass: products with 0.5 are left out."""
    for op in list(module.walk()):
        if isinstance(op, array.Multiply):
            context.rewriter.replace(op, [op.lhs], relation=EQUAL)


def test_opt_checks_every_pass_if_asked(replace_pass: PassReplacer) -> None:
    replace_pass("cse", swap_sum)
    text = """"builtin.module"() ({
    "func.func"() <{sym_name = "f", function_type = (tensor<4xf32>) -> tensor<4xf32>}> ({
    ^bb0(%x: tensor<4xf32>):
      %y = "array.add"(%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      "func.return"(%y) : (tensor<4xf32>) -> ()
    }) : () -> ()}) : () -> ()"""
    assert "array.subtract" in optimise_text(text, "cse", file="f.dlir")
    with pytest.raises(NumbersDiffer):
        optimise_text(text, "cse", file="f.dlir", verify_each=True)


def test_a_crash_leaves_a_file_that_shows_it_again(
    replace_pass: PassReplacer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    replace_pass("cse", crash)
    opened = open_model("m.dlm", text=MODEL)
    with pytest.raises(InternalError) as caught:
        lower(opened, Settings(), "kernel")
    (file,) = tmp_path.glob("dlc-reproducer-*.dlir")
    told = str(caught.value)
    assert f"dlc opt {file.name} --passes cse" in told
    assert "pass cse failed: KeyError" in told
    text = file.read_text(encoding="utf-8")
    assert [function.sym_name for function in functions(read_ir(text, file.name))] == ["f"]
    assert main(["opt", file.name, "--passes", "cse"]) == 70
    assert "pass cse failed: KeyError: 'lost'" in capsys.readouterr().err


def test_a_file_that_shows_a_crash_comes_with_the_options_that_it_needs(
    replace_pass: PassReplacer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    replace_pass("fuse", crash_at_three)
    settings = Settings(3, "cpu:x86-64-v3", "generated", frozenset({"cse"}))
    with pytest.raises(InternalError, match="pass fuse failed") as caught:
        lower(open_model("m.dlm", text=MODEL), settings, "kernel")
    (command,) = re.findall(r"dlc (opt .*) shows it", str(caught.value))
    assert main(command.split()) == 70
    assert main(command.replace("-O3", "-O2").split()) == 0
