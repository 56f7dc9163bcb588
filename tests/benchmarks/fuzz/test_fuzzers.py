"""A small share of what the fuzzers run, with fixed seeds, as far as it needs no other environment."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from benchmarks.fuzz import __main__ as fuzz
from benchmarks.fuzz import files, graphs, meshes, network, pool, readers, texts, training
from benchmarks.fuzz.cases import Check, Kind, Outcome, attempt, placeholders
from benchmarks.fuzz.file_readers import READERS
from benchmarks.fuzz.pool import Pool
from benchmarks.fuzz.summary import Summary
from benchmarks.fuzz.waiting import queued
from dlc.dialects import array
from dlc.driver.compile.compile import compile_model
from dlc.driver.compile.settings import Settings
from dlc.driver.source.source_model import SourceModel
from dlc.errors import ArtifactError
from dlc.runtime.artifact.contents import Artifact
from tests.benchmarks.fuzz.ends import a_slow_one, ends_the_run, kinds_of_ends, no_check
from tests.driver.diff.planting import reuse_too_early
from tests.suites import every


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that cases have in common are kept; models that refer to files find none."""
    monkeypatch.setenv("DLC_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def verdicts(check: Check, seeds: range) -> Counter[str]:
    """The outcomes of some cases, none of which may fail."""
    found = [(seed, attempt(check, seed)) for seed in seeds]
    failed = [(seed, one) for seed, one in found if one.verdict in ("wrong", "crashed")]
    assert not failed
    return Counter(one.verdict for _, one in found)


# What they try.


@pytest.mark.parametrize("first", every(3, range(0, 15, 5)))
def test_random_graphs_agree_with_onnx_runtime(first: int) -> None:
    assert verdicts(graphs.check, range(first, first + 5))["agreed"] >= 4


@pytest.mark.parametrize("first", every(20, range(0, 80, 4)))
def test_random_texts_agree_with_the_evaluator(first: int) -> None:
    def check(seed: int) -> Outcome:
        return texts.check(texts.random_case(seed), None)

    assert verdicts(check, range(first, first + 4))["agreed"] >= 3


@pytest.mark.parametrize("first", every(2, (0, 8)))
def test_random_programs_agree_on_random_meshes(first: int) -> None:
    def check(seed: int) -> Outcome:
        return meshes.check(texts.random_case(seed))

    assert verdicts(check, range(first, first + 8))["agreed"] >= 7


@pytest.mark.parametrize("first", every(3, range(0, 150, 50)))
def test_damaged_files_are_read_or_refused(first: int, tmp_path: Path) -> None:
    def check(seed: int) -> Outcome:
        return files.check(seed, tmp_path, READERS)

    found = verdicts(check, range(first, first + 50))
    assert found["refused"] > 20
    assert found["agreed"] > 3


def test_a_random_network_trains() -> None:
    case = network.random_training(3)
    steps = training.trained(case, 1, "generated")
    assert len(steps) == len(case.batches["x"])
    assert float(steps[0][0]) != float(steps[-1][0])


def test_a_seed_gives_the_same_case_each_time() -> None:
    assert graphs.random_graph(5).model == graphs.random_graph(5).model
    assert texts.random_case(5).text("f32") == texts.random_case(5).text("f32")
    assert network.random_training(5).text == network.random_training(5).text


def test_graphs_have_more_than_110_operators() -> None:
    kinds = {
        kind for seed in range(400) for kind in graphs.kinds(graphs.random_graph(seed)).split()
    }
    assert len(kinds) > 110


# The processes and what is told of them.


def test_processes_that_crash_or_hang_are_noticed_and_replaced() -> None:
    found = dict(Pool(kinds_of_ends, 2, seconds=1.0).outcomes(range(5)))
    assert found[0] == found[4] == Outcome("agreed", count=2)
    assert found[1] == Outcome("crashed", "the process was ended by SIGABRT")
    assert found[2].verdict == "crashed"
    assert re.match(r"no answer within 1 s\n(.*\n)*.*ends.py.* in check", found[2].what)
    assert found[3].verdict == "crashed"
    assert found[3].what.startswith("KeyError at ")
    assert sorted(found) == list(range(5))


@pytest.mark.long
def test_time_in_which_others_have_the_processors_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def always_waiting(pid: int) -> float:
        return time.monotonic() if pid else 0.0

    monkeypatch.setattr(pool, "queued", always_waiting)
    assert [one.verdict for _, one in Pool(a_slow_one, 1, seconds=0.2).outcomes(range(1))] == [
        "agreed"
    ]
    monkeypatch.setattr(pool, "BUSY", 2)
    assert [one.verdict for _, one in Pool(a_slow_one, 1, seconds=0.2).outcomes(range(1))] == [
        "crashed"
    ]


def test_a_process_waits_for_a_processor_where_there_are_fewer_than_processes() -> None:
    before = queued(os.getpid())
    spinning = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        time.sleep(0.5)
        assert queued(os.getpid()) > before
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def test_a_process_that_has_done_its_share_makes_room_for_another() -> None:
    found = dict(Pool(kinds_of_ends, 1, seconds=5.0, recycled=2).outcomes([0, 4, 8, 12, 16]))
    assert {one.verdict for one in found.values()} == {"agreed"}
    assert list(found) == [0, 4, 8, 12, 16]


def test_a_clock_counts_no_seconds_in_which_its_process_was_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, seen = pool.Clock(), time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: seen + 3_600)
    assert clock.now() <= 2 * pool.LOOK_SECONDS


