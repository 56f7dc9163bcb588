"""What `benchmarks.networks` writes into a folder: a Markdown table, JSON, and a picture of the ratios.

A ratio is the time of the best peer divided by ours: above 1 we are faster.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from html import escape
from math import exp, log
from pathlib import Path
from typing import NamedTuple

from dlc.driver.drawing.svg import document
from dlc.runtime.cpu.features import host_features, host_model
from dlc.version import VERSION

OURS = "dlc"
WIDE_FEATURE = "avx512f"
RESTRICTED: Mapping[str, Mapping[str, str]] = {
    "onnxruntime": {},
    "openvino": {"ONEDNN_MAX_CPU_ISA": "AVX2", "OV_CPU_MAX_ISA": "AVX2"},
    "torch.compile": {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
}
"""The variables that keep a peer to AVX2, where it has any.

Of OpenVINO the first is for oneDNN in it; its own kernels obey the second in versions that have it
(https://github.com/openvinotoolkit/openvino/pull/38257).
"""
NARROW = frozenset({"x86-64", "x86-64-v2", "x86-64-v3", "haswell", "skylake", "znver1"})
"""Processors without registers of 64 bytes, for which peers are restricted."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured of one contender on one network."""

    network: str
    contender: str
    threads: int
    best_ms: float
    median_ms: float
    facts: Mapping[str, float]
    target: str = "cpu"
    busy: int = 0
    """How many other processes kept a processor busy meanwhile."""


class Setting(NamedTuple):
    """The circumstances of a measurement: contenders are compared within one only."""

    target: str
    threads: int
    busy: int

    @property
    def title(self) -> str:
        """In words.

        >>> Setting("cpu:x86-64-v3", 2, 1).title
        'cpu:x86-64-v3, 2 threads, 1 busy core'
        """
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        busy = f", {self.busy} busy core{'s' if self.busy > 1 else ''}" if self.busy else ""
        return f"{self.target}, {threads}{busy}"


class Compared(NamedTuple):
    """A network in one setting: milliseconds of each contender, the best call and the median."""

    network: str
    setting: Setting
    best: Mapping[str, float]
    median: Mapping[str, float]

    @property
    def ratio(self) -> float | None:
        """The best peer's fastest call divided by ours; None without a peer."""
        return _ratio(self.best)

    @property
    def median_ratio(self) -> float | None:
        """The same of medians."""
        return _ratio(self.median)


def _ratio(times: Mapping[str, float]) -> float | None:
    peers = [spent for name, spent in times.items() if name in RESTRICTED]
    return min(peers) / times[OURS] if peers else None


def compared(outcomes: Iterable[Outcome]) -> list[Compared]:
    """The outcomes by network and setting, in the order in which they came."""
    found: dict[tuple[str, Setting], tuple[dict[str, float], dict[str, float]]] = {}
    for each in outcomes:
        at = each.network, Setting(each.target, each.threads, each.busy)
        best, median = found.setdefault(at, ({}, {}))
        best[each.contender], median[each.contender] = each.best_ms, each.median_ms
    return [Compared(*at, *times) for at, times in found.items()]


def mean(ratios: Iterable[float | None]) -> float | None:
    """The geometric mean of those that there are; None where there are none.

    >>> mean([2.0, None, 8.0])
    4.0
    """
    logs = [log(ratio) for ratio in ratios if ratio is not None]
    return round(exp(sum(logs) / len(logs)), 9) if logs else None


def peer_settings(target: str) -> dict[str, Mapping[str, str]]:
    """The variables that peers get beside code of ours for a target, by peer."""
    narrow = target.removeprefix("cpu:") in NARROW and WIDE_FEATURE in host_features()
    return {name: settings if narrow else {} for name, settings in RESTRICTED.items()}


def remarks(settings: Sequence[Setting]) -> list[str]:
    """What is to be known about the instructions that contenders use."""
    if WIDE_FEATURE not in host_features():
        return ["This processor has no AVX-512: all contenders use AVX2 at most."]
    if not any(any(peer_settings(setting.target).values()) for setting in settings):
        return []
    return [
        "Beside code of ours without AVX-512, OpenVINO and PyTorch are asked to keep to AVX2 "
        "(`ONEDNN_MAX_CPU_ISA`, `OV_CPU_MAX_ISA`, `ATEN_CPU_CAPABILITY`), which releases of OpenVINO "
        "obey in oneDNN and not in kernels of their own; ONNX Runtime has no such switch and uses "
        "AVX-512."
    ]


def machine(versions: Mapping[str, str]) -> dict[str, object]:
    """The machine and the contenders' versions."""
    return {
        "processor": host_model(),
        "avx512": WIDE_FEATURE in host_features(),
        "cores": len(os.sched_getaffinity(0)),
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {OURS: VERSION, **versions},
    }


def versions_of(python: str, packages: Sequence[str]) -> dict[str, str]:
    """The versions of packages in an environment; of those that are not there none."""
    program = (
        "import sys, json, importlib.metadata as m\n"
        "have = {d.metadata['Name']: d.version for d in m.distributions()}\n"
        "print(json.dumps({n: have[n] for n in sys.argv[1:] if n in have}))"
    )
    command = [python, "-c", program, *packages]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(told)


# Files -------------------------------------------------------------------------------------------


def write_report(
    folder: Path, outcomes: Sequence[Outcome], facts: Mapping[str, object], clock: str
) -> None:
    """`networks.md`, `networks.json` and `networks.svg` of what was measured so far."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = compared(outcomes)
    (folder / "networks.md").write_text(markdown(rows, facts, clock), encoding="utf-8")
    (folder / "networks.svg").write_text(picture(rows), encoding="utf-8")
    data = {
        "machine": facts,
        "clock": clock,
        "rows": [_row_data(row) for row in rows],
        "means": {setting.title: _means(rows, setting) for setting in settings_of(rows)},
        "outcomes": [asdict(outcome) for outcome in outcomes],
    }
    (folder / "networks.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def _row_data(row: Compared) -> dict[str, object]:
    return {
        "network": row.network,
        **row.setting._asdict(),
        "best_ms": row.best,
        "median_ms": row.median,
        "ratio": row.ratio,
        "median_ratio": row.median_ratio,
    }


def _means(rows: Sequence[Compared], setting: Setting) -> dict[str, float | None]:
    own = [row for row in rows if row.setting == setting]
    return {
        "ratio": mean(row.ratio for row in own),
        "median_ratio": mean(row.median_ratio for row in own),
    }


def settings_of(rows: Iterable[Compared]) -> list[Setting]:
    """The settings of rows, in their order."""
    return list(dict.fromkeys(row.setting for row in rows))


def markdown(rows: Sequence[Compared], facts: Mapping[str, object], clock: str) -> str:
    """A table for each setting: milliseconds of the fastest calls, and the ratios."""
    lines = [
        f"{facts['processor']}, {facts['cores']} cores, {facts['date']}; "
        f"{'time that passes' if clock == 'wall' else 'processor time of all threads'}, fastest call "
        "in ms. The last column is the best peer's time divided by ours: fastest call, median.",
        *(f"\n{remark}" for remark in remarks(settings_of(rows))),
    ]
    for setting in settings_of(rows):
        own = [row for row in rows if row.setting == setting]
        names = list(dict.fromkeys(name for row in own for name in row.best))
        lines += ["", f"### {setting.title}", "", f"| | {' | '.join(names)} | peer / dlc |"]
        lines.append(f"|---|{'---|' * (len(names) + 1)}")
        for row in own:
            times = [_figure(row.best.get(name)) for name in names]
            ratios = f"{_ratio_text(row.ratio)}, {_ratio_text(row.median_ratio)}"
            lines.append(f"| {row.network} | {' | '.join(times)} | {ratios} |")
        means = _means(rows, setting)
        told = f"{_ratio_text(means['ratio'])}, {_ratio_text(means['median_ratio'])}"
        lines.append(f"| geometric mean |{' |' * len(names)} {told} |")
    return "\n".join(lines) + "\n"


def _figure(milliseconds: float | None) -> str:
    return "–" if milliseconds is None else f"{milliseconds:.3g}"


def _ratio_text(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}"


# The picture -------------------------------------------------------------------------------------

NAMES, UNIT, BAR, GAP, HEAD, LEGEND = 170.0, 180.0, 11.0, 9.0, 28.0, 560.0
"""Widths of the names and of a ratio of 1; heights of a bar, between networks, and above them;
the width of what is said above."""
MOST = 4.0
"""Longer bars are cut: one fast network would make all others short."""
COLOURS = ("#2563eb", "#d97706", "#059669", "#7c3aed", "#dc2626", "#0891b2", "#65a30d", "#be185d")
STYLE = (
    "text{font:12px ui-monospace,Menlo,Consolas,monospace}\n.small{font-size:10px}\n"
    ".paper{fill:#ffffff}text{fill:#111827}.even{stroke:#6b7280;stroke-dasharray:4 3}\n"
    "@media (prefers-color-scheme:dark){.paper{fill:#0d1117}text{fill:#e6edf3}}\n"
)


def picture(rows: Sequence[Compared]) -> str:
    """Bars of the ratios as SVG: a group for each network, a colour for each setting, a line at 1."""
    told = [row for row in rows if row.ratio is not None]
    settings = settings_of(told)
    parts: list[str] = []
    top = HEAD + len(settings) * (BAR + 4)
    for number, setting in enumerate(settings):
        y = HEAD + number * (BAR + 4)
        parts.append(_bar(NAMES, y, 24, number, setting.title))
        parts.append(_text(NAMES + 32, y + BAR - 1, setting.title))
    parts.append(
        _text(10, 18, "the best peer's fastest call / ours: right of the line dlc is faster")
    )
    top += GAP
    first = top
    longest = max([min(row.ratio or 0, MOST) for row in told], default=1.0)
    for name in dict.fromkeys(row.network for row in told):
        own = [row for row in told if row.network == name]
        parts.append(_text(10, top + BAR, name))
        for row in own:
            ratio = row.ratio or 0
            length = min(ratio, MOST) * UNIT
            number = settings.index(row.setting)
            parts.append(
                _bar(NAMES, top, length, number, f"{name}, {row.setting.title}: {ratio:.2f}")
            )
            mark = "" if ratio <= MOST else " »"
            parts.append(_text(NAMES + length + 5, top + BAR - 2, f"{ratio:.2f}{mark}", "small"))
            top += BAR + 1
        top += GAP
    line = NAMES + UNIT
    parts.append(f'<path class="even" d="M{line:g} {first - 4:g}V{top - GAP + 4:g}"/>')
    return document(max(LEGEND, NAMES + longest * UNIT + 70), top + 6, parts, STYLE)


def _bar(x: float, y: float, width: float, number: int, title: str) -> str:
    colour = COLOURS[number % len(COLOURS)]
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{max(width, 1):.1f}" height="{BAR:g}" fill="{colour}">'
        f"<title>{escape(title)}</title></rect>"
    )


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:g}">{escape(text)}</text>'
