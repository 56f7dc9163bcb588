"""What `benchmarks networks --out` writes: ratios of the best peer, means, a table and a picture."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.networks import report as networks_report
from benchmarks.networks.report import (
    MOST,
    UNIT,
    Outcome,
    Setting,
    compared,
    machine,
    markdown,
    mean,
    peer_settings,
    picture,
    versions_of,
    write_report,
)
from dlc.runtime.cpu.features import LEVELS

FACTS = {"processor": "a processor", "cores": 2, "date": "2026-11-23"}


def outcomes(network: str, ours: float, *peers: float, busy: int = 0) -> list[Outcome]:
    """Times of ours and of peers, medians twice as long."""
    names = ("dlc", "onnxruntime", "openvino", "torch.compile")
    times = zip(names, (ours, *peers), strict=False)
    return [Outcome(network, name, 1, t, 2 * t, {}, "cpu", busy) for name, t in times]


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this machine had AVX-512."""
    monkeypatch.setattr(networks_report, "host_features", lambda: LEVELS["x86-64-v4"])


def test_a_ratio_is_the_fastest_peer_over_ours() -> None:
    (row,) = compared(outcomes("net", 2.0, 5.0, 3.0))
    assert row.ratio == row.median_ratio == 1.5
    (alone,) = compared(outcomes("net", 2.0))
    assert alone.ratio is None


def test_settings_are_compared_apart() -> None:
    rows = compared([*outcomes("net", 2, 4), *outcomes("net", 2, 3, busy=1)])
    assert [(row.setting.busy, row.ratio) for row in rows] == [(0, 2.0), (1, 1.5)]


def test_the_mean_is_geometric_and_leaves_out_rows_without_peers() -> None:
    rows = compared([*outcomes("a", 1, 2), *outcomes("b", 1, 8), *outcomes("c", 1)])
    assert mean(row.ratio for row in rows) == 4
    assert mean([None]) is None


def test_the_table_has_a_part_for_each_setting_with_its_mean() -> None:
    rows = compared([*outcomes("a", 1, 2), *outcomes("b", 1, 3, 8), *outcomes("a", 2, 1, busy=1)])
    text = markdown(rows, FACTS, "wall")
    quiet, busy = text.split("### ")[1:]
    assert quiet.startswith("cpu, 1 thread\n")
    assert "| | dlc | onnxruntime | openvino | peer / dlc |" in quiet
    assert "| a | 1 | 2 | – | 2.00, 2.00 |" in quiet
    assert "| geometric mean | | | | 2.45, 2.45 |" in quiet
    assert busy.startswith("cpu, 1 thread, 1 busy core\n")
    assert "| a | 2 | 1 | 0.50, 0.50 |" in busy


def test_the_picture_has_a_bar_for_each_ratio_and_cuts_long_ones() -> None:
    rows = compared([*outcomes("a<b", 2, 3), *outcomes("fast", 1, 90), *outcomes("alone", 1)])
    tree = ElementTree.fromstring(picture(rows))
    bars = {
        bar.findtext("{*}title"): float(bar.attrib["width"])
        for bar in tree.iter("{http://www.w3.org/2000/svg}rect")
        if bar.find("{*}title") is not None
    }
    assert bars["a<b, cpu, 1 thread: 1.50"] == 1.5 * UNIT
    assert bars["fast, cpu, 1 thread: 90.00"] == MOST * UNIT
    assert not any(name and name.startswith("alone") for name in bars)
    assert picture([])


def test_a_folder_gets_a_table_figures_and_a_picture(tmp_path: Path) -> None:
    write_report(tmp_path / "new", outcomes("a", 1, 2), machine({"openvino": "1"}), "wall")
    data = json.loads((tmp_path / "new" / "networks.json").read_text())
    assert data["rows"][0]["ratio"] == 2
    assert data["means"] == {"cpu, 1 thread": {"ratio": 2, "median_ratio": 2}}
    assert data["machine"]["versions"]["openvino"] == "1"
    assert len(data["outcomes"]) == 2
    assert {path.suffix for path in (tmp_path / "new").iterdir()} == {".md", ".json", ".svg"}


def test_peers_keep_to_avx2_beside_code_without_avx512(wide: None) -> None:
    assert peer_settings("cpu")["openvino"] == {}
    assert peer_settings("cpu:x86-64-v4")["openvino"] == {}
    assert peer_settings("cpu:x86-64-v3")["openvino"]["ONEDNN_MAX_CPU_ISA"] == "AVX2"
    assert peer_settings("cpu:x86-64-v3")["onnxruntime"] == {}
    rows = compared([Outcome("a", "dlc", 1, 1, 1, {}, "cpu:x86-64-v3")])
    assert "ONNX Runtime has no such switch" in markdown(rows, FACTS, "wall")


def test_a_machine_without_avx512_restricts_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks_report, "host_features", lambda: LEVELS["x86-64-v3"])
    assert not any(peer_settings("cpu:x86-64-v3").values())
    rows = compared(outcomes("a", 1, 2))
    assert "This processor has no AVX-512" in markdown(rows, FACTS, "wall")


def test_versions_are_those_of_an_environment() -> None:
    assert versions_of(sys.executable, ("numpy", "nothing-of-that-name")).keys() == {"numpy"}


def test_a_setting_says_its_threads_and_busy_cores() -> None:
    assert Setting("cpu", 1, 0).title == "cpu, 1 thread"
    assert Setting("cpu", 2, 2).title == "cpu, 2 threads, 2 busy cores"