def test_a_run_that_a_signal_ended_goes_on_behind_what_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def kind_of(name: str) -> Kind:
        return Kind(name, ends_the_run)

    monkeypatch.setattr(fuzz, "kind_of", kind_of)
    out = tmp_path / "texts.json"
    run = ["texts", "--seed", "10", "--count", "9", "--out", str(out)]
    assert fuzz.main(run) == 0
    first = json.loads(out.read_text())
    assert 3 <= first["cases"] < 9
    assert first["next"] == 10 + first["cases"]
    assert fuzz.main(run) == 0
    assert fuzz.main(run) == 0  # nothing is left
    facts = json.loads(out.read_text())
    assert (facts["cases"], facts["next"], facts["ahead"]) == (9, 19, [])
    assert facts["counts"]["agreed"] == facts["comparisons"] / 2 == 5
    assert facts["reasons"]["refused"] == [{"what": "D0301 N", "times": 4, "seed": 11}]
    assert [part["cases"] for part in facts["parts"]] == [first["cases"], 9 - first["cases"], 0]
    capsys.readouterr()
    assert fuzz.main(["texts", "--seed", "11", "--out", str(out)]) == 2
    assert "is of texts from seed 10 on" in capsys.readouterr().err


def test_what_is_done_out_of_order_is_not_done_again() -> None:
    summary = Summary("files", 2, 3)
    for seed in (4, 5, 7):
        summary.add(seed, Outcome("agreed"))
    assert list(summary.left(6)) == [3, 6, 8]


def test_processes_that_do_not_start_end_the_run() -> None:
    with pytest.raises(RuntimeError, match="did not start"):
        list(Pool(no_check, 1, seconds=1.0).outcomes(range(8)))


def test_no_case_begins_after_the_time_is_up() -> None:
    begun = fuzz.begun_until(lambda: True, range(8))
    assert list(Pool(kinds_of_ends, 1, seconds=1.0).outcomes(begun)) == []


def test_a_summary_counts_reasons_without_names_and_numbers() -> None:
    summary = Summary("files", 1)
    summary.add(3, Outcome("refused", "D0503 /tmp/a/b.npy: 77 bytes are not [3, 4] of 'f64'"))
    summary.add(4, Outcome("refused", "D0503 /var/c.npy: 5 bytes are not [3] of 'f16'"))
    summary.add(5, Outcome("agreed", count=4))
    assert not summary.failed
    summary.add(6, Outcome("wrong", "1 is not 2"))
    assert summary.failed
    lines = "\n".join(summary.lines())
    assert "      2 D0503 PATH N bytes are not [..] of NAME  (seed 3)" in lines
    assert "4 comparisons" in lines
    (failure,) = json.loads(summary.as_json())["failures"]
    assert failure["repeat"] == "python -m benchmarks fuzz files --seed 6 --count 1"


