"""Every pass has text cases that say what it does, what it refuses and why, and what happens at an edge."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from dlc.driver.compile.pipelines import PIPELINE
from dlc.ir.passes import PASSES, parse_passes
from tests.cases import golden
from tests.suites import together

assert PIPELINE and PASSES, "the modules that define the passes are loaded"
FOLDER = Path(__file__).parent / "cases" / "passes"
LEAST = 3
"""What it does, what it refuses, an edge."""

ITS_RULES = "its rules fit or do not: nothing is weighed"
EVERY_ONE = "it is for every operation of a kind"
NEVER_REFUSES = {
    "algebra": ITS_RULES,
    "fold_transposes": "a factor is a transpose or is not",
    "autodiff": EVERY_ONE,
    "partition": "every value has a placement: what cannot be divided is replicated",
    "mixed_precision": "a product of f32 is rounded, and nothing else",
    "fuse_horizontally": "it joins what is small, and looks at nothing else",
    "bucket": "it joins what is small, and looks at nothing else",
    "canonicalize": ITS_RULES,
    "collapse": "two axes are walked as one or are not",
    "cse": "two operations are equal or are not",
    "dce": "a value is used or is not",
    "decompose": EVERY_ONE,
    "distribute": "a value depends on weights alone or does not",
    "fold_dequantize": ITS_RULES,
    "fold_scales": ITS_RULES,
    "fold_weights": "a value depends on weights alone or does not",
    "cluster_updates": "it moves what is small, and looks at nothing else",
    "constant_padding": EVERY_ONE,
    "decompose_caches": EVERY_ONE,
    "elide_narrowing": "the text asks for it, for all kernels",
    "layout": ITS_RULES,
    "lower_to_hetero": EVERY_ONE,
    "lower_to_kernels": EVERY_ONE,
    "lower_to_loops": EVERY_ONE,
    "lower_to_simt": EVERY_ONE,
    "make_prepare": EVERY_ONE,
    "place": "a value is needed on another device or is not",
    "release": "it moves what gives memory back, and looks at nothing else",
    "scalars_first": EVERY_ONE,
}
"""The passes without refusals, with the reason for it."""


NAMES = sorted(each.name for each in PASSES.values() if each.function.__module__.startswith("dlc."))


@cache
def cases(name: str) -> list[golden.Case]:
    """The cases of a pass in its own file that run it."""
    path = FOLDER / f"{name}.dlir"
    assert path.exists(), f"there is no {path}"
    all_of_them = golden.split(path.read_text("utf-8"))
    return [
        case for case in all_of_them if any(each.name == name for each in parse_passes(case.passes))
    ]


@together("name", NAMES)
def test_every_pass_has_three_cases(name: str) -> None:
    assert len(cases(name)) >= LEAST


@together("name", NAMES)
def test_a_pass_that_refuses_says_why_in_a_case(name: str) -> None:
    refuses = any(f"// log: {name}: " in (case.expected or "") for case in cases(name))
    assert refuses != (name in NEVER_REFUSES)


def test_every_file_of_cases_is_for_a_pass() -> None:
    assert {path.stem for path in FOLDER.glob("*.dlir")} <= PASSES.keys()
