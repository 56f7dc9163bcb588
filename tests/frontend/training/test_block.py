"""The `train` block: what it says is checked, and what is wrong is told with its place."""

from __future__ import annotations

import pytest

from dlc.errors import Diagnostic, ModelError
from dlc.frontend.elaborate import elaborate
from dlc.frontend.training.block import Training

MODEL = """\
dlc 1
dim B = 1..64
module Line() {
  param w: f32[3] = ones()
  export fn predict(x: f32[B, 3]) -> f32[B] = x @ w
}
train Line {
  data = DATA
  loss(x: f32[B, 3], y: f32[B]) = mean((predict(x) - y) ** 2)
  optimizer = OPTIMIZER
  MORE
}
"""
DATA = 'npz("d.npz", x="x", y="y")'


def checked(data: str = DATA, optimizer: str = "sgd()", more: str = "") -> Training:
    text = MODEL.replace("DATA", data).replace("OPTIMIZER", optimizer).replace("MORE", more)
    found = elaborate("line.dlm", text=text).train
    assert found is not None
    return found


def refused(data: str = DATA, optimizer: str = "sgd()", more: str = "") -> Diagnostic:
    with pytest.raises(ModelError) as caught:
        checked(data, optimizer, more)
    (found,) = caught.value.diagnostics
    return found


@pytest.mark.parametrize("kind", ["npz", "npy", "safetensors"])
def test_every_kind_of_file_with_named_arrays_is_a_source(kind: str) -> None:
    data = checked(data=f'{kind}("d", x="a", y="b", test=0.25, limit=9, shuffle=false)').data
    assert (data.kind, data.path, data.fields) == (kind, "d", {"x": "a", "y": "b"})
    assert (data.test_part, data.limit, data.shuffle) == ("0.25", 9, False)


def test_only_a_folder_of_npy_files_may_leave_out_the_names() -> None:
    assert checked(data='npy("d")').data.fields == {}
    told = refused(data='npz("d.npz", x="x")')
    assert told.code == "D0533"
    assert told.message == "the loss takes y, which the data does not give"


@pytest.mark.parametrize(
    ("data", "code", "message"),
    [
        ('npz("d.npz", x="x", y="y", test=20)', "D0540", "test is a part between 0 and 1"),
        ('npz("d.npz", x="x", y="y", size=64)', "D0540", "size is an option of pictures"),
        ('npz("d.npz", x=columns(0, 3), y="y")', "D0533", "expected a name in quotes"),
        ('csv("d.csv", x=window(3), y="y")', "D0533", "or columns"),
        ('npz("", x="x", y="y")', "D0533", "an empty path names no file"),
        ('npx("d.npz", x="x", y="y")', "D0530", "data is none of npz, npy, safetensors, csv"),
    ],
)
def test_a_source_that_makes_no_sense_is_told_at_its_place(
    data: str, code: str, message: str
) -> None:
    told = refused(data=data)
    assert told.code == code
    assert message in told.message
    assert told.place is not None
    assert told.place.line == 8


@pytest.mark.parametrize("more", ["batch = 0", "epochs = 1.5", "seed = 4_294_967_296"])
def test_numbers_out_of_range_are_refused(more: str) -> None:
    assert refused(more=more).code == "D0534"


@pytest.mark.parametrize(
    "more",
    [
        "batch = {}", "average = ema(decay={})", 'checkpoint = file("c.safetensors", every={})',
        "rate = plateau(loss, patience={})", "loss_scale = {}", "loss_scale = dynamic(every={})",
        'checkpoint = file("c.safetensors")\n  stop = early(loss, patience={})',
    ],
)  # fmt: skip
@pytest.mark.parametrize("wrong", ["[1]", "1 + x", "broken"])
def test_a_wrong_constant_of_an_entry_is_told_once(more: str, wrong: str) -> None:
    """`broken` is a name whose own error is recorded where it is declared."""
    text = MODEL.replace("DATA", DATA).replace("OPTIMIZER", "sgd()")
    text = text.replace("MORE", more.format(wrong))
    if wrong == "broken":
        text += "let (broken, rest) = sort(nothing)\n"
    with pytest.raises(ModelError) as caught:
        elaborate("line.dlm", text=text)
    (told,) = caught.value.diagnostics
    assert "None" not in told.message


def test_a_wrong_name_of_the_file_is_told_once_beside_a_train_block() -> None:
    text = MODEL.replace("DATA", DATA).replace("OPTIMIZER", "sgd()").replace("MORE", "")
    with pytest.raises(ModelError) as caught:
        elaborate("line.dlm", text=f"{text}\nlet p = softmax(missing)\nconst q = p\n")
    assert [found.message for found in caught.value.diagnostics if found.code == "D0201"] == [
        "nothing is called missing here"
    ]


@pytest.mark.parametrize("entry", ["rate = plateau", "stop = early", "keep = best"])
def test_the_weight_of_a_loss_is_not_recorded_so_nothing_watches_it(entry: str) -> None:
    mean = "mean((predict(x) - y) ** 2)"
    text = MODEL.replace("DATA", DATA).replace("OPTIMIZER", "sgd()")
    text = text.replace(mean, f"(loss = {mean}, fit = {mean}, weight = f32(B))")
    file = 'checkpoint = file("line.safetensors")\n  '
    fit, weight = (
        text.replace("MORE", f'{file}{entry}({part}, mode="min")') for part in ("fit", "weight")
    )
    elaborate("line.dlm", text=fit)
    with pytest.raises(ModelError) as caught:
        elaborate("line.dlm", text=weight)
    (told,) = caught.value.diagnostics
    assert told.code == "D0534"
    assert told.message.endswith("one of loss, fit")


def test_total_steps_is_for_the_optimizer_alone() -> None:
    checked(optimizer="sgd(lr=cosine(peak=0.1))")
    assert refused(more="metric part = 1 / total_steps").code == "D0536"


@pytest.mark.parametrize("name", ["w", "step", "total_steps"])
def test_an_input_called_like_another_is_refused(name: str) -> None:
    told = refused(more=f"metric m({name}: f32[B]) = mean({name})", data='npy("d")')
    assert told.code == "D0537"
    assert name in told.message


@pytest.mark.parametrize("name", ["step", "total_steps", "seed"])
def test_a_weight_called_like_what_a_step_is_told_is_refused(name: str) -> None:
    text = MODEL.replace("w: f32[3]", f"{name}: f32[3]").replace("x @ w", f"x @ {name}")
    text = text.replace("DATA", DATA).replace("OPTIMIZER", "sgd()").replace("MORE", "")
    with pytest.raises(ModelError, match="a weight is called so") as caught:
        elaborate("line.dlm", text=text)
    (told,) = caught.value.diagnostics
    assert told.code == "D0537"
    assert told.place is not None
    assert told.place.line == 4


def test_weights_of_f64_ask_for_an_optimizer_of_f64() -> None:
    text = MODEL.replace("f32", "f64").replace("DATA", DATA).replace("MORE", "")
    with pytest.raises(ModelError, match="sgd updates weights of f32, and there is one of f64"):
        elaborate("line.dlm", text=text.replace("OPTIMIZER", "sgd()"))
    own = """\
module wide(lr = 0.1) {
  state m: f64[..] = zeros()
  fn update(p: f64[..], g: f64[..], step: i32) -> f64[..] = p - lr * g - 0 * m
}
module Line"""
    text = text.replace("module Line", own).replace("OPTIMIZER", "wide()")
    assert elaborate("line.dlm", text=text).train is not None
