"""Parts of stages that do not fit together are refused when an artifact is read."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.runtime.artifact.manifest import Manifest, Staged
from dlc.runtime.artifact.stage_checks import check_stages

TEXT = """\
dlc 1
dim B = 1..8
mesh stage = 2
module Net() {
  param w: f32[2, 2] = ones()
  export fn run(x: f32[B, 2]) -> f32[B, 2] {
    let h = on stage 0 { x @ w }
    return on stage 1 { tanh(h) }
  }
}
"""


@cache
def manifest() -> Manifest:
    """The manifest of a function of two stages."""
    return make_artifact(
        CompileRequest(path="", text=TEXT, weights="init:0", ranks=2)
    ).artifact.manifest


def changed(change: Callable[[Staged], Staged]) -> Manifest:
    """The manifest with another description of the function."""
    (staged,) = manifest().staged
    return manifest()._replace(staged=(change(staged),))


WRONG: dict[str, Callable[[Staged], Staged]] = {
    "the mesh has another number": lambda own: own._replace(stages=3),
    "a weight is on none": lambda own: own._replace(homes={"w": 2}),
    "microbatches is out of range": lambda own: own._replace(microbatches=0),
    "not in order": lambda own: own._replace(
        parts=(own.parts[0]._replace(when="after"), *own.parts[1:])
    ),
    "not entry points": lambda own: own._replace(
        parts=(own.parts[0]._replace(entry="none"), *own.parts[1:])
    ),
    "a part is on none": lambda own: own._replace(
        parts=(own.parts[0]._replace(stage=2), *own.parts[1:])
    ),
    "which no part gives": lambda own: own._replace(parts=own.parts[::-1]),
    "another number of results": lambda own: own._replace(results=()),
    "a result is given by no part": lambda own: own._replace(results=("none",)),
    "have one name": lambda own: own._replace(parts=(own.parts[0], own.parts[0])),
}


def test_what_the_compiler_writes_fits() -> None:
    check_stages(manifest(), ValueError)


@pytest.mark.parametrize("message", WRONG)
def test_parts_that_do_not_fit_are_refused(message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_stages(changed(WRONG[message]), ValueError)
