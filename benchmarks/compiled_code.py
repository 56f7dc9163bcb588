"""Whether a change leaves what is compiled as it was: plans and machine code of all models, byte for byte.

    python -m benchmarks compiled_code [NAME]... [--target TARGET]... --write FILE
    python -m benchmarks compiled_code [NAME]... [--target TARGET]... --compare FILE

Compiles every example and each light graph of the onnx package, inference and training, and notes the
SHA-256 of every section of each artifact but the weights. `--compare` names the sections that differ from
a file that was written before, and ends with 3 if there are any. Targets are named, so that machines agree:
by default AVX2 and AVX-512.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from benchmarks.networks.files import models, opened_models
from dlc.driver.compile.settings import Settings
from dlc.driver.memory.asked import compile_for_plan

TARGETS = ("cpu:x86-64-v3", "cpu:x86-64-v4")
LEFT_OUT = ("weights", "prepared")
"""Sections of numbers, which follow from the others."""

Digests: TypeAlias = Mapping[str, Mapping[str, str]]
"""The digest of each section of each artifact."""


def digests(names: Sequence[str], targets: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """The sections of each artifact by the model, what it is compiled for, and the target."""
    for name in models(names):
        for target in targets:
            for opened, wanted in opened_models(name, Settings(target=target)):
                artifact = compile_for_plan(opened, wanted)
                facts = artifact.manifest.training
                kind = "inference" if facts is None else f"training {facts.block}".rstrip()
                yield (
                    f"{name} {kind} {target}",
                    {
                        section: hashlib.sha256(data).hexdigest()
                        for section, data in artifact.sections.items()
                        if not section.startswith(LEFT_OUT)
                    },
                )


def differences(before: Digests, now: Digests) -> list[str]:
    """A line for each artifact that is another one now, with the sections that differ."""
    lines: list[str] = []
    for name, sections in now.items():
        known = before.get(name)
        if known is None:
            lines.append(f"{name}: not compiled before")
            continue
        differ = sorted(k for k in {*sections, *known} if sections.get(k) != known.get(k))
        if differ:
            lines.append(f"{name}: {', '.join(differ)}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks compiled_code", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--target", action="append", dest="targets")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--compare", type=Path)
    arguments = parser.parse_args()
    found: dict[str, dict[str, str]] = {}
    for name, sections in digests(arguments.names, arguments.targets or TARGETS):
        print(f"{name}: {len(sections)} sections", file=sys.stderr, flush=True)
        found[name] = sections
    if arguments.write:
        arguments.write.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", "utf-8")
    if not arguments.compare:
        return 0
    lines = differences(json.loads(arguments.compare.read_text("utf-8")), found)
    print("\n".join(lines) or f"{len(found)} artifacts are the same, byte for byte")
    return 3 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
