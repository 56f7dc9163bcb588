"""What a lowered kernel computes, it computes once, and outside of loops in which it does not change."""

from __future__ import annotations

from collections.abc import Iterator

from dlc.dialects import loop
from dlc.driver.compile.pipelines import pipeline
from dlc.driver.source.open import open_model
from dlc.ir.core import Block, Op
from dlc.ir.passes import Manager, Options
from dlc.target import Target
from dlc.target.cpu import CpuTarget

TEXT = """dlc 1
dim N = 1..64
export fn f(x: f32[N, 30], w: f32[30, 20]) -> (f32[N, 20], f32[N]) =
  (softmax(x @ w), sum(x * x * 3 + x * x, axis=1))
"""


def blocks() -> Iterator[Block]:
    """Those of the functions of a few kernels."""
    opened = open_model("f.dlm", text=TEXT)
    opened.context.options = Options(target=Target(CpuTarget.named("x86-64-v3")))
    Manager(opened.context).run(opened.module, pipeline("graph", "loop", 2))
    for function in opened.module.body:
        if isinstance(function, loop.Func):
            yield function.body
            yield from (region for op in function.walk() for region in op.regions)


def pure(block: Block) -> list[Op]:
    return [op for op in block if op.pure and not op.regions and len(op.results) == 1]


def test_no_block_computes_the_same_twice() -> None:
    for block in blocks():
        keys = [op.equivalent for op in pure(block)]
        assert len(keys) == len(set(keys))


def test_what_a_loop_does_not_change_is_computed_before_it() -> None:
    loops = [block for block in blocks() if isinstance(block.parent, loop.For | loop.While)]
    assert len(loops) > 5
    for block in loops:
        around = block.parent
        assert around is not None
        assert all(any(x.block in around.regions for x in op.operands) for op in pure(block))
