"""Known vulnerabilities of the packages in the locks, as pip-audit is told them by a service.

    python -m supply_chain.audit [OPTION]...    options of pip-audit, such as --ignore-vuln ID

Ends with 0 where none is known, 1 where one is, 3 where a package could not be asked about: the service
was not reached, or does not know the package.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NotRequired, TypedDict, cast

from supply_chain.lock import CUDA, DEV, SUPPLY_CHAIN

NONE_KNOWN: Final = 0
VULNERABLE: Final = 1
NOT_ASKED: Final = 3


class Vulnerability(TypedDict):
    """What pip-audit tells of one."""

    id: str
    fix_versions: list[str]


class Audited(TypedDict):
    """What pip-audit tells of a package."""

    name: str
    version: NotRequired[str]
    vulns: NotRequired[list[Vulnerability]]
    skip_reason: NotRequired[str]


class Report(TypedDict):
    """What pip-audit prints."""

    dependencies: list[Audited]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of an audit: the code to end with, and a line for each package that it is about."""

    code: int
    lines: list[str]


def judge(report: Report) -> Verdict:
    """What a report of pip-audit comes to: a package that it left out is not a safe one."""
    packages = report["dependencies"]
    known = [
        f"{each['name']} {each.get('version')}: {found['id']}, "
        f"fixed in {', '.join(found['fix_versions']) or 'no version'}"
        for each in packages
        for found in each.get("vulns", ())
    ]
    left_out = [
        f"{each['name']}: {each['skip_reason']}" for each in packages if "skip_reason" in each
    ]
    code = VULNERABLE if known else NOT_ASKED if left_out or not packages else NONE_KNOWN
    return Verdict(code, known + left_out)


def audit(lock: Path, options: Sequence[str]) -> Verdict:
    """Ask about every package of a lock."""
    command = [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off"]
    source = ["--requirement", str(lock), "--require-hashes", "--disable-pip"]
    done = subprocess.run(
        [*command, *source, *options], capture_output=True, text=True, check=False
    )
    try:
        return judge(cast(Report, json.loads(done.stdout)))
    except json.JSONDecodeError:
        return Verdict(NOT_ASKED, done.stderr.strip().splitlines()[-1:])


def main() -> int:
    """Audit the locks, and say what was found; the gravest code of them."""
    verdicts = {lock: audit(lock, sys.argv[1:]) for lock in (DEV, SUPPLY_CHAIN, *CUDA)}
    for lock, verdict in verdicts.items():
        outcome = {
            NONE_KNOWN: "no vulnerability is known",
            VULNERABLE: "VULNERABLE",
            NOT_ASKED: "NOT AUDITED, the service could not be asked about these",
        }[verdict.code]
        print(f"{lock.name}: {outcome}")
        for line in verdict.lines:
            print(f"  {line}")
    codes = {verdict.code for verdict in verdicts.values()}
    return next(code for code in (VULNERABLE, NOT_ASKED, NONE_KNOWN) if code in codes)


if __name__ == "__main__":
    sys.exit(main())
