"""Tests in text: IR, the passes to run on it, and what must come out, in one `.dlir` file.

    // RUN: lower_to_kernels,fuse
    // a value with two readers is kept
    ...IR in the short spelling...
    // ---
    ...the exact output...
    // log: fuse: several kernels read it: %a
    // -----
    // RUN: pack --matmul=generated
    ...IR...  // error: cannot multiply

After the output stands all that the passes refused, as the decision log has it. What passes are told
follows their names: fields of `dlc.ir.passes.Options`. `// PRINT` in place of `// RUN:` runs no pass:
the text is parsed and printed. A wrong text has no output; each line at which an error must be reported
ends in a part of its message.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dlc.errors import DlcError

__all__ = ["BadCase", "Case", "Run", "check", "split", "with_output"]

BETWEEN_CASES = "// -----"
BEFORE_OUTPUT = "// ---"


class BadCase(Exception):
    """A case file that is not written as this module says."""


@dataclass(frozen=True, slots=True)
class Case:
    """One case. `line` is where it begins in its file; lines in `errors` count from there, from 1."""

    line: int
    title: str
    passes: str
    options: Mapping[str, str]
    text: str
    expected: str | None
    errors: tuple[tuple[int, str], ...]


Run = Callable[[Case], str]
"""Gives the text of a case after its passes; raises DlcError."""


def split(file: str) -> list[Case]:
    """The cases of a file, from first to last. Raises BadCase."""
    cases: list[Case] = []
    line = 1
    for chunk in _chunks(file):
        cases.append(_case(chunk, line))
        line += len(chunk) + 1
    return cases


def check(case: Case, run: Run) -> str | None:
    """Run the case: None if all is as it says, else what differs."""
    if case.errors:
        return _check_errors(case, run)
    output = run(case).strip("\n")
    if case.expected is None:
        return f"neither output nor error is stated; pytest --update writes\n{output}"
    if output == case.expected:
        return None
    lines = difflib.unified_diff(
        case.expected.split("\n"), output.split("\n"), "expected", "found", lineterm=""
    )
    return "\n".join(lines)


def with_output(file: str, index: int, output: str) -> str:
    """The file's text with `output` as what its case number `index` expects."""
    chunks = _chunks(file)
    source, _ = _halves(chunks[index])
    chunks[index] = [*_trimmed(source), BEFORE_OUTPUT, *output.strip("\n").split("\n")]
    return f"\n{BETWEEN_CASES}\n".join("\n".join(chunk).rstrip("\n") for chunk in chunks) + "\n"


def _chunks(file: str) -> list[list[str]]:
    chunks: list[list[str]] = [[]]
    for line in file.removesuffix("\n").split("\n"):
        if line.rstrip() == BETWEEN_CASES:
            chunks.append([])
        else:
            chunks[-1].append(line)
    return chunks


def _halves(chunk: list[str]) -> tuple[list[str], list[str] | None]:
    stripped = [line.rstrip() for line in chunk]
    if BEFORE_OUTPUT not in stripped:
        return chunk, None
    at = stripped.index(BEFORE_OUTPUT)
    return chunk[:at], chunk[at + 1 :]


def _trimmed(lines: list[str]) -> list[str]:
    return "\n".join(lines).rstrip().split("\n")


def _case(chunk: list[str], line: int) -> Case:
    source, output = _halves(chunk)
    errors = tuple(
        (number, text.split("// error:")[1].strip())
        for number, text in enumerate(source, 1)
        if "// error:" in text
    )
    if errors and output is not None:
        raise BadCase(f"line {line}: a case states either its output or its errors")
    passes, options = _told(source, line)
    return Case(
        line=line,
        title=_title(source, line),
        passes=passes,
        options=options,
        text="\n".join(source) + "\n",
        expected=None if output is None else "\n".join(output).strip("\n"),
        errors=errors,
    )


def _told(source: list[str], line: int) -> tuple[str, dict[str, str]]:
    """The passes of a case, such as `fuse{max_inputs=4},dce`, and the options of all passes."""
    if source[0].rstrip() == "// PRINT":
        return "", {}
    run = re.fullmatch(r"// RUN: *([\w,{}=.-]+)((?: +--\w+=\S+)*) *", source[0])
    if run is None:
        raise BadCase(f"line {line}: a case begins with '// RUN: PASS,PASS' or '// PRINT'")
    options = [option.removeprefix("--").partition("=") for option in run[2].split()]
    return run[1], {name: value for name, _, value in options}


def _title(source: list[str], line: int) -> str:
    """The comment below the first line, or the line the case stands at."""
    comment = source[1].strip() if len(source) > 1 else ""
    return comment.removeprefix("//").strip() if comment.startswith("//") else f"line {line}"


def _check_errors(case: Case, run: Run) -> str | None:
    try:
        output = run(case)
    except DlcError as error:
        found = [(d.place.line if d.place else 0, str(d)) for d in error.diagnostics]
    else:
        return f"no error was reported; the output is\n{output}"
    unmet = list(case.errors)
    unforeseen: list[str] = []
    for line, report in found:
        match = next((e for e in unmet if e[0] == line and e[1] in report), None)
        if match is None:
            unforeseen.append(f"unforeseen: {report}")
        else:
            unmet.remove(match)
    missing = [f"missing at line {case.line + line - 1}: {part}" for line, part in unmet]
    return "\n".join(missing + unforeseen) or None
