"""What `--target auto` chooses, and what it says about that."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest

import dlc
from dlc.driver.compile.settings import Settings
from dlc.driver.report.why import decisions_of, decisions_text
from dlc.driver.run.auto_device import Machine, automatic, estimated, machine_here, submodules
from dlc.driver.run.request import CompileRequest, make_artifact
from dlc.errors import UsageError
from dlc.ir.min_cut import Cut, smallest_cut
from tests.runtime.gpu.fake_gpu import no_gpu

AUTO = Settings(target="auto")
QUICK = Machine(4, "sm_90")
NONE = Machine(4, None)

TEXT = """dlc 1
import nn (Linear)
dim B = 1..64
module Heavy(n) {
  use a = Linear(n, n)
  use b = Linear(n, n)
  fn call(x: f32[B, n]) -> f32[B, n] = b(relu(a(x)))
}
module Net(n = 2048) {
  use light = Linear(4, 4)
  use heavy = Heavy(n)
  use last = Linear(4, 3)
  export fn f(x: f32[B, 4], y: f32[B, n]) -> f32[B, 3] =
    last(tanh(light(x))) + mean(heavy(y), axis=1, keepdims=true)
}
"""
WITH_PARTS = TEXT.replace("light = Linear(4, 4)", "light = Linear(4, 4) on cpu:1")


def decided(text: str, machine: Machine, **parameters: int) -> CompileRequest:
    wanted = CompileRequest("net.dlm", text=text, settings=AUTO, parameters=parameters)
    return automatic(wanted, machine)


def test_without_a_gpu_all_of_it_runs_on_the_processor() -> None:
    found = decided(TEXT, NONE)
    assert (found.settings.target, found.places) == ("cpu", {})
    assert [each.what for each in found.decided] == ["there is no GPU here"]


def test_what_does_not_pay_stays_with_the_processor() -> None:
    found = decided(TEXT, QUICK, n=16)
    assert (found.settings.target, found.places) == ("cpu", {})
    whys = {each.subject: each.what for each in found.decided if each.kind == "refused"}
    assert set(whys) == {"light", "heavy", "last"}
    assert set(whys.values()) <= {
        "the GPU takes longer",
        "the transfers cost more than the GPU saves",
    }


def test_what_pays_goes_to_the_gpu_and_the_rest_stays() -> None:
    # A text that names another CPU does not run on the GPU as a whole.
    found = decided(WITH_PARTS, QUICK)
    assert found.settings.target == "cpu+cuda:sm_90"
    assert found.places == {"heavy": "cuda:0"}
    told = {each.subject: each.what for each in found.decided}
    assert told["heavy"] == "run on cuda:0"
    assert told["the model"] == "run a part on sm_90"


def test_all_of_a_model_goes_where_that_is_best() -> None:
    text = TEXT.replace(
        "last(tanh(light(x))) + mean(heavy(y), axis=1, keepdims=true)",
        "0 * x[:, 0:3] + sum(heavy(exp(y) * y)) + last(x)",
    )
    found = decided(text, QUICK)
    assert (found.settings.target, found.places) == ("cuda:sm_90", {})


def test_the_choice_is_the_same_every_time_and_differs_by_machine() -> None:
    assert decided(TEXT, QUICK) == decided(TEXT, QUICK)
    assert decided(TEXT, Machine(4096, "sm_80"), n=512).settings.target == "cpu"
    assert decided(TEXT, Machine(1, "sm_90")).settings.target != "cpu"


def test_what_the_user_placed_stays_there() -> None:
    wanted = CompileRequest("net.dlm", text=TEXT, settings=AUTO, places={"heavy": "cpu:1"})
    found = automatic(wanted, QUICK)
    assert found.places["heavy"] == "cpu:1"


def test_an_artifact_says_what_was_chosen() -> None:
    found = decided(WITH_PARTS, QUICK)
    artifact = make_artifact(replace(found, weights="init:0")).artifact
    assert "--target=cpu+cuda:sm_90" in artifact.manifest.compiler.flags
    assert [target.name for target in artifact.manifest.targets] == ["cpu+cuda:sm_90"]
    said = decisions_text(decisions_of(found, ["auto"]))
    assert "heavy: run on cuda:0" in said
    assert "gpu us" in said


def test_without_a_gpu_auto_compiles_and_runs() -> None:
    with no_gpu():
        model = dlc.compile(text=TEXT, target="auto", settings={"n": 16}, weights="init:0")
    found = model.f(np.ones((2, 4), np.float32), np.ones((2, 16), np.float32))
    assert np.asarray(found).shape == (2, 3)


def test_a_gpu_that_there_is_not_may_be_named() -> None:
    assert machine_here("sm_90").gpu == "sm_90"
    with pytest.raises(UsageError, match="no GPU is called 'sm_12'"):
        automatic(CompileRequest("net.dlm", text=TEXT, settings=replace(AUTO, target="auto:sm_12")))


def test_estimates_tell_the_parts_and_what_is_sent_between_them() -> None:
    wanted = CompileRequest("net.dlm", text=TEXT, settings=Settings())
    found = estimated(wanted, QUICK)
    assert submodules(wanted.open()) == ["light", "heavy", "last"]
    heavy, light = found.parts["heavy"], found.parts["light"]
    assert heavy.cpu > 100 * light.cpu
    assert heavy.gpu < heavy.cpu / 10
    assert heavy.place.startswith("net.dlm:11:")
    assert ("cpu:0", "heavy") in found.sent


def test_the_smallest_cut_is_the_best_of_all_ways() -> None:
    draw = random.Random(0)
    for _ in range(30):
        names = "abcde"
        costs = {name: (draw.randrange(9), draw.randrange(9)) for name in names}
        pairs = {pair: draw.randrange(5) for pair in itertools.combinations(names, 2)}
        follow = {pair: draw.randrange(5) for pair in itertools.permutations(names, 2)}
        cut = Cut[str]()
        for name, (first, second) in costs.items():
            cut.apart(name, first=first, second=second)
        for (one, other), cost in pairs.items():
            cut.together(one, other, cost)
        for (one, other), cost in follow.items():
            cut.follows(one, other, cost)
        ways = {
            chosen: sum(costs[name][name in chosen] for name in names)
            + sum(cost for pair, cost in pairs.items() if len(chosen.intersection(pair)) == 1)
            + sum(cost for (a, b), cost in follow.items() if a not in chosen and b in chosen)
            for size in range(6)
            for chosen in map(frozenset, itertools.combinations(names, size))
        }
        second, cost = smallest_cut(cut)
        assert cost == ways[frozenset(second)] == min(ways.values())
        assert len(second) == min(len(way) for way, total in ways.items() if total == cost)
