"""`dlc memory --max` finds the largest size that fits, and no smaller one."""

from __future__ import annotations

import pytest

import dlc
from dlc.driver.memory.asked import plans_of
from dlc.driver.memory.largest import BEYOND, fits_text, largest_fits
from dlc.errors import Unsupported, UsageError
from tests.driver.memory.models import CHAIN, TRAINED, asked

PAIRS = """dlc 1
dim M = 2..64
dim N
export fn f(x: f32[M, N]) -> f32[M, N] = cumsum(sort(x, axis=1), axis=1)
"""


def taken(text: str, entry: str, **dims: int) -> int:
    """What a call takes at these sizes, as the promise of an artifact counts it."""
    (planned,) = plans_of(asked(text, entry))
    return planned.need(dims).least


@pytest.mark.parametrize("most", [1000, 4096, 5000])
def test_one_more_would_not_fit(most: int) -> None:
    (fit,) = largest_fits(asked(CHAIN, "f"), None, most)
    assert (fit.dim, fit.dims) == ("B", {"B": fit.size})
    assert fit.bytes == taken(CHAIN, "f", B=fit.size) == sum(fit.parts.values()) <= most
    assert fit.above == taken(CHAIN, "f", B=fit.size + 1) > most


def test_what_fits_is_what_a_promise_allows() -> None:
    (fit,) = largest_fits(asked(CHAIN, "f"), None, 5000)
    text = CHAIN.replace("export fn small", "fn small")
    dlc.compile(text=text, max_memory=5000, dims={"B": (1, fit.size)}).close()
    with pytest.raises(Unsupported, match="D0706"):
        dlc.compile(text=text, max_memory=5000, dims={"B": (1, fit.size + 1)})


def test_no_size_above_the_bound_of_the_text_is_found() -> None:
    (fit,) = largest_fits(asked(CHAIN, "f"), None, 1 << 30)
    assert (fit.size, fit.above) == (64, None)
    assert "B = 64 is the largest that is possible" in fits_text([fit], 1 << 30)


def test_a_size_without_a_bound_grows_as_far_as_it_fits() -> None:
    (fit,) = largest_fits(asked(PAIRS, M=2), "N", 1 << 20)
    assert fit.bytes <= 1 << 20 < (fit.above or 0)
    unlimited = PAIRS.replace("sort(x, axis=1)", "exp(x)")
    (fit,) = largest_fits(asked(unlimited, M=2), None, 1 << 60)
    assert (fit.size, fit.above) == (BEYOND, None)


def test_in_training_the_batch_is_looked_for_and_all_that_is_given_counts() -> None:
    found = {fit.entry: fit for fit in largest_fits(asked(TRAINED), None, 200_000)}
    step = found["train_step"]
    assert step.dim == "B"
    assert step.parts["given"] > 4 * 3 * (16 * 32 + 32 + 32 * 4 + 4)
    assert "weights" not in step.parts
    assert found["best"].parts["weights"] > 0
    assert "weights, state and batch" in fits_text([step], 200_000)


@pytest.mark.parametrize(
    ("text", "dim", "message"),
    [
        (PAIRS, None, "f has 2 sizes that are free: M, N"),
        (CHAIN, "C", "no entry point has a size C"),
        ("dlc 1\nexport fn f(x: f32[3]) -> f32[3] = sort(x)\n", None, "no named size that is free"),
    ],
)
def test_a_size_that_is_not_clear_is_asked_for(text: str, dim: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        largest_fits(asked(text, "f"), dim, 1 << 20)
    assert caught.value.diagnostics[0].code == "D0932"


def test_where_even_the_least_does_not_fit_the_numbers_and_the_holders_are_told() -> None:
    with pytest.raises(Unsupported) as caught:
        largest_fits(asked(CHAIN, "f"), None, 100)
    (told,) = caught.value.diagnostics
    assert (told.code, told.help) == (
        "D0706",
        "B = 1 is the least there is: allow more, or make the model smaller",
    )
    assert "at B = 1 (64 bytes of results, 128 bytes of values on the way, " in told.message
    assert "the limit is 100 bytes" in told.message
    assert any("sums: f32[B, 16] takes 64 bytes until sort" in note.text for note in told.labels)
