"""docs/language.md: every text that it shows is a model, all of it, not only what its entry points use."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlc.frontend.elaborate import elaborate
from tests import documents

PAGE = "docs/language.md"
USED: dict[str, str] = {
    "module Scale(D, F": """
module Root() {
  use wide = Scale(4)
  use narrow = Scale(4, F=f16)
  export fn f(x: f32[2, 4]) -> f32[2, 4] = wide(x)
  export fn g(x: f16[4]) -> f16[4] = narrow(x)
}
""",
    "import nn (Linear, Conv2d as Conv)": """
module Root() {
  use net = Net(8)
  export fn f(x: f32[2, 9, 9, 3]) -> f32[2, 7, 7, 10] = x |> net.body |> net.head
}
""",
    "module Mlp(sizes_in": """
module Root() {
  use net = Mlp(3, 4, 2)
  export fn f(x: f32[5, 3]) -> f32[5, 2] = net(x)
}
""",
    "module Stage(I, O, n)": """
module Root() {
  use stage = Stage(3, 8, 4)
  export fn f(x: f32[1, 16, 16, 3]) -> f32[1, 8, 8, 8] = stage(x)
}
""",
    "module Centred(D": """
module Root() {
  use centred = Centred(3)
  export fn f(x: f32[4, 3]) -> f32[4, 3] = centred(x)
}
""",
    "module Net(D = 64) from": """
module Root() {
  use net = Net()
  export fn f(x: f32[2, 64]) -> f32[2, 10] = net(x)
}
""",
    "module Heavy(lr": """
module Line() {
  param w: f32[3] = zeros()
  fn call(x: f32[2, 3]) -> f32[2] = x @ w
}
train Line {
  data = npz("line.npz", x="x", y="y")
  loss(x: f32[2, 3], y: f32[2]) = mean((call(x) - y) ** 2)
  optimizer = Heavy(lr=0.1)
}
""",
    "fn outer(": "export fn f(x: f32[2], y: f32[3]) -> f32[2, 3] = outer(x, y)\n",
    "fn straight_through(": """
export fn f(x: f32[3]) -> f32[3] = vjp(straight_through, wrt=x)(x, dy=ones([3]))
""",
    "names {": """
import nn (Linear)
module Layer() {
  use down = Linear(2, 2)
  use q = Linear(2, 2)
  use k = Linear(2, 1)
  use v = Linear(2, 1)
}
module Net() {
  param emb: f32[5, 2] = normal()
  use blocks = 2 * Layer()
  export fn f(ids: i32[3]) -> f32[3, 2] =
    scan block in blocks with h = emb[ids] { next h = block.down(h) }
}
""",
    "|> reshape([B, _]) |> head": """
import nn (Conv2d, BatchNorm, Linear)
dim B = 1..8
module Net() {
  use conv1 = Conv2d(1, 2, kernel=3)
  use norm1 = BatchNorm(2)
  use head = Linear(_, 3)
  export fn f(x: f32[B, 8, 8, 1]) -> f32[B, 3] = EXPRESSION
}
""",
    "let noise = normal(shape(x))": """
module Net() {
  export fn f(x: f32[4]) -> f32[4] = EXPRESSION
}
""",
}
"""What is added to a block that has no entry point, by words that only this block has."""

NEIGHBOURS = {
    "blocks.dlm": """dlc 1
module Residual(I, O) { fn call(x: f32[.., I]) -> f32[.., O] = x + x }
""",
    "heads.dlm": """dlc 1
import nn (Linear)
module Classifier(I, O) {
  use inner = Linear(I, O)
  fn call(x: f32[.., I]) -> f32[.., O] = inner(x)
}
""",
}


def shown() -> list[documents.Block]:
    return [block for block in documents.blocks(PAGE) if block.kind.startswith("dlm")]


def whole(block: documents.Block) -> str | None:
    """The block as a text with an entry point or a `train`; None if it shows a mistake."""
    if block.kind == "dlm-wrong":
        return None
    added = [text for words, text in USED.items() if words in block.text]
    if block.kind == "dlm-fragment expr":
        (around,) = added
        return "dlc 1\n" + around.replace("EXPRESSION", block.text)
    start = "" if block.kind == "dlm" else "dlc 1\n"
    if "export fn" in block.text:
        return start + block.text
    (more,) = added
    return start + block.text + more


@pytest.mark.parametrize("block", shown(), ids=str)
def test_every_block_elaborates_without_a_remark(block: documents.Block, tmp_path: Path) -> None:
    text = whole(block)
    if text is None:
        return
    (tmp_path / "shared").mkdir()
    for name, neighbour in NEIGHBOURS.items():
        (tmp_path / "shared" / name).write_text(neighbour)
    path = tmp_path / "model.dlm"
    path.write_text(text)
    made = elaborate(path)
    assert made.warnings == ()
    assert made.train is not None or any(op.name == "func.func" for op in made.module.body)
