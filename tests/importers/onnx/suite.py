"""The cases of ONNX's own test suite, each with what becomes of it here."""

from __future__ import annotations

import re
import unittest
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast
from unittest import mock

import numpy as np
from onnx.backend.test import BackendTest

from tests.importers.onnx.backend import DlcBackend

KINDS = ("Node", "Simple", "PyTorchConverted", "PyTorchOperator")
"""The parts of the suite that need no download."""
VERDICTS = ("passed", "nearer", "wrong", "broken", "unsupported")
NEARER = (
    *("test_attention_4d_causal_fp16", "test_attention_4d_causal_fp16_expanded"),
    *("test_dft_inverse", "test_dft_inverse_opset19"),
)
"""Cases whose stored results are farther from those in f64 than ours: attention in f16 by 4.9e-4 to 4.0e-4,
the transform, computed in f32 there, by 1.9e-7 to 3e-15 where sums cancel.
"""

NOT_COMPARED = ("test_loop16_seq_none",)
"""Cases whose results ONNX's own comparison cannot look at: scalars in sequences."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case."""

    kind: str
    name: str
    verdict: str
    why: str = ""


class _Verdict(unittest.TestResult):
    """Keeps what became of the one case that is run with it."""

    def __init__(self) -> None:
        super().__init__()
        self.verdict, self.why = "passed", ""

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.verdict, self.why = "unsupported", reason

    def addFailure(self, test: unittest.TestCase, err: object) -> None:
        self._keep("wrong", err)

    def addError(self, test: unittest.TestCase, err: object) -> None:
        self._keep("broken", err)

    def _keep(self, verdict: str, err: object) -> None:
        kind, error, _ = cast("tuple[type[BaseException], BaseException, object]", err)
        self.verdict, self.why = verdict, f"{kind.__name__}: {error}"


@contextmanager
def _small_volumes() -> Generator[None]:
    """Three cases pool the windows of a large volume one by one in Python: theirs is a smaller one."""
    random = np.random.randn

    def smaller(*shape: int) -> object:
        return random(*((1, 3, 8, 8, 8) if shape == (1, 3, 32, 32, 32) else shape))

    with mock.patch("numpy.random.randn", smaller):
        yield


def outcomes(kinds: Sequence[str], pattern: str, part: int, parts: int) -> list[Outcome]:
    """Every `parts`-th case of the suite, run one after the other."""
    with warnings.catch_warnings(), _small_volumes():
        warnings.simplefilter("ignore")  # the suite divides by 0 while it makes its cases
        cases = BackendTest(DlcBackend, __name__).test_cases
    found: list[Outcome] = []
    for kind in kinds:
        case = cases[f"OnnxBackend{kind}ModelTest"]
        names = [name for name in dir(case) if name.endswith("_cpu") and re.search(pattern, name)]
        for name in names[part::parts]:
            result = _Verdict()
            case(name).run(result)
            short = name.removesuffix("_cpu")
            nearer = result.verdict == "wrong" and short in NEARER
            verdict = "nearer" if nearer else result.verdict
            if short in NOT_COMPARED and verdict == "broken":
                verdict = "unsupported"
            found.append(Outcome(kind, short, verdict, result.why))
    return found