def test_placeholders_keep_the_code() -> None:
    assert (
        placeholders("D0301 v18: the sizes n_2 and 1 differ")
        == "D0301 NAME: the sizes n_2 and N differ"
    )


def test_what_ends_a_search_is_told_with_the_input_that_does_it() -> None:
    told = """ === Uncaught Python exception: ===
KeyError: 'a row that is not there'
Traceback (most recent call last):
==7== ERROR: libFuzzer: fuzz target exited
artifact_prefix='./'; Test unit written to ./crash-6d76
"""
    said = readers.failure(told, 77)
    assert said == "KeyError: 'a row that is not there' (exit status 77); the input is ./crash-6d76"
    late = "==7== ERROR: libFuzzer: timeout after 20 seconds\nTest unit written to ./timeout-1\n"
    assert readers.failure(late, 70).startswith("libFuzzer: timeout after 20 seconds")


@pytest.mark.parametrize("name", fuzz.KINDS)
def test_each_kind_says_what_it_is(name: str) -> None:
    kind = fuzz.kind_of(name)
    assert kind.what
    assert callable(kind.start)


# That they find what is wrong.


def compiled_wrongly(opened: SourceModel, settings: Settings) -> Artifact:
    """What a wrong rewrite would make: each sum becomes a difference."""
    for op in list(opened.module.walk()):
        if isinstance(op, array.Add) and op.parent is not None:
            other = array.Subtract(*op.operands)
            other.location = op.location
            op.parent.insert(other, op)
            op.result.replace_by(other.result)
            op.erase()
    return compile_model(opened, settings)


def test_a_sum_that_becomes_a_difference_is_found_in_graphs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(graphs, "compile_model", compiled_wrongly)
    found = (attempt(graphs.check, seed) for seed in range(20))
    assert any(one.verdict == "wrong" and one.what.startswith("compiled") for one in found)


def test_a_sum_that_becomes_a_difference_is_found_in_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "compile_model", compiled_wrongly)
    found = (texts.check(texts.random_case(seed), None) for seed in range(6))
    assert any(one.verdict == "wrong" for one in found)


@pytest.mark.parametrize("kind", ["graphs", "texts"])
def test_memory_that_is_given_away_too_early_is_found(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reuse_too_early(monkeypatch)
    checks: dict[str, Check] = {
        "graphs": graphs.check,
        "texts": lambda seed: texts.check(texts.random_case(seed), None),
    }
    found = (attempt(checks[kind], seed) for seed in range(6))
    assert any(one.verdict == "crashed" and "is used in wave" in one.what for one in found)


def test_an_artifact_that_its_own_loader_refuses_is_wrong() -> None:
    def check(seed: int) -> Outcome:
        raise ArtifactError("a value would overwrite another", code="D0610")

    assert attempt(check, 0) == Outcome("wrong", "D0610 a value would overwrite another")


def test_a_reader_that_raises_a_key_error_is_found(tmp_path: Path) -> None:
    def read(path: Path, random: Random) -> None:
        raise KeyError("a row that is not there")

    chosen = {"npy": replace(READERS["npy"], read=read)}
    outcome = attempt(lambda seed: files.check(seed, tmp_path, chosen), 0)
    assert outcome.verdict == "crashed"
    assert "KeyError" in outcome.what


def test_a_reader_that_takes_too_much_memory_is_found(tmp_path: Path) -> None:
    def read(path: Path, random: Random) -> None:
        assert b"x" * (files.BYTES_ALWAYS + (64 << 20))

    chosen = {"npy": replace(READERS["npy"], read=read)}
    outcome = files.check(0, tmp_path, chosen)
    assert outcome.verdict == "wrong"
    assert "MiB for" in outcome.what


def test_a_reader_that_takes_too_long_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SECONDS", 0.05)

    def read(path: Path, random: Random) -> None:
        until = time.process_time() + 0.2
        while time.process_time() < until:
            pass

    chosen = {"npy": replace(READERS["npy"], read=read)}
    assert " s for " in files.check(0, tmp_path, chosen).what
