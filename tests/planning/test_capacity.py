"""What no machine holds or finishes is refused by the compiler, with the place in the text."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.driver.source.open import open_model
from dlc.errors import ModelError, Unsupported
from dlc.runtime.artifact.contents import Artifact
from dlc.runtime.model import Model

AXES = ", ".join(["1"] * 16)
LARGE = 1_000_000


def made(text: str) -> Artifact:
    return make_artifact(
        CompileRequest("f.dlm", text=f"dlc 1\n{text}\n", weights="init:0")
    ).artifact


def compiled(text: str) -> Model:
    return Model(made(text))


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (
            f"export fn f(x: f32[{LARGE}, {LARGE}, {LARGE}]) -> f32 = sum(x)",
            "D0705",
            "f: input x, which is f32[1000000, 1000000, 1000000], needs 4,000,000,000,000,000,000 bytes",
        ),
        (
            "export fn f(x: f32[10000000, 10000000, 10000000, 1000000]) -> f32 = sum(x)",
            "D0705",
            "needs 4,000,000,000,000,000,000,000,000,000 bytes",
        ),
        (
            "export fn f(x: f32[0, 10000000, 10000000, 10000000]) -> f32 = sum(x)",
            "D0705",
            "input x",
        ),
        (
            f"export fn f(x: f32) -> f32[{LARGE}, {LARGE}, 99] = x + zeros([{LARGE}, {LARGE}, 99])",
            "D0705",
            "f: result 0",
        ),
        (
            f"dim B = 100..200\nexport fn f(x: f32[B, {LARGE}, {LARGE}]) -> f32 = sum(x)",
            "D0705",
            "f32[B, 1000000, 1000000], needs 400,000,000,000,000 bytes",
        ),
        (
            f"module M {{\nparam w: f32[{LARGE}, {LARGE}, {LARGE}]\n"
            "export fn f(x: f32) -> f32 = x * sum(w) }",
            "D0705",
            "the weight w, which is f32[1000000, 1000000, 1000000]",
        ),
    ],
)
def test_what_callers_see_is_refused_when_the_text_is_read(
    text: str, code: str, message: str
) -> None:
    with pytest.raises(Unsupported) as caught:
        open_model("f.dlm", text=f"dlc 1\n{text}\n")
    (found,) = caught.value.diagnostics
    assert found.code == code
    assert message in found.message
    assert found.place is not None
    assert f"{found.place.line} | " in caught.value.render()


@pytest.mark.parametrize(
    ("text", "code", "message", "column"),
    [
        (
            "export fn f(x: f32[99000000]) -> f32 {\n"
            "  let table = sort(x[:, new] * x)\n  return sum(sort(table, axis=0))\n}",
            "D0705",
            "needs 39,204,000,000,000,000 bytes",
            30,
        ),
        (
            f"export fn f(x: f32[{LARGE}]) -> f32 =\n  sum(x[:, new, new] * x[new, :, new] * x)",
            "D0713",
            "days up to here, and calls of more than 52 are refused",
            3,
        ),
    ],
)
def test_what_lies_between_is_refused_when_it_is_planned(
    text: str, code: str, message: str, column: int
) -> None:
    with pytest.raises(Unsupported) as caught:
        compiled(text)
    found = caught.value.diagnostics[0]
    assert (found.code, found.place and (found.place.line, found.place.column)) == (
        code,
        (3, column),
    )
    assert message in found.message


@pytest.mark.parametrize(
    "text",
    [
        f"export fn f(x: f32[{AXES}, 1]) -> f32 = sum(x)",
        f"export fn f(x: f32) -> f32[{AXES}, 1] = reshape(x, [{AXES}, 1])",
        f"export fn f(x: f32) -> f32 = sum(reshape(x, [{AXES}, 1]))",
        f"module M {{ param w: f32[{AXES}, 1] export fn f() -> f32 = sum(w) }}",
        f"module B {{ param w: f32[{AXES}] fn call(x) = x * sum(w) }}\n"
        "module M { use b = 2 * B() export fn f(x: f32) -> f32 = "
        "scan each in b with y = x { next y = each(y) } }",
    ],
)
def test_seventeen_axes_are_too_many_wherever_they_stand(text: str) -> None:
    with pytest.raises(ModelError) as caught:
        made(text)
    (found,) = caught.value.diagnostics
    assert (found.code, caught.value.exit_code) == ("D0338", 1)
    assert "17 axes" in found.message
    assert found.place is not None


def test_sixteen_axes_are_enough_for_inputs_weights_and_results() -> None:
    shape = (2, 3, *[1] * 13, 2)
    text = ", ".join(map(str, shape))
    model = compiled(
        f"module M {{ param w: f32[{text}] = ones()\n"
        f"export fn f(x: f32[{text}]) -> f32[{text}] = exp(cumsum(x, axis=1)) + w }}"
    )
    x = np.linspace(0, 1, 12, dtype=np.float32).reshape(shape)
    np.testing.assert_allclose(
        np.asarray(model["f"](x)), np.exp(np.cumsum(x, axis=1)) + 1, rtol=1e-6
    )


def test_sizes_of_many_quotients_are_no_problem() -> None:
    halved = " |> ".join(["x", *["halve"] * 8])
    artifact = made(
        "dim H = 256..1024\ndim W = 256..1024\n"
        "fn halve(x: f32[M, N]) -> f32[_, _] =\n"
        "  (x[: M // 2, : N // 2] + x[M - M // 2 :, N - N // 2 :]) / 2\n"
        f"export fn f(x: f32[H, W]) -> f32[_, _] = cumsum(sort({halved}), axis=0)"
    )
    found = np.asarray(Model(artifact).f(np.ones((500, 300), np.float32)))
    assert found.tolist() == [[1]]
    sizes = [text for target in artifact.manifest.targets for text in target.programs["f"].sizes]
    assert max(map(len, sizes)) < 200
