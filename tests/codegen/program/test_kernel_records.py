"""What profiles read of a kernel: its module, what it computes, its places in the user's text, how much."""

from __future__ import annotations

from dlc.driver.compile.settings import Settings
from dlc.driver.run.request import CompileRequest, make_here
from dlc.ir.location import FileLocation, FusedLocation, UnknownLocation, gradient_location
from dlc.runtime.artifact.kernel_records import (
    KernelRecord,
    kernels_section,
    read_kernel_records,
)

BLOCK = """dlc 1
import nn (Linear, Conv2d)

dim B = 1..64

module Block(width) {
  use up = Linear(width, 4 * width)
  use down = Linear(4 * width, width)
  fn call(x: f32[3, width]) -> f32[3, width] = x + down(silu(up(x)))
}

module M() {
  use blocks = chain(Block(8), Block(8))
  use conv = Conv2d(4, 6, 3, padding=1)
  export fn f(x: f32[3, 8]) -> f32[3, 8] = softmax(blocks(x))
  export fn g(p: f32[B, 9, 9, 4]) -> f32[B, 9, 9, 6] = relu(conv(p))
}
"""


def records_of(text: str, entry: str) -> tuple[KernelRecord, ...]:
    request = CompileRequest("m.dlm", text=text, weights="init:0", settings=Settings(target="cpu"))
    artifact = make_here(request).artifact
    section = artifact.section(kernels_section("cpu", entry))
    return read_kernel_records(bytes(section)).kernels


def test_a_kernel_is_called_by_its_module_and_what_the_text_asks_for() -> None:
    titles = [record.title for record in records_of(BLOCK, "f")]
    assert "blocks.0.up · matmul 3×8×32" in [title.partition(" + ")[0] for title in titles]
    assert any("silu" in title for title in titles)
    assert titles[-1] == "softmax 3×8"


def test_a_kernel_of_the_library_has_its_place_in_the_text_of_the_user() -> None:
    places = {record.path: record.places[0] for record in records_of(BLOCK, "f")}
    assert places["blocks.0.up"].startswith("m.dlm:9:")
    assert all(place.startswith("m.dlm:") for r in records_of(BLOCK, "g") for place in r.places)


def test_a_convolution_says_window_channels_and_picture_and_counts_its_operations() -> None:
    (found,) = [record for record in records_of(BLOCK, "g") if record.what.startswith("conv")]
    assert found.path == "conv"
    assert found.what == "conv 3×3, 4→6, 11×11 + relu"
    assert found.operations == f"{81 * 6 * (2 * 9 * 4 + 2)}*B"


def test_a_product_is_two_operations_and_moves_each_array_once() -> None:
    text = "dlc 1\nexport fn f(x: f32[3, 5], y: f32[5, 7]) -> f32[3, 7] = x @ y\n"
    (found,) = records_of(text, "f")
    assert (found.what, found.operations) == ("matmul 3×5×7", str(2 * 3 * 5 * 7))
    assert found.bytes == str(4 * (3 * 5 + 5 * 7 + 3 * 7))


def test_of_a_table_only_the_rows_count_that_are_read() -> None:
    text = "dlc 1\nexport fn f(t: f32[1000, 8], i: i64[3]) -> f32[3, 8] = t[i]\n"
    (found,) = records_of(text, "f")
    assert found.what == "gather 3×8"
    assert int(found.bytes) <= 3 * 8 * (4 + 4 + 8)


def test_the_derivative_is_told_from_the_function() -> None:
    text = "dlc 1\nfn l(x: f32[40, 50], w: f32[50, 6]) -> f32 = sum(tanh(x @ w))\n" + (
        "export fn f(x: f32[40, 50], w: f32[50, 6]) -> f32[50, 6] = grad(l, wrt=w)(x, w)\n"
    )
    whats = [record.what for record in records_of(text, "f")]
    assert any(what.startswith("gradient of ") for what in whats), whats


def test_the_gradient_of_a_location_names_each_operation_once() -> None:
    one, other = FileLocation("a", 1, 2, operation="tanh"), FileLocation("a", 1, 3)
    found = gradient_location(FusedLocation((one, other)))
    assert gradient_location(found) == found
    assert found == FusedLocation((FileLocation("a", 1, 2, operation="gradient of tanh"), other))
    assert gradient_location(UnknownLocation("x")) == UnknownLocation("x")
