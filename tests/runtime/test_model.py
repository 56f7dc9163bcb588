"""Calling a loaded model: what is accepted, what comes back, and what is said when it does not fit."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from dlc.errors import ArtifactError, CallError, Unsupported, UsageError
from dlc.runtime.abi import Status
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.artifact.manifest import (
    Dim,
    Entry,
    Input,
    Library,
    Measured,
    Need,
    Op,
    Output,
    Program,
)
from dlc.runtime.calling.status import failure
from dlc.runtime.cpu import blas
from dlc.runtime.model import Model, load
from tests.runtime import building
from tests.runtime.artifact.sealing import Json, put_together, take_apart
from tests.suites import together

F32 = NDArray[np.float32]
X = np.arange(8, dtype=np.float32).reshape(2, 4)
W = 2 * np.arange(16, dtype=np.float32).reshape(4, 4)


@pytest.fixture(scope="module")
def tiny() -> Model:
    return Model(building.tiny().artifact())


@pytest.fixture(scope="module")
def many() -> Model:
    return Model(building.many().artifact())


def refused(call: Callable[[], object], code: str) -> str:
    """The message of the CallError with which a call is refused."""
    with pytest.raises(CallError) as caught:
        call()
    assert caught.value.diagnostics[0].code == code, caught.value
    return str(caught.value)


# ----------------------------------------------------------------------------------- what is right


def test_a_call_by_position_and_by_name_gives_the_same(tiny: Model) -> None:
    expected = (X + 1) * W[:2]
    one = np.ones_like(X)
    for result in (tiny.f(X, one), tiny.f(X, y=one), tiny.f(y=one, x=X), tiny(X, one)):
        np.testing.assert_array_equal(cast(F32, result), expected)


def test_a_model_runs_for_every_size_in_its_bounds(tiny: Model) -> None:
    for size in (1, 4, 2, 3, 1, 4):
        x = np.full((size, 4), 2, np.float32)
        np.testing.assert_array_equal(cast(F32, tiny.f(x, x)), 4 * W[:size])


def test_results_are_fresh_and_aligned(tiny: Model) -> None:
    first, second = cast(F32, tiny.f(X, X)), cast(F32, tiny.f(X, X))
    assert not np.shares_memory(first, second)
    assert first.ctypes.data % 64 == second.ctypes.data % 64 == 0
    assert first.flags.c_contiguous and first.flags.writeable


def test_inputs_of_any_layout_are_read(tiny: Model) -> None:
    expected = cast(F32, tiny.f(X, X))
    wide = np.zeros((2, 8), np.float32)
    wide[:, ::2] = X
    unaligned = np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 4)
    frozen = X.copy()
    frozen.flags.writeable = False
    for x in (wide[:, ::2], np.asfortranarray(X), X[::-1][::-1], unaligned, frozen, Tensor(X)):
        np.testing.assert_array_equal(cast(F32, tiny.f(x, X)), expected)


def test_lists_and_numbers_adapt_to_the_dtype(many: Model, tiny: Model) -> None:
    np.testing.assert_array_equal(cast(F32, tiny.f(X.tolist(), X)), cast(F32, tiny.f(X, X)))
    assert cast(F32, many.pick([1, 2.5, 3], 1)) == np.float32(2.5)
    assert cast(F32, many.fill(3, N=2)).tolist() == [3.0, 3.0]
    assert cast(F32, many.pick(((1), (2)), True + 0)) == 2


def test_arrays_of_other_libraries_are_read(many: Model) -> None:
    class Speaks:
        def __init__(self, array: NDArray[np.number]) -> None:
            self.array = array

        def __dlpack__(self) -> object:
            return self.array.__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.array.__dlpack_device__()

    class Converts:
        def __array__(self, dtype: object = None, copy: bool | None = None) -> F32:
            return np.ones(4, np.float32)

    first = many.both(Speaks(np.ones(4, np.float32)), Converts())
    assert cast("tuple[F32, F32]", first)[0].tolist() == [2, 2, 2, 2]


def test_an_array_in_other_memory_is_refused(many: Model) -> None:
    class OnDevice:
        def __dlpack__(self) -> object:
            raise AssertionError("nobody may ask for it")

        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

    with pytest.raises(Unsupported, match="move it to the CPU"):
        many.both(OnDevice())


def test_defaults_stand_in_for_inputs_that_are_left_out(many: Model) -> None:
    total, product = cast("tuple[F32, F32]", many.both(np.ones(4, np.float32)))
    assert total.tolist() == [2, 3, 4, 5]
    assert product.tolist() == [1, 2, 3, 4]


def test_several_results_are_a_named_tuple(many: Model) -> None:
    result = many.both(np.ones(4, np.float32))
    assert type(result).__name__ == "both"
    assert cast("dict[str, object]", getattr(result, "_asdict")()).keys() == {"total", "product"}  # noqa: B009


def test_a_size_without_an_input_is_given_by_name(many: Model) -> None:
    assert cast(F32, many.fill(2.5, N=3)).tolist() == [2.5] * 3
    assert cast(F32, many.fill(N=np.int64(4), value=1.0)).tolist() == [1.0] * 4
    assert "the size N must be given\n   = help: write N=8" in refused(
        lambda: many.fill(1.0), "D0801"
    )
    assert "whole number" in refused(lambda: many.fill(1.0, N=2.0), "D0801")
    assert "outside its bounds 1..1000" in refused(lambda: many.fill(1.0, N=1001), "D0804")


def test_a_measured_size_cuts_the_result(many: Model) -> None:
    result = many.positive([3.0, -1, 0, 5, 2])
    assert cast("tuple[NDArray[np.int64]]", result)[0].tolist() == [0, 3, 4]
    assert cast("tuple[NDArray[np.int64]]", many.positive(np.zeros(0, np.float32)))[0].shape == (0,)


def test_empty_arrays_are_arrays(many: Model) -> None:
    result = many.copy(Tensor([], "bf16"))
    assert cast(Tensor, result).shape == (0,)


def test_bf16_crosses_in_both_directions(many: Model) -> None:
    result = many.copy([1.0, 2.5, 1 / 3])
    assert Tensor(cast(F32, result)).tolist() == [1.0, 2.5, 0.333984375]
    assert "dlc.Tensor" in refused(lambda: many.copy(np.ones(3, np.float32)), "D0802")
    assert "is u16[3], where bf16[N]" in refused(lambda: many.copy(np.ones(3, np.uint16)), "D0802")


# ------------------------------------------------------------------------------------------- out=


def test_out_is_written_and_given_back(tiny: Model) -> None:
    out = np.empty((2, 4), np.float32)
    assert tiny.f(X, X, out=out) is out
    np.testing.assert_array_equal(out, cast(F32, tiny.f(X, X)))
    again = np.zeros((2, 4), np.float32)
    assert tiny.f(X, X, out=(again,)) is again
    np.testing.assert_array_equal(again, out)


def test_out_of_several_results_is_in_order_or_by_name(many: Model) -> None:
    total, product = np.empty(4, np.float32), np.empty(4, np.float32)
    x = np.ones(4, np.float32)
    for out in ((total, product), [total, product], {"product": product, "total": total}):
        total[:] = product[:] = -1
        result = cast("tuple[F32, F32]", many.both(x, out=out))
        assert result[0] is total and result[1] is product
        assert total.tolist() == [2, 3, 4, 5]


def test_out_may_be_a_tensor(many: Model) -> None:
    out = Tensor.from_bits(np.zeros(2, np.uint16), "bf16")
    assert many.copy([1, 2], out=out) is out
    assert out.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("out", "why"),
    [
        (np.empty((2, 4), np.float64), "is f64[2, 4], not f32[2, 4]"),
        (np.empty((4, 2), np.float32), "is f32[4, 2], not f32[2, 4]"),
        (np.empty((2, 8), np.float32)[:, ::2], "not C-contiguous"),
        (np.empty((4, 2), np.float32).T, "not C-contiguous"),
        (
            np.frombuffer(bytes(32), np.float32).reshape(2, 4),
            "not C-contiguous, aligned and writable",
        ),
        ([np.empty((2, 4), np.float32)] * 2, "2 arrays for 1 output"),
        ({"z": np.empty((2, 4), np.float32)}, "takes the array itself"),
        ("z", "out= is a str"),
        ([3.0], "is a float, which is not an array"),
    ],
)
def test_an_out_that_does_not_fit_is_refused(tiny: Model, out: object, why: str) -> None:
    call = cast("Callable[..., object]", tiny.f)
    assert why in refused(lambda: call(X, X, out=out), "D0806")


def test_an_out_that_shares_memory_is_refused(tiny: Model, many: Model) -> None:
    block = np.zeros((4, 4), np.float32)
    x, out = block[:2], block[1:3]
    assert "shares memory" in refused(lambda: tiny.f(x, X, out=out), "D0806")
    assert tiny.f(block[:2], X, out=block[2:]) is not None
    pair = np.zeros(6, np.float32)
    both = (pair[:4], pair[2:])
    assert "shares memory" in refused(lambda: many.both(np.ones(4, np.float32), out=both), "D0806")


def test_out_is_refused_where_the_size_is_measured(many: Model) -> None:
    x = np.ones(3, np.float32)
    out = np.empty(3, np.int64)
    assert "known only after the call" in refused(lambda: many.positive(x, out=out), "D0806")


# --------------------------------------------------------------------------------- what is wrong


class MakesNoArray:
    """An object of another library that breaks down."""

    def __array__(self, dtype: object = None, copy: object = None) -> object:
        raise RuntimeError("no memory")


class SaysNoDevice:
    """An array of another library that speaks DLPack badly."""

    def __init__(self, device: object) -> None:
        self._device = device

    def __dlpack_device__(self) -> object:
        return self._device, 0

    def __dlpack__(self) -> object:
        return self


HOLDS_ITSELF: list[object] = []
HOLDS_ITSELF.append(HOLDS_ITSELF)


@together(
    ("x", "code", "why"),
    [
        (
            X.astype(np.float64),
            "D0802",
            "x is f64[2, 4], where f32[B, 4] is expected\n   = help: write x.astype(np.float32)",
        ),
        (X.astype(">f4"), "D0802", "where f32[B, 4] is expected"),
        (X.astype(np.complex64), "D0802", "x is complex64[2, 4]"),
        (
            np.array([[None] * 4]),
            "D0802",
            "x is object[1, 4], where f32[B, 4] is expected\n   = help: pass an array of f32[B, 4]",
        ),
        (np.float64(1), "D0802", "x is f64, where"),
        ([np.zeros(4), np.zeros(4)], "D0802", "x is f64[2, 4]"),
        (
            X[0],
            "D0803",
            "x is f32[4], where f32[B, 4] is expected\n"
            "   = help: add a first axis of size 1: x is f32[1, 4] then",
        ),
        (X.reshape(4, 2), "D0803", "x is f32[4, 2], where f32[B, 4] is expected"),
        (1.0, "D0803", "x is f32, where f32[B, 4]"),
        (np.zeros((3, 4), np.float32), "D0804", "B is 3 in x but 2 in y"),
        ([[1, 2], [3]], "D0805", "rows differ in length"),
        ([["a"]], "D0805", "not a number"),
        ([[True] * 4], "D0805", "True or False"),
        ([[1e400] * 4, [np.float32(1)] * 4], "D0805", "numbers beside arrays"),
        ("text", "D0805", "x is a str, which is not an array"),
        (None, "D0805", "x is a NoneType"),
        (b"1234", "D0805", "x is a bytes"),
        (HOLDS_ITSELF, "D0805", "rows differ in length or depth"),
        (MakesNoArray(), "D0805", "x is a MakesNoArray, which makes no array: no memory"),
    ],
)
def test_an_input_that_does_not_fit_is_refused(tiny: Model, x: object, code: str, why: str) -> None:
    assert why in refused(lambda: tiny.f(x, X), code)


@pytest.mark.parametrize("device", ["x", 1, None])
def test_an_array_that_speaks_dlpack_badly_is_refused(tiny: Model, device: object) -> None:
    with pytest.raises(Unsupported, match=r"D0702.*the array cannot be read: "):
        tiny.f(SaysNoDevice(device), X)


def test_paths_and_limits_of_other_kinds_are_refused(tiny: Model, tmp_path: Path) -> None:
    tiny.save(tmp_path / "tiny.dlc")
    for said, wrong in (
        ("a model is saved at a path, found 5", lambda: tiny.save(5)),  # pyright: ignore[reportArgumentType]
        ("weights are a file or arrays by name, found [1]", lambda: tiny.with_weights([1])),  # pyright: ignore[reportArgumentType]
        ("sha256 is a text, found 5", lambda: load(tmp_path / "tiny.dlc", sha256=5)),  # pyright: ignore[reportArgumentType]
        (
            "max_memory is a number of bytes, found '1GiB'",
            lambda: load(tmp_path / "tiny.dlc", max_memory="1GiB"),  # pyright: ignore[reportArgumentType]
        ),
    ):
        with pytest.raises(UsageError, match="D0902") as caught:
            wrong()
        assert said in str(caught.value)


def test_a_model_does_not_take_the_name_of_another_kind_of_file(
    tiny: Model, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="D0924"):
        tiny.save(tmp_path / "tiny.dlm")


def test_an_axis_of_size_1_is_advised_only_where_it_makes_the_input_fit(tiny: Model) -> None:
    one_axis_more = "add a first axis of size 1: x is f32[1, 4] then"
    assert one_axis_more in refused(lambda: tiny.f(X[0], X), "D0803")
    assert "add a first axis" not in refused(lambda: tiny.f(X[0, :3], X), "D0803")


def test_a_result_without_a_name_is_no_key_of_out(tiny: Model) -> None:
    assert "the array itself" in refused(lambda: tiny.f(X, X, out={"f": X}), "D0806")


def test_numbers_that_do_not_fit_an_integer_are_refused(many: Model) -> None:
    assert "a fraction" in refused(lambda: many.pick([1.0], 1.5), "D0805")
    assert "holds 9223372036854775808" in refused(lambda: many.pick([1.0], 1 << 63), "D0805")
    assert "holds 18446744073709551616, where i64" in refused(
        lambda: many.pick([1.0], 1 << 64), "D0805"
    )


def test_sizes_outside_their_bounds_are_refused(tiny: Model) -> None:
    for size in (0, 5):
        x = np.zeros((size, 4), np.float32)
        assert f"B is {size} in x, outside its bounds 1..4" in refused(
            lambda x=x: tiny.f(x, x), "D0804"
        )


def test_arguments_that_are_not_there_are_refused(tiny: Model, many: Model) -> None:
    assert "the input y is missing" in refused(lambda: tiny.f(X), "D0801")
    assert "3 arguments for 2 inputs" in refused(lambda: tiny.f(X, X, X), "D0801")
    assert "x is given twice" in refused(lambda: tiny.f(X, x=X), "D0801")
    assert "there is no input X" in refused(lambda: tiny.f(X, X=X), "D0801")
    assert "did you mean value?" in refused(lambda: many.fill(valeu=1.0, N=1), "D0801")
    assert "it has x, y" in refused(lambda: tiny.f(X, z=X), "D0801")


def test_a_failure_while_running_points_at_the_line(many: Model) -> None:
    with pytest.raises(CallError) as caught:
        many.pick([1.0, 2.0, 3.0], 5)
    said = caught.value.diagnostics[0]
    assert said.code == "D0807"
    assert said.message == "pick: the index 5 is out of range for an axis of size 3"
    assert str(said.place) == "model.dlm:2:5"
    assert "export fn f(x: f32[B, 4])" in caught.value.render()
    assert said.help is None


def test_a_computed_index_that_would_count_from_the_end_has_a_way_out(many: Model) -> None:
    """Compiled and evaluated; below the axis there is none."""
    for index in (-1, -3, -4):
        with pytest.raises(CallError) as caught:
            many.pick([1.0, 2.0, 3.0], index)
        evaluated = failure(Status.INDEX, index, 3, None)
        way_out = caught.value.diagnostics[0].help
        assert way_out == evaluated.diagnostics[0].help
        assert ("where(i < 0, i + 3, i)" in (way_out or "")) == (index >= -3)


def test_a_size_that_would_be_below_0_points_at_the_line() -> None:
    draft = building.tiny()
    need = Need("B - 2", "D0804", "there is no f32[B - 2]: B - 2 is {n}", "model.dlm:2:1", 7)
    draft.entries[0] = draft.entries[0]._replace(needs=(need,))
    model = Model(draft.artifact())
    assert model.f(X, X) is not None
    said = refused(lambda: model.f(X[:1], X[:1]), "D0804")
    assert "error[D0804]: f: there is no f32[B - 2]: B - 2 is -1 where B is 1" in said
    assert said.endswith("\n   | ^^^^^^")
    assert "B - 2 is -1" in refused(lambda: model.f.working_memory(B=1), "D0804")


def test_needs_quote_only_texts_of_the_artifact() -> None:
    draft = building.tiny()
    need = Need("B - 2", "D0807", "no", "/etc/passwd:1:1", 5)
    draft.entries[0] = draft.entries[0]._replace(needs=(need,))
    with pytest.raises(CallError) as caught:
        Model(draft.artifact()).f(X[:1], X[:1])
    assert caught.value.render() == "error[D0807]: /etc/passwd:1:1: f: no where B is 1"


def test_a_place_far_behind_its_line_is_marked_at_the_end_of_it() -> None:
    draft = building.tiny()
    need = Need("B - 2", "D0807", "no", "model.dlm:2:99999999999999", 1 << 60)
    draft.entries[0] = draft.entries[0]._replace(needs=(need,))
    with pytest.raises(CallError) as caught:
        Model(draft.artifact()).f(X[:1], X[:1])
    assert len(caught.value.render()) < 1000


def test_only_texts_of_the_artifact_are_quoted() -> None:
    draft = building.many()
    program = draft.programs["pick"]
    draft.programs["pick"] = program._replace(ops=(Op("o", "/etc/passwd:1:1", "", "{a} of {b}"),))
    with pytest.raises(CallError) as caught:
        Model(draft.artifact()).pick([1.0], 7)
    said = caught.value.diagnostics[0]
    assert said.place is None
    assert said.message == "/etc/passwd:1:1: pick: o: 7 of 1"


# ------------------------------------------------------------------------------------ the model


def test_a_traced_call_says_who_did_what(tiny: Model) -> None:
    result, stretches = tiny.f.trace(X, X)
    np.testing.assert_array_equal(cast(F32, result), 2 * X * W[:2])
    assert [stretch.op.name for stretch in stretches] == ["x + y", "* w"]
    assert all(0 <= stretch.thread < tiny.threads for stretch in stretches)
    assert all(stretch.start <= stretch.end for stretch in stretches)
    np.testing.assert_array_equal(cast(F32, tiny.f(X, X)), cast(F32, result))


def test_a_misspelt_entry_point_gets_a_suggestion(many: Model) -> None:
    with pytest.raises(AttributeError, match="no entry point bothh; did you mean both"):
        many.bothh()
    assert not hasattr(many, "nothing")


@pytest.mark.parametrize("name", ["w", "weights", "threads", "both", "nothing"])
def test_what_a_model_has_cannot_be_set(many: Model, name: str) -> None:
    """Neither what is there nor anything else: it would be silently of no effect."""
    said = rf"a model never changes: {name} cannot be set; with_weights\(\{{...\}}\) gives"
    with pytest.raises(AttributeError, match=said):
        setattr(many, name, X)
    assert name == "both" or name not in vars(many)


def test_a_model_with_several_entry_points_is_not_called_itself(many: Model) -> None:
    with pytest.raises(UsageError, match="call one of both, pick"):
        many()


def test_entry_points_describe_themselves(tiny: Model, many: Model) -> None:
    f = tiny.entry_points["f"]
    assert f is tiny.f
    assert [item.name for item in f.inputs] == ["x", "y"]
    assert f.doc == f.__doc__ == "Adds & scales."
    assert repr(f) == "<entry point f(x: f32[B, 4], y: f32[B, 4]) -> f32[B, 4]>"
    assert (
        str(inspect.signature(f))
        == "(x: 'f32[B, 4]', y: 'f32[B, 4]', *, out=None, arena=None) -> 'f32[B, 4]'"
    )
    signature = inspect.signature(many.both)
    assert repr(signature.parameters["y"].default) == "[1.0, 2.0, 3.0, 4.0]"
    assert inspect.signature(many.fill).parameters["N"].kind is inspect.Parameter.KEYWORD_ONLY
    assert [output.name for output in many.positive.outputs] == ["places"]


def test_a_model_shows_what_it_has(tiny: Model) -> None:
    assert repr(tiny) == (
        "Model model.dlm: 16 parameters in 1 weight, 64 bytes\n"
        "  f(x: f32[B, 4], y: f32[B, 4]) -> f32[B, 4] where B = 1..4"
    )
    html = tiny._repr_html_()  # pyright: ignore[reportPrivateUsage] - what a notebook calls
    assert "Adds &amp; scales." in html
    assert "<code>f(x: f32[B, 4], y: f32[B, 4]) -&gt; f32[B, 4]</code>" in html
    assert "64 bytes" in html


def test_names_that_the_model_has_itself_stay_its_own() -> None:
    draft = building.tiny()
    draft.entries[0] = draft.entries[0]._replace(name="save")
    draft.programs = {"save": draft.programs["f"]}
    model = Model(draft.artifact())
    assert inspect.ismethod(model.save)
    assert model.entry_points["save"](X, X) is not None


def test_names_that_python_reserves_get_a_line_at_the_end() -> None:
    draft = building.tiny()
    shape = ("B", "4")
    inputs = (Input("lambda", "f32", shape), Input("arena", "f32", shape))
    outputs = (Output("class", "f32", shape),)
    draft.entries[0] = Entry("f", inputs, outputs, (Dim("B", 1, 4),))
    model = Model(draft.artifact())
    (result,) = cast("tuple[F32]", model.f(lambda_=X, arena_=X))
    np.testing.assert_array_equal(result, 2 * X * W[:2])
    assert list(inspect.signature(model.f).parameters) == ["lambda_", "arena_", "out", "arena"]


def test_an_untrusted_model_can_be_looked_at_but_not_called() -> None:
    draft = building.tiny()
    draft.triple = "riscv64-unknown-linux-gnu"  # not even for this machine
    model = Model(draft.artifact(), untrusted=True)
    assert model.entry_points["f"].inputs[0].name == "x"
    assert list(model.weights) == ["layer.w"]
    said = refused(lambda: model.f(X, X), "D0811")
    assert "loaded as untrusted: its code does not run" in said
    assert "help: compile the verified graph inside it, dlc.compile(path)" in said
    assert "closed" not in said
    model.close()
    assert "closed" in refused(lambda: model.f(X, X), "D0811")


def test_a_closed_model_is_not_called() -> None:
    with Model(building.tiny().artifact()) as model:
        assert model.f(X, X) is not None
    said = refused(lambda: model.f(X, X), "D0811")
    assert "the model was closed" in said
    assert "help: call it before close()" in said
    assert "untrusted" not in said
    assert model.times.load_ms > 0


def test_the_allowed_memory_is_never_exceeded() -> None:
    artifact = building.tiny().artifact()
    assert Model(artifact, max_memory=64).f(X, X) is not None
    with pytest.raises(CallError, match="a call needs 64 bytes, allowed are 63") as caught:
        Model(artifact, max_memory=63)
    assert caught.value.diagnostics[0].code == "D0613"


def test_memory_that_the_machine_lacks_is_refused_when_the_model_is_loaded() -> None:
    with pytest.raises(Unsupported, match=r"a call of f needs 1,073,741,824\.0 GiB"):
        Model(_hungry().artifact())


def test_memory_that_the_system_refuses_is_an_error_with_a_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, int]] = []

    def fits(what: str, needed: int) -> None:
        asked.append((what, needed))

    monkeypatch.setattr("dlc.runtime.calling.runner.check_free", fits)
    model = Model(_hungry().artifact())
    assert f"does not have {1 << 60} bytes" in refused(lambda: model.f(X, X), "D0613")
    assert asked[-1] == ("a call of f", (1 << 60) + X.nbytes)


def _hungry() -> building.Draft:
    """A model whose call needs more memory than any machine has."""
    draft = building.tiny()
    made = building.Assembler(inputs=2)
    made.end()
    draft.programs["f"] = _with_arena(draft, made, str(1 << 60))
    return draft


def _with_arena(draft: building.Draft, made: building.Assembler, arena: str) -> Program:
    roots = [building.RootRecord("all", arena, 0, 0, "0")]
    return draft.program("f", made, arena=arena, roots=roots)


@pytest.mark.parametrize("threads", [0, -1, 257])
def test_a_thread_count_that_makes_no_sense_is_refused(threads: int) -> None:
    with pytest.raises(UsageError, match=r"outside 1\.\.256"):
        Model(building.tiny().artifact(), threads=threads)


def test_loading_needs_numpy_alone(tmp_path: Path) -> None:
    building.tiny().artifact().write(tmp_path / "a.dlc")
    program = (
        "import sys\n"
        "import numpy as np\n"
        "from dlc.runtime.model import load\n"
        f"model = load({str(tmp_path / 'a.dlc')!r})\n"
        "x = np.ones((1, 4), np.float32)\n"
        "print(model.f(x, x).tolist())\n"
        "bad = {'llvmlite', 'scipy', 'typer', 'asyncio', 'ml_dtypes', 'zipfile'} & set(sys.modules)\n"
        "assert not bad, bad\n"
        "ours = [name for name in sys.modules if name.startswith('dlc.')]\n"
        "assert all(name.startswith(('dlc.runtime', 'dlc.errors', 'dlc.version')) for name in ours), ours\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout == "[[0.0, 4.0, 8.0, 12.0]]\n"


def test_a_file_that_is_loaded_twice_gives_the_same_bits(tmp_path: Path) -> None:
    building.tiny().artifact().write(tmp_path / "a.dlc")
    one, two = load(tmp_path / "a.dlc", threads=1), load(tmp_path / "a.dlc", threads=2)
    assert (one.threads, two.threads) == (1, 2)
    np.testing.assert_array_equal(cast(F32, one.f(X, X)), cast(F32, two.f(X, X)))


def test_code_that_calls_blas_runs_beside_other_users_of_it() -> None:
    pytest.importorskip("scipy", reason="scipy's BLAS is not installed")
    here = blas.library()
    model = Model(building.product(Library("BLAS", here.config, here.core)).artifact())
    a, b = np.arange(32, dtype=np.float32).reshape(2, 4, 4)
    np.testing.assert_allclose(cast(F32, model.f(a, b)), a @ b)


def test_another_blas_than_the_recorded_one_is_said() -> None:
    pytest.importorskip("scipy", reason="scipy's BLAS is not installed")
    artifact = building.product(Library("BLAS", "0.0.1", "Z80")).artifact()
    with pytest.warns(UserWarning, match=r"made with BLAS 0\.0\.1 \(Z80\)"):
        Model(artifact)


def test_dims_without_sense_at_their_bounds_still_load() -> None:
    draft = building.tiny()
    huge = (Dim("B", 1, 1 << 60), Dim("T", 0, 1 << 60))
    shape = ("B", "T")
    inputs = (Input("x", "f32", shape), Input("y", "f32", ("T - 1",)))
    made = building.Assembler(inputs=2)
    made.wave("copy", 1, made.output(0), made.input(0), made.value("4*B*T"))
    made.end()
    draft.prepare, draft.programs, draft.entries = None, {}, []
    draft.entry(Entry("f", inputs, (Output("", "f32", shape),), huge), draft.program("f", made))
    model = Model(draft.artifact())
    x = np.ones((3, 5), np.float32)
    np.testing.assert_array_equal(cast(F32, model.f(x, x[0, 1:])), x)
    assert "T - 1 is 4 (T = 5)" in refused(lambda: model.f(x, x[0]), "D0804")


def test_more_sizes_than_are_kept_work_in_any_order(many: Model) -> None:
    for size in [*range(1, 100), *range(99, 0, -1), 1, 50, 1, 99]:
        table = np.arange(size, dtype=np.float32)
        assert cast(F32, many.pick(table, np.array(size - 1))) == size - 1


def test_a_measured_size_beyond_its_bound_is_refused() -> None:
    draft = building.many()
    entry = draft.entries[2]
    limited = Dim("n", measured=Measured("count", "N//2"))
    draft.entries[2] = entry._replace(dims=(entry.dims[0], limited))
    model = Model(draft.artifact())
    assert cast("tuple[F32]", model.positive([1.0, -1.0, -1.0, 2.0]))[0].tolist() == [0, 3]
    message = refused(lambda: model.positive([1.0]), "D0810")
    assert "places would be [1], above its bound [0]" in message


def test_an_artifact_that_lies_about_its_code_is_refused_in_memory_too() -> None:
    draft = building.tiny()
    draft.abi = 7
    with pytest.raises(ArtifactError, match="version 7"):
        Model(draft.artifact())


def test_what_a_terminal_obeys_is_not_shown_of_an_artifact() -> None:
    manifest, sections = take_apart(building.tiny().artifact().to_bytes())
    manifest["model"] = "\x1b[31m\x9b2J\u202e.dlm"
    (entry,) = cast("list[dict[str, Json]]", manifest["entries"])
    entry["doc"] = "Adds\n\x1b[31m."
    model = Model.from_bytes(put_together(manifest, sections))
    assert repr(model).startswith("Model \ufffd[31m\ufffd2J\ufffd.dlm: ")
    assert model.f.__doc__ == "Adds\n\ufffd[31m."
    for shown in (repr(model), repr(model.f), repr(model.weights), model.f.__doc__):
        assert shown.replace("\n", "").isprintable()
