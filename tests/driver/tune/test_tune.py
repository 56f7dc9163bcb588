"""`dlc tune`: what is measured becomes a table that compilations of this machine use."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

import pytest

from dlc.driver.compile.cost_table import parse_table, tuned_here
from dlc.driver.tune import measure
from dlc.driver.tune import tune as tuning
from dlc.driver.tune.measure import QUICK, Effort, MeasuredRow, Measurement, host_rows
from dlc.driver.tune.probes import Probe
from dlc.driver.tune.tune import tune_costs
from dlc.errors import UsageError

NOW = {"product": 7.4, "function": -3.0, "barrier": 0.2, "tile": None, "load_byte": 1e9}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache of one's own, and a machine of which a few rows are measured at once."""

    def rows(_: Iterable[str], __: Effort) -> Iterator[MeasuredRow]:
        table = host_rows()
        return (MeasuredRow(table[name], now) for name, now in NOW.items())

    monkeypatch.setattr(tuning, "measure_rows", rows)
    monkeypatch.setenv("DLC_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_the_table_is_kept_in_the_cache_and_found_again(measured: Path) -> None:
    assert tuned_here() is None
    tuned = tune_costs()
    assert tuned.path == measured / "cache" / "costs.json"
    table = tuned_here()
    assert table is not None
    assert table.rows == {"product": 7}


def test_rows_that_are_nothing_or_beyond_a_table_stay_as_they_are(measured: Path) -> None:
    tuned = tune_costs(measured / "own.json")
    table = host_rows()
    values = {each.row.name: each.value for each in tuned.rows}
    assert values == {**{name: table[name].value for name in NOW}, "product": 7}


def test_a_named_file_is_written_and_the_cache_is_not(measured: Path) -> None:
    path = measured / "own.json"
    tune_costs(path)
    assert parse_table(path.read_text(), "own.json").rows == {"product": 7}
    assert tuned_here() is None


@pytest.mark.parametrize("out", ["gone/costs.json", None])
def test_where_nothing_can_be_kept_nothing_is_measured(
    out: str | None, measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> Iterator[MeasuredRow]:
        raise AssertionError

    monkeypatch.setattr(tuning, "measure_rows", never)
    monkeypatch.setenv("DLC_CACHE", "")
    with pytest.raises(UsageError, match="D0502"):
        tune_costs(None if out is None else measured / out)


def test_a_probe_is_timed_once_for_all_rows_that_ask_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measurement = Measurement(QUICK)
    first = measurement.row("kernel_depthwise")

    def again(_: Probe, __: Effort) -> float:
        raise ZeroDivisionError

    monkeypatch.setattr(measure, "picoseconds", again)
    assert measurement.row("kernel_depthwise") == first
    with pytest.raises(ZeroDivisionError):
        measurement.row("product")


def test_what_programs_read_has_every_row(measured: Path) -> None:
    data = cast("dict[str, object]", json.loads(json.dumps(tune_costs().data)))
    rows = cast("list[dict[str, object]]", data["rows"])
    assert [row["cost"] for row in rows] == list(NOW)
    assert rows[0]["value"] == 7
    assert rows[0]["measured"] == 7.4
