"""What functions and plans tell callers about themselves is checked, at every level."""

from __future__ import annotations

import pytest

from dlc.driver.source.open import read_ir
from dlc.errors import ModelError
from tests.suites import together

FUNCTION = """\
"func.func"() <{{sym_name = "f", function_type = (tensor<?x3xf32, #dlc.dims<"B, 3">>, tensor<3xf32>)
    -> (tensor<?x3xf32, #dlc.dims<"B, 3">>, tensor<3xf32>)}}> ({{
^bb0(%x: tensor<?x3xf32, #dlc.dims<"B, 3">>, %y: tensor<3xf32>):
  "func.return"(%x, %y) : (tensor<?x3xf32, #dlc.dims<"B, 3">>, tensor<3xf32>) -> ()
}}) {{{attributes}}} : () -> ()
"""
RIGHT = {
    "dlc.dims": '["B = 1..64"]',
    "dlc.inputs": '["x", "y"]',
    "dlc.results": '["u", "v"]',
    "dlc.defaults": '["", dense<[1.0, 2.0, 3.0]> : tensor<3xf32>]',
    "dlc.updates": '["x", ""]',
    "dlc.doc": '"what it is"',
}


def text(**changed: str | None) -> str:
    """The function with some attributes other than they should be."""
    attributes = {**RIGHT, **{f"dlc.{key}": value for key, value in changed.items()}}
    spelled = [f"{key} = {value}" for key, value in attributes.items() if value is not None]
    return FUNCTION.format(attributes=", ".join(spelled))


def test_attributes_that_fit_are_accepted() -> None:
    read_ir(text(), "f.dlir")
    read_ir(text(inputs=None, results=None, defaults=None, updates=None, doc=None), "f.dlir")


@together(
    ("changed", "message"),
    [
        ({"dims": None}, "@f mentions the size B, which dlc.dims does not bound"),
        ({"dims": '["C = 1..64"]'}, "@f mentions the size B, which dlc.dims does not bound"),
        ({"dims": '["B = 64..1"]'}, "@f bounds B by 64..1"),
        ({"dims": '["B = many"]'}, "'B = many' is not a bound of a dim"),
        ({"dims": "3"}, "@f has something else for dlc.dims: 3"),
        ({"doc": "3"}, "@f has something else for dlc.doc: 3"),
        ({"hidden": '"one"'}, "@f has something else for dlc.hidden: 'one'"),
        ({"hidden": "3"}, "dlc.results = ['u', 'v'], which is not a name for each of -1"),
        ({"inputs": '["x"]'}, "dlc.inputs = ['x'], which is not a name for each of 2"),
        ({"inputs": '["x", "x"]'}, "which is not a name for each of 2"),
        ({"results": '["u", "v", "w"]'}, "which is not a name for each of 2"),
        ({"results": '["u", 3]'}, "which is not a name for each of 2"),
        ({"defaults": '["", "", ""]'}, "@f has 3 defaults for 2 arguments"),
        ({"defaults": '["", 3]'}, "@f has the default 3 for an argument tensor<3xf32>"),
        (
            {"defaults": '["", dense<[1.0, 2.0]> : tensor<2xf32>]'},
            "for an argument tensor<3xf32>",
        ),
        ({"updates": '["", "x"]'}, "@f cannot update 'x': that is not an argument tensor<3xf32>"),
        ({"updates": '["z", ""]'}, "@f cannot update 'z'"),
        ({"updates": '["x", "x"]'}, "which is not one for each result"),
    ],
)
def test_attributes_that_do_not_fit_are_refused(changed: dict[str, str], message: str) -> None:
    with pytest.raises(ModelError) as caught:
        read_ir(text(**changed), "f.dlir")
    assert message in caught.value.diagnostics[0].message


SOURCE = '"weight.source"() <{sym_name = "w", type = tensor<3xf32>, key = "w"}> : () -> ()\n'
DERIVED = """\
"weight.derived"() <{sym_name = "v", type = tensor<3xf32>, sources = [@w]}> ({
^bb0(%w: tensor<3xf32>):
  %v = "array.exp"(%w) : (tensor<3xf32>) -> tensor<3xf32>
  "weight.yield"(%v) : (tensor<3xf32>) -> ()
}) : () -> ()
"""
READER = """\
"func.func"() <{sym_name = "f", function_type = () -> tensor<3xf32>}> ({
^bb0():
  %v = "weight.get"() <{symbol = @v, type = tensor<3xf32>}> : () -> tensor<3xf32>
  "func.return"(%v) : (tensor<3xf32>) -> ()
}) : () -> ()
"""


def test_weights_are_derived_from_earlier_ones() -> None:
    read_ir(SOURCE + DERIVED + READER, "w.dlir")
    with pytest.raises(ModelError, match="@v takes other types than its sources have"):
        read_ir(DERIVED + SOURCE + READER, "w.dlir")


def test_weights_are_read_as_what_they_are() -> None:
    other = READER.replace("tensor<3xf32>", "tensor<4xf32>")
    with pytest.raises(ModelError, match=r"@v is read as f32\[4\], which it is not"):
        read_ir(SOURCE + DERIVED + other, "w.dlir")
