"""Modules of operations: by names of values and weights, and by neighbours."""

from __future__ import annotations

from dlc.driver.compile.compile import lower
from dlc.driver.compile.entries import find_function
from dlc.driver.compile.settings import Settings
from dlc.driver.report.module_groups import Group, grouped
from dlc.driver.report.module_paths import Path, module_paths
from dlc.driver.report.sections import sections
from dlc.driver.run.request import CompileRequest
from dlc.ir.core import Op

BLOCKS = """\
dlc 1
import nn (Linear)
module Block(n) {
  use up = Linear(n, n)
  use down = Linear(n, n)
  fn call(x: f32[2, n]) = x + down(relu(up(x)))
}
module M {
  use blocks = chain(Block(3), Block(3))
  export fn f(x: f32[2, 3]) -> f32[2, 3] = exp(blocks(x))
}
"""


def paths_of(text: str) -> dict[Op, Path]:
    """The paths of the operations of the only entry point."""
    model = CompileRequest("m.dlm", text=text).open()
    lower(model, Settings(), "graph")
    layers = [layer.path for layer in model.layers]
    return module_paths(find_function(model.module, None), layers)


def test_operations_between_layers_belong_to_the_module_around_them() -> None:
    found = [(op.name.partition(".")[2], path) for op, path in paths_of(BLOCKS).items()]
    computing = [pair for pair in found if pair[0] in ("linear", "maximum", "add", "exp")]
    assert computing == [
        ("linear", ("blocks.0", "up")),
        ("maximum", ("blocks.0",)),
        ("linear", ("blocks.0", "down")),
        ("add", ("blocks.0",)),
        ("linear", ("blocks.1", "up")),
        ("maximum", ("blocks.1",)),
        ("linear", ("blocks.1", "down")),
        ("add", ("blocks.1",)),
        ("exp", ()),
    ]


def test_a_layer_keeps_what_the_next_one_gives_another_name() -> None:
    text = """\
dlc 1
import nn (Conv2d, BatchNorm)
module M {
  use stem = chain(Conv2d(3, 8, kernel=3), BatchNorm(8))
  export fn f(x: f32[2, 9, 9, 3]) -> f32[2, 7, 7, 8] = exp(stem(x))
}
"""
    found = {op.name: path for op, path in paths_of(text).items()}
    assert found["nn.conv"] == ("stem.0",)
    assert found["array.multiply"] == ("stem.1",)


def test_the_optimizer_stands_apart_from_the_layers() -> None:
    text = """\
dlc 1
import nn (Linear)
dim B = 1..8
module M {
  use a = Linear(2, 2)
  fn loss_of(x: f32[B, 2]) = mean(sin(a(x)))
}
train M {
  data = npz("d.npz", x="x")
  loss(x: f32[B, 2]) = loss_of(x)
  optimizer = adam(lr=1e-3)
}
"""
    model = CompileRequest("m.dlm", text=text, to_train=True).open()
    lower(model, Settings(), "graph")
    layers = [layer.path for layer in model.layers]
    paths = module_paths(find_function(model.module, "train_step"), layers)
    assert {("a",), ("optimizer", "a")} <= set(paths.values())


def test_groups_do_not_need_each_other() -> None:
    paths = paths_of(BLOCKS)
    ops = [op for op in paths if not op.terminator]
    there = {op: ("a",) if number % 2 else ("b",) for number, op in enumerate(ops)}
    items = grouped(ops, there, lambda value: value)
    done: set[Op | None] = set()
    for item in items:
        inside = list(item.ops) if isinstance(item, Group) else [item]
        done |= set(inside)
        assert all(v.op in done for op in inside for v in op.operands if v.op is not None)
    assert len(done) == len(ops)


def test_a_graph_without_modules_is_divided_where_one_value_passes() -> None:
    body = "".join(f"  let b{k} = relu(b{k - 1} + sin(cos(exp(b{k - 1}))))\n" for k in range(1, 11))
    text = (
        f"dlc 1\nexport fn f(x: f32[4]) -> f32[4] {{\n  let b0 = exp(x)\n{body}  return b10\n}}\n"
    )
    ops = [op for op in paths_of(text) if op.operands and not op.terminator]
    found = sections(ops, lambda value: value)
    assert len(set(found.values())) == 10
    assert ops[0] not in found
    assert [found[op] for op in ops[1:7]] == [("block 1",)] * 5 + [("block 2",)]
    assert sections(ops[:20], lambda value: value) == {}
