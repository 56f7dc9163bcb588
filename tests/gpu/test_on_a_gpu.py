"""The whole suite on a GPU: every operation, its derivatives, programs, networks and their training.

    python3 -m pytest -m gpu [--seconds 420] [--out FOLDER]

It runs from a plain checkout, and is skipped where there is no GPU. `test_on_the_evaluator` runs the same
code at small sizes anywhere. What tells most comes first: a machine may be lent for minutes.
"""

from __future__ import annotations

import pytest

from tests.gpu.cases import (
    PROGRAMS,
    ROOT,
    Case,
    Conditions,
    Operator,
    Program,
    derivatives,
    networks,
    trainings,
)
from tests.gpu.conftest import Check
from tests.op_examples.every import OPERATORS

# Another version of NumPy than the tests are made for may warn of what it will not have one day.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]


def named(cases: list[Case]) -> list[object]:
    return [pytest.param(case, id=case.title) for case in cases]


EXAMPLES: list[Case] = [Operator(name, level) for level in (2, 0) for name in OPERATORS]
TEXTS: list[Case] = [
    Program(str(path.relative_to(ROOT))) for path in sorted(PROGRAMS.glob("*.dlm"))
]


@pytest.mark.parametrize("case", named([Conditions()]))
def test_the_device_decides_on_loops_and_branches(case: Case, check: Check) -> None:
    check(case)


@pytest.mark.parametrize("case", named(TEXTS))
def test_a_program_gives_what_its_evaluation_gives(case: Case, check: Check) -> None:
    check(case)


@pytest.mark.parametrize("case", named(EXAMPLES))
def test_an_operation_gives_what_its_evaluation_gives(case: Case, check: Check) -> None:
    check(case)


@pytest.mark.parametrize("case", named([*derivatives()]))
def test_a_derivative_is_that_of_differences(case: Case, check: Check) -> None:
    check(case)


@pytest.mark.parametrize("case", named([*networks()]))
def test_a_network_gives_what_it_gives_on_the_processor(case: Case, check: Check) -> None:
    check(case)


@pytest.mark.parametrize("case", named([*trainings()]))
def test_steps_of_training_have_the_losses_of_the_processor(case: Case, check: Check) -> None:
    check(case)
