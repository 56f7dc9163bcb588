"""`dlc bench`: the figures that it gives."""

from __future__ import annotations

from typing import cast

from tests.cli.conftest import Command


def test_bench_gives_its_figures(dlc: Command) -> None:
    done = dlc("bench", "rows.dlm", "--threads", "1", "--seconds", "0", "--json")
    data = cast("dict[str, float]", done.data)
    assert data["threads"] == 1
    assert 0 < data["best_ms"] <= data["median_ms"] <= data["p99_ms"]
    assert data["compile_s"] > 0
    assert data["load_ms"] > 0
