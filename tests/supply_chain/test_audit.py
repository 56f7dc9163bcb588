"""Reports of pip-audit are judged right. Whether a vulnerability is known, only a service can say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from supply_chain import audit
from supply_chain.audit import NONE_KNOWN, NOT_ASKED, VULNERABLE, Audited, Verdict, judge, main

SAFE: Audited = {"name": "numpy", "version": "2.4.6", "vulns": []}
BAD: Audited = {
    "name": "pillow",
    "version": "11.0.0",
    "vulns": [
        {"id": "CVE-1", "fix_versions": ["11.1.0", "12.0.0"]},
        {"id": "CVE-2", "fix_versions": []},
    ],
}
SKIPPED: Audited = {"name": "scipy", "skip_reason": "not found"}


def test_nothing_known_is_told_from_nothing_asked() -> None:
    assert judge({"dependencies": [SAFE]}) == Verdict(NONE_KNOWN, [])
    assert judge({"dependencies": [SAFE, SKIPPED]}) == Verdict(NOT_ASKED, ["scipy: not found"])
    assert judge({"dependencies": []}) == Verdict(NOT_ASKED, [])


def test_a_vulnerability_is_named_with_the_versions_that_mend_it() -> None:
    assert judge({"dependencies": [SAFE, BAD, SKIPPED]}) == Verdict(
        VULNERABLE,
        [
            "pillow 11.0.0: CVE-1, fixed in 11.1.0, 12.0.0",
            "pillow 11.0.0: CVE-2, fixed in no version",
            "scipy: not found",
        ],
    )


def test_an_audit_that_cannot_run_is_none() -> None:
    verdict = audit.audit(audit.DEV, ["--no-such-option"])
    assert verdict.code == NOT_ASKED
    assert verdict.lines


@pytest.mark.parametrize(
    ("codes", "ends"),
    [
        ((NONE_KNOWN, NONE_KNOWN), NONE_KNOWN),
        ((NONE_KNOWN, NOT_ASKED), NOT_ASKED),
        ((NOT_ASKED, VULNERABLE), VULNERABLE),
        ((VULNERABLE, NONE_KNOWN), VULNERABLE),
    ],
)
def test_the_gravest_of_the_locks_decides(
    codes: tuple[int, int],
    ends: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers = {
        audit.DEV: Verdict(codes[0], ["scipy: said"]),
        audit.CUDA[-1]: Verdict(codes[1], ["scipy: said"]),
    }

    def answered(lock: Path, options: Sequence[str]) -> Verdict:
        return answers.get(lock, Verdict(NONE_KNOWN, []))

    monkeypatch.setattr(audit, "audit", answered)
    assert main() == ends
    out = capsys.readouterr().out
    assert out.count("scipy: said") == 2
    assert ("NOT AUDITED" in out) == (NOT_ASKED in codes)
