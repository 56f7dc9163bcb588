"""A text says which device computes what: that is kept, or the model is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import dlc
from dlc.dialects.comm import HOST
from dlc.dialects.comm import PLACED as PLACED_ON
from dlc.driver.report.check import check_model
from dlc.driver.report.inspect import inspect_file
from dlc.driver.report.show import Shown, show_stage
from dlc.driver.run.request import CompileRequest
from dlc.errors import DlcError, ModelError, Unsupported, UsageError
from dlc.frontend.elaborate import elaborate

DEMANDING = """\
dlc 1
import nn (Linear)

module M {
  use first = Linear(4, 4) on cuda:1
  export fn f(x: f32[2, 4]) -> f32[2, 4] on npu:0 {
    let h = on cpu { first(x) }
    return on cpu:1 { h + 1 }
  }
}
"""


def test_every_device_without_code_is_told_at_once_with_its_place() -> None:
    with pytest.raises(Unsupported) as caught:
        dlc.compile(text=DEMANDING)
    told = [(found.code, str(found.place), found.message) for found in caught.value.diagnostics]
    assert told == [
        ("D0707", "model.dlm:5:31", "there is no code for cuda:1 yet"),
        ("D0707", "model.dlm:6:45", "there is no code for npu:0 yet"),
    ]


def test_the_levels_of_a_demanding_model_can_be_looked_at() -> None:
    assert "nn.linear" in show_stage(CompileRequest("model.dlm", text=DEMANDING), Shown("graph"))


def test_the_one_device_that_there_is_may_be_named() -> None:
    text = "dlc 1\nexport fn f(x: f32) -> f32 on cpu = on cpu:0 { x + 1 }\n"
    assert dlc.compile(text=text).f(2.0) == 3.0


PLACED = """dlc 1
import nn (Linear)
module Inner() {
  use a = Linear(4, 4)
  fn call(x: f32[2, 4]) -> f32[2, 4] = a(x) + 1
  fn step(x: f32[2, 4]) -> f32[2, 4] = x * 2
}
module M() {
  use first = Inner() on cpu:1
  use rest = chain(Linear(4, 4), relu, Linear(4, 4)) on cpu:2
  use last = Linear(4, 4)
  use act = tanh on cpu:3
  fn helper(x: f32[2, 4]) -> f32[2, 4] on cpu:4 = x - 1
  export fn f(x: f32[2, 4]) -> f32[2, 4] on cpu:5 =
    helper(last(act(rest(first.step(first(x)))))) / on cpu { x }
}
"""


def placed(places: dict[str, str] | None = None) -> list[tuple[str, str]]:
    """Each operation with operands of the placed text, and its device."""
    module = elaborate("model.dlm", text=PLACED, places=places).module
    return [
        (op.name.partition(".")[2], str(op.attributes.get(PLACED_ON, HOST)))
        for op in module.walk()
        if op.name.startswith(("nn.", "array.")) and op.operands
    ]


def test_each_way_to_place_something_places_all_of_it() -> None:
    assert placed() == [
        ("linear", "cpu:1"),
        ("add", "cpu:1"),
        ("multiply", "cpu:1"),
        ("linear", "cpu:2"),
        ("maximum", "cpu:2"),
        ("linear", "cpu:2"),
        ("tanh", "cpu:3"),
        ("linear", "cpu:5"),
        ("subtract", "cpu:4"),
        ("divide", "cpu:5"),
    ]


def test_a_submodule_is_placed_from_outside_and_its_parts_where_they_are_named() -> None:
    found = placed({"last": "cpu:6", "rest.0": "cpu:7", "first": "cpu", "first.a": "cpu:8"})
    assert [device for name, device in found if name == "linear"] == [
        "cpu:8",
        "cpu:7",
        "cpu:2",
        "cpu:6",
    ]
    assert found[1:3] == [("add", HOST), ("multiply", HOST)]


@pytest.mark.parametrize(
    ("places", "code", "message"),
    [
        ({"lst": "cpu:1"}, "D0931", "the model has no submodule lst to place"),
        ({"last": "1"}, "D0931", "last cannot be placed on '1', which is not a device"),
        ({"last": "cpu:x"}, "D0931", "last cannot be placed on 'cpu:x', which is not a device"),
        ({"last": "cuda:1"}, "D0707", "there is no code for cuda:1 yet"),
    ],
)
def test_a_place_that_there_is_not_is_told(places: dict[str, str], code: str, message: str) -> None:
    with pytest.raises(DlcError) as caught:
        dlc.compile(text=PLACED, places=places)
    (found,) = caught.value.diagnostics
    assert (found.code, found.message) == (code, message)


def test_a_whole_submodule_is_suggested_before_a_part_of_one() -> None:
    text = (
        "dlc 1\nimport nn (Linear)\nmodule M() {\n"
        "  use net = chain(Linear(3, 4), tanh, Linear(4, 2))\n"
        "  export fn f(x: f32[3]) -> f32[2] = net(x)\n}\n"
    )
    for given, meant in (("nett", "net"), ("zzz", "there are net, net.0, net.2")):
        with pytest.raises(UsageError) as caught:
            dlc.compile(text=text, places={given: "cpu:1"})
        assert (caught.value.diagnostics[0].help or "").removesuffix("?").endswith(meant)


def test_a_model_without_a_text_cannot_be_placed_any_more(tmp_path: Path) -> None:
    dlc.compile(text=PLACED).save(tmp_path / "model.dlc")
    with pytest.raises(UsageError) as caught:
        dlc.compile(tmp_path / "model.dlc", places={"last": "cpu:1"})
    assert caught.value.diagnostics[0].code == "D0919"


def test_an_artifact_tells_the_memory_of_each_device(tmp_path: Path) -> None:
    dlc.compile(text=PLACED).save(tmp_path / "model.dlc")
    compiled = inspect_file(CompileRequest(str(tmp_path / "model.dlc"))).compiled
    assert compiled is not None
    assert [(row.entry, row.device) for row in compiled.memory] == [
        ("f", f"cpu:{number}") for number in range(1, 6)
    ]
    assert all(row.bytes >= 2 * 4 * 4 for row in compiled.memory)


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        (DEMANDING, Unsupported, [("D0707", 5), ("D0707", 6)]),
        (
            "dlc 1\nlimit exact\nlimit fast_narrow\nexport fn f(x: f32) -> f32 = x\n",
            ModelError,
            [("D0709", 2)],
        ),
    ],
)
def test_a_check_tells_the_demands_that_a_compilation_would_refuse(
    tmp_path: Path, text: str, kind: type[DlcError], found: list[tuple[str, int]]
) -> None:
    (tmp_path / "model.dlm").write_text(text, encoding="utf-8")
    path = str(tmp_path / "model.dlm")
    for attempt in (lambda: check_model(CompileRequest(path)), lambda: dlc.compile(path)):
        with pytest.raises(kind) as caught:
            attempt()
        told = [(each.code, each.place and each.place.line) for each in caught.value.diagnostics]
        assert told == found
