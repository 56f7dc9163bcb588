"""Which values an artifact says lie together in a root of its arena, and why."""

from __future__ import annotations

from functools import cache

from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.settings import Settings
from dlc.driver.source.open import open_model
from dlc.runtime.artifact.arena_values import (
    ArenaValues,
    ValueRecord,
    read_arena_values,
    values_section,
)


@cache
def values_of(text: str, level: int = 2) -> ArenaValues:
    """What the artifact of `f` says about its values."""
    opened = open_model("m.dlm", text=f"dlc 1\n{text}\n")
    artifact = compile_model(opened, Settings(level), "init:0")
    return read_arena_values(bytes(artifact.section(values_section("cpu", "f"))))


def together(found: ArenaValues, name: str) -> list[ValueRecord]:
    """The alias class of the value of that name."""
    (root,) = {value.root for value in found.values if value.name == name}
    return [value for value in found.values if value.root == root]


CHAIN = """export fn f(x: f32[16, 16]) -> f32[16, 16] {
  let a = cumsum(x, axis=1)
  let b = exp(a)
  return cumsum(b, axis=1)
}"""


def test_a_value_written_over_its_operand_is_in_its_alias_class() -> None:
    found = values_of(CHAIN, level=0)
    classes = together(found, "a")
    assert [(v.name, v.how) for v in classes if v.made_by] == [("a", "own"), ("b", "in place")]


def test_values_name_the_ops_that_make_and_read_them_and_the_line() -> None:
    found = values_of(CHAIN, level=0)
    a = next(value for value in found.values if value.name == "a")
    assert (a.type, a.place, a.made_by, a.read_by) == ("f32[16, 16]", "m.dlm:3:11", (0,), (1,))
    assert found.ops == ("prefix scan add 16×16", "exp 16×16", "prefix scan add 16×16")


def test_a_reshaped_value_is_another_look_at_the_same_bytes() -> None:
    found = values_of(
        "export fn f(x: f32[4, 6]) -> f32[6, 4] {\n"
        "  let a = cumsum(x, axis=1)\n  return cumsum(reshape(a, [6, 4]), axis=0)\n}"
    )
    assert [(v.type, v.how) for v in together(found, "a")] == [
        ("f32[4, 6]", "own"),
        ("f32[6, 4]", "view"),
    ]


JOINED = """export fn f(x: f32[5, 8], v: f32[8, 16], w: f32[8, 24]) -> (f32[40, 5], f32[5]) {
  let a = x @ v
  let b = tanh(x @ w)
  let both = concat([a, b], axis=1)
  return (transpose(exp(both)), sum(both, axis=1))
}"""


def test_what_is_concatenated_is_joined_from_parts_that_lie_in_it() -> None:
    found = values_of(JOINED)
    classes = together(found, "both")
    assert {(v.type, v.how) for v in classes if v.made_by} == {
        ("f32[5, 16]", "part"),
        ("f32[5, 24]", "part"),
        ("f32[5, 40]", "joined"),
    }
    whole = next(value for value in classes if value.how == "joined")
    assert sorted(whole.made_by) == sorted(
        op for v in classes if v.how == "part" for op in v.made_by
    )


def test_what_is_joined_is_called_so_though_it_is_written_over_later() -> None:
    found = values_of(
        "export fn f(x: f32[5, 8], v: f32[8, 16], w: f32[8, 24]) -> (f32[5, 40], f32[5]) {\n"
        "  let both = exp(concat([x @ v, tanh(x @ w)], axis=1))\n"
        "  return (cumsum(both, axis=1), sum(both, axis=1))\n}"
    )
    (root,) = {v.root for v in found.values if v.how == "part"}
    made = {v.how: v.type for v in found.values if v.root == root and v.made_by}
    assert made.keys() == {"part", "joined", "in place"}
    assert made["joined"] == made["in place"] == "f32[200]"


SCAN = """export fn f(x: f32[8, 4]) -> f32[8, 4] {
  let rows = cumsum(x, axis=1)
  let (sums, all) = scan row in rows with total = zeros([4]) {
    let following = exp(total) + row
    next total = following
    yield following * 2
  }
  return cumsum(all + sums, axis=0)
}"""


def test_a_slice_of_a_loop_is_a_part_and_what_it_carries_is_written_over() -> None:
    found = values_of(SCAN, level=0)
    assert [(v.type, v.how) for v in together(found, "rows")] == [
        ("f32[8, 4]", "own"),
        ("f32[4]", "view"),
    ]
    assert "part" in {value.how for value in found.values}
    carried = together(found, "total")
    assert {value.how for value in carried if value.made_by} == {"own", "again"}


def test_an_op_that_reads_weights_names_their_layer() -> None:
    found = values_of(
        "import nn (Linear)\nmodule M() {\n  use inner = chain(Linear(8, 16), relu, Linear(16, 4))\n"
        "  export fn f(x: f32[3, 8]) -> f32[3] = sum(inner(x), axis=1)\n}"
    )
    assert [op.partition(" · ")[0] for op in found.ops[:2]] == ["inner.0", "inner.2"]
