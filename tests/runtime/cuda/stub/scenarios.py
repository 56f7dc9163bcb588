"""What dlc asks of a driver, asked of the stub through the cuda-bindings of each folder.

    LD_LIBRARY_PATH=FOLDER_OF_THE_STUB python -m tests.runtime.cuda.stub.scenarios FOLDER...

Prints the name of each scenario that went well, and ends with the traceback of the first that did not.
The last one ends all work of its process on the GPU, and a process has one version of the bindings. So each
version has a copy of this process, which has imported all of dlc before.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.metadata import version
from multiprocessing import get_context
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

import dlc
from dlc.driver.compile import code_maker
from dlc.errors import CallError, Unsupported, UsageError
from dlc.runtime.arrays.tensor import Tensor
from dlc.runtime.cuda.bindings import Bindings
from dlc.runtime.cuda.memory import release_retired
from dlc.runtime.cuda.nvidia import OPENED, open_driver
from dlc.runtime.gpu.entry import GpuEntryPoint
from tests.gpu.cases import ROOT
from tests.runtime.cuda.stub.library import Stub

Array = NDArray[np.float32]
GPU = "cuda:sm_80"
ELF = b"\x7fELF"
LAYERS = """dlc 1
dim B = 1..300000
export fn scaled(x: f32[B, 3], y: f32[B, 3]) -> f32[B, 3] = softmax(x * y + sum(x)) - x
"""
PRODUCT = """dlc 1
dim B
export fn product(x: f16[B, 64], y: f16[64, 8]) -> f16[B, 8] = x @ y
"""
PLACED = """dlc 1
export fn both(x: f32[4, 4]) -> f32[4, 4] {
  let y = x + 1
  let z = on cuda:0 { exp(y) * 2 }
  return z - x
}
"""
ENDLESS = """dlc 1
export fn endless(x: f32) -> f32 = while s >= 0 with s = x { next s = s + 1 }
"""
LINE = ROOT / "tests/gpu/line.dlm"
CONDITIONS = (ROOT / "tests/gpu/conditions.dlm").read_text("utf-8")


def rows(count: int, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal((count, 3), np.float32)


def close(found: object, wanted: object) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), 1e-5, 1e-5)


def fails(call: Callable[[], object], *words: str) -> None:
    """Check that a call is refused in these words."""
    with pytest.raises(CallError) as told:
        call()
    assert all(word in str(told.value) for word in words), told.value


def calls(stub: Stub) -> None:
    """Kernel by kernel, as a graph, and as a graph whose arrays have moved; both sides of the bus."""
    on_cpu, on_gpu = dlc.compile(text=LAYERS, threads=1), dlc.compile(text=LAYERS, target=GPU)
    for count, seed in ((2, 0), (2, 1), (2, 2), (5, 3)):
        x, y = rows(count, seed), rows(count, seed + 9)
        close(on_gpu.scaled(x, y), on_cpu.scaled(x, y))
        here, there = Tensor(x).to("cuda"), Tensor(y).to("cuda")
        found = on_gpu.scaled(here, there)
        assert isinstance(found, Tensor)
        close(found.numpy(), on_cpu.scaled(x, y))
    assert stub["launches"] > 0
    point = on_gpu.entry_points["scaled"]
    assert isinstance(point, GpuEntryPoint)
    assert min(point.timed(rows(2, 0), rows(2, 1))) >= 0


def shared_memory(stub: Stub) -> None:
    """More than 48 KiB of it, launched alone and in a graph."""
    model = dlc.compile(text=PRODUCT, target="cuda:sm_90")
    (kernel,) = [each for each in stub.kernels.values() if each.dynamic_bytes]
    assert kernel.dynamic_bytes == 96 << 10
    x, y = (np.random.default_rng(seed).integers(-2, 3, (64, 8)) for seed in (0, 1))
    for _ in range(3):
        found = np.asarray(model.product(x.T.astype(np.float16), y.astype(np.float16)))
        np.testing.assert_array_equal(found.astype(int), x.T @ y)


def transfers(stub: Stub) -> None:
    """Of several chunks, from pinned memory and from other memory."""
    values = np.arange(1 << 20, dtype=np.float32)
    for given in (values, dlc.pinned(values)):
        np.testing.assert_array_equal(Tensor(given).to("cuda").numpy(), values)


def nothing_is_left(stub: Stub) -> None:
    """A model that is gone has left nothing on the device but small blocks for reuse."""
    gc.collect()
    assert stub["used"] <= sum(
        size * len(kept) for size, kept in open_driver(0).free_blocks.items()
    )


def conditions(stub: Stub) -> None:
    """Loops and branches as nodes of graphs."""
    model = dlc.compile(text=CONDITIONS, target=GPU)
    for _ in range(3):
        for a in (9, 2):
            close(model.root(np.float32(a)), np.sqrt(np.float32(a)))
            close(model.either(np.float32(a)), np.exp(np.float32(a)))
            close(model.either(np.float32(-a)), a)
    fails(lambda: model.root(np.float32(1e30)), "D0808", "limit of 100")
    close(model.root(np.float32(4)), 2)
    assert open_driver(0).condition_refusal == ""


def refused_conditions(stub: Stub) -> None:
    """The host decides, for this model only."""
    stub["refuses_conditions"] = 1
    model = dlc.compile(text=CONDITIONS, target=GPU)
    for _ in range(3):
        close(model.root(np.float32(9)), 3)
    driver = open_driver(0)
    assert "cuGraphConditionalHandleCreate" in driver.condition_refusal
    driver.condition_refusal = ""
    stub["refuses_conditions"] = 0
    conditions(stub)


def older_driver(stub: Stub) -> None:
    """One from before CUDA 12.4 is asked for no conditions."""
    stub["version"], stub["refuses_conditions"], stub["has_pools"] = 12020, 1, 0
    OPENED.clear()
    model = dlc.compile(text=CONDITIONS, target=GPU)
    for _ in range(3):
        close(model.root(np.float32(9)), 3)
    driver = open_driver(0)
    assert not driver.supports_conditions
    assert driver.condition_refusal == ""
    del model
    gc.collect()
    OPENED.clear()


def mixed(stub: Stub) -> None:
    """A program for a processor and a GPU."""
    model = dlc.compile(text=PLACED, target="cpu+cuda:sm_80")
    x = np.arange(16, dtype=np.float32).reshape(4, 4) / 16
    for _ in range(3):
        close(model.both(x), np.exp(x + 1) * 2 - x)


def training(stub: Stub) -> None:
    """Steps with weights and moments that stay on the device."""
    x, y = rows(3, 0), np.ones(3, np.float32)
    found, wanted = (
        [dlc.trainer(LINE, weights="init:1", target=target)] for target in (GPU, "cpu")
    )
    for _ in range(3):
        close(found[0].step(x=x, y=y), wanted[0].step(x=x, y=y))
    close(found[0].weights["w"], wanted[0].weights["w"])


def profiles(stub: Stub) -> None:
    """Times of each kernel, by events in a graph; a step of training is left as it was."""
    point = dlc.compile(text=LAYERS, target=GPU).entry_points["scaled"]
    x, y = rows(2, 0), rows(2, 1)
    before = np.asarray(point(x, y))
    found = point.profile(x, y, rounds=3)
    assert len(found.rows) > 1
    close([row.busy_ms for row in found.rows], 1)  # what a kernel of the stub takes
    np.testing.assert_array_equal(np.asarray(point(x, y)), before)
    conditional = dlc.compile(text=CONDITIONS, target=GPU).entry_points["root"]
    assert max(row.runs for row in conditional.profile(np.float32(9), rounds=1).rows) > 1


def few_calls(stub: Stub) -> None:
    """Of the driver: a call enters, launches, fetches failures, waits and leaves; a step uploads, too."""
    model = dlc.compile(text=LAYERS, target=GPU)
    x, y = (Tensor(rows(2, seed)).to("cuda") for seed in (0, 1))
    wanted = [np.asarray(model.scaled(x, y)) for _ in range(3)][-1]
    before = stub["calls"]
    found = model.scaled(x, y)
    made = stub["calls"] - before
    close(found, wanted)
    assert made == 5
    trainer = dlc.trainer(LINE, weights="init:1", target=GPU)
    batch = {"x": rows(3, 0), "y": np.ones(3, np.float32)}
    for _ in range(3):
        trainer.step(**batch)
    counts: list[int] = []
    for _ in range(4):
        before = stub["calls"]
        trainer.step(**batch)
        counts.append(stub["calls"] - before)
    assert counts == [6] * 4, counts


def steps_in_flight(stub: Stub) -> None:
    """More steps than may be in flight, with weights that are read in between."""
    x, y = rows(3, 0), np.ones(3, np.float32)
    one, other = (dlc.trainer(LINE, weights="init:1", target=GPU) for _ in range(2))
    started = [one.step(x=x, y=y, wait=False) for _ in range(9)]
    losses = [other.step(x=x, y=y) for _ in range(9)]
    close(one.weights["w"], other.weights["w"])
    assert [each.loss() for each in started] == losses
    assert (one.steps, one.measure(x=x, y=y)) == (9, other.measure(x=x, y=y))


def in_a_stream(stub: Stub) -> None:
    """Calls in a stream of another library: at once, as a graph, and captured into a graph of its own."""
    model = dlc.compile(text=LAYERS, target=GPU)
    x, y = (Tensor(rows(4, seed)).to("cuda") for seed in (0, 1))
    wanted = np.asarray(model.scaled(x, y))
    driver, cuda = open_driver(0), cast(Bindings, import_module("cuda.bindings.driver"))
    stream = driver.create_stream()
    started = model.scaled.in_stream(stream)
    for _ in range(3):
        close(started(x, y), wanted)
    started.wait()
    fails(lambda: started(rows(4, 0), y), "D0805", "x lies on the host")
    out = Tensor(np.zeros((4, 3), np.float32)).to("cuda")
    with driver:
        assert cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode(0))[0] == 0  # global
        given = started(x, y)
        started(given, y, out=out)
        status, graph = cuda.cuStreamEndCapture(stream)
        assert status == 0
    close(out, np.zeros((4, 3)))
    with driver:
        _, executable = cuda.cuGraphInstantiate(graph, 0)
        for _ in range(2):
            assert cuda.cuGraphLaunch(executable, stream)[0] == 0
    started.wait()
    close(given, wanted)
    close(out, np.asarray(model.scaled(given, y)))
    driver.destroy_stream(stream)


def dropped_in_a_capture(stub: Stub) -> None:
    """What Python drops while another library captures a stream does not end the capture."""
    model, other = (dlc.compile(text=LAYERS, target=GPU) for _ in range(2))
    x, y = (Tensor(rows(4, seed)).to("cuda") for seed in (0, 1))
    wanted = np.asarray(model.scaled(x, y))
    driver, cuda = open_driver(0), cast(Bindings, import_module("cuda.bindings.driver"))
    stream = driver.create_stream()
    started, dropped = model.scaled.in_stream(stream), other.scaled.in_stream(stream)
    given, lent = dropped(x, y), cast(Tensor, other.scaled(x, y))
    lent.__dlpack__()  # what takes it may work on it when nobody here has it any more
    large = Tensor(np.zeros((300000, 3), np.float32)).to("cuda")
    held = [given, lent, large, *[dlc.pinned(np.zeros(1 << 20)) for _ in range(6)]]
    before = stub["used"]
    with driver:
        assert cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode(0))[0] == 0  # global
        held.clear()
        del given, lent, large, other, dropped
        gc.collect()
        found = started(x, y)
        status, graph = cuda.cuStreamEndCapture(stream)
        assert status == 0
        _, executable = cuda.cuGraphInstantiate(graph, 0)
        assert cuda.cuGraphLaunch(executable, stream)[0] == 0
    started.wait()
    close(found, wanted)
    assert len(driver.retired) > 2
    Tensor(np.zeros((400000, 3), np.float32)).to("cuda")
    assert not driver.retired
    assert stub["used"] < before
    driver.destroy_stream(stream)


def forked(stub: Stub) -> None:
    """A child by fork is told that it cannot use the GPU of its parent."""
    x = Tensor(rows(2, 0)).to("cuda")
    child = os.fork()
    if not child:
        try:
            fails(x.numpy, "cuCtxPushCurrent", "forked")
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status == 0
    close(x, rows(2, 0))


def refused_start(stub: Stub) -> None:
    """Why a driver does not start is told."""
    stub["refuses_start"] = 1
    OPENED.clear()
    with pytest.raises(Unsupported, match=r"D0714.*refuses cuInit: error 802 of the stub"):
        dlc.compile(text=LAYERS, target="cuda")
    stub["refuses_start"] = 0


def limited(stub: Stub) -> None:
    """Memory is counted as the driver counts it, and refused beyond a limit before the driver is asked."""
    gc.collect()
    release_retired(open_driver(0))
    before, used = dlc.gpu_memory(), stub["used"]
    dlc.limit_gpu_memory(np.int64(before.in_use + 1000))
    many = Tensor(rows(300000, 0))
    fails(lambda: many.to("cuda"), "D0613", "limit_gpu_memory")
    dlc.limit_gpu_memory(None)
    held = many.to("cuda")
    after = dlc.gpu_memory()
    assert after.in_use - before.in_use == stub["used"] - used == held.nbytes
    assert after.peak >= after.in_use
    for wrong in (-1, True, 1.5):
        with pytest.raises(UsageError, match="D0901"):
            dlc.limit_gpu_memory(wrong)  # pyright: ignore[reportArgumentType] - 1.5


def full(stub: Stub) -> None:
    """A device without room says so, and works again when there is some."""
    model = dlc.compile(text=LAYERS, target=GPU)
    x, y = rows(2, 0), rows(2, 1)
    before = np.asarray(model.scaled(x, y))
    stub["bytes"] = stub["used"]
    many = rows(300000, 0)
    fails(lambda: model.scaled(many, many), "D0613", "out of memory")
    fails(lambda: Tensor(many).to("cuda"), "D0613")
    close(model.scaled(x, y), before)


def refused_machine_code(stub: Stub) -> None:
    """Machine code that the driver does not know, as that of a newer `ptxas`, gives way to the PTX."""
    del stub

    def assembled(*given: object) -> bytes:
        del given
        return ELF

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(code_maker, "assemble_ptx", assembled)
        model = dlc.compile(text=LAYERS, target="cuda:sm_90")
    assert bytes(model.artifact.section("code/cuda/cubin")) == ELF
    x, y = rows(2, 0), rows(2, 1)
    close(model.scaled(x, y), dlc.compile(text=LAYERS, threads=1).scaled(x, y))


def refused_ptx(stub: Stub) -> None:
    """Code that the driver's compiler does not accept is reported with its log."""
    stub["refuses_ptx"] = 1
    fails(
        lambda: dlc.compile(text=LAYERS, target=GPU), "cuModuleLoadDataEx", "ptxas error: the stub"
    )


def hang(stub: Stub) -> None:
    """While a call waits for a kernel that hangs, the process goes on; the result comes when it ends."""
    model = dlc.compile(text=LAYERS, target=GPU)
    x, y = rows(2, 0), rows(2, 1)
    wanted = [np.asarray(model.scaled(x, y)) for _ in range(3)][-1]
    stub["hangs"] = 1
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(model.scaled, x, y)
        with pytest.raises(TimeoutError):
            call.result(0.05)
        stub["hangs"] = 0
        close(call.result(), wanted)


def endless(stub: Stub) -> None:
    """A loop on the device that does not end is cancelled from another thread."""
    model = dlc.compile(text=ENDLESS, target=GPU)
    for _ in range(3):
        close(model.endless(np.float32(-1)), -1)
    last = stub["launches"] + 30

    def after_some_rounds(number: int) -> int:
        if number == last:
            model.cancel()
        return 0

    stub.in_kernel = after_some_rounds
    fails(lambda: model.endless(np.float32(1)), "D0809")
    assert last <= stub["launches"] < last + 9
    close(model.endless(np.float32(-2)), -2)


def third_kernel(stub: Stub) -> None:
    """An error in a kernel ends all work of the process, and every later call says so."""
    model = dlc.compile(text=LAYERS, target=GPU)
    x, y = rows(2, 0), rows(2, 1)
    last = stub["launches"] + 3
    stub.in_kernel = lambda number: 700 if number == last else 0
    lost = "this process cannot use the GPU any more"
    fails(lambda: [model.scaled(x, y) for _ in range(4)], "D0818", lost)
    fails(lambda: model.scaled(x, y), "D0818", lost)
    assert stub["launches"] <= last


SCENARIOS: list[Callable[[Stub], None]] = [
    calls,
    shared_memory,
    transfers,
    nothing_is_left,
    conditions,
    refused_conditions,
    nothing_is_left,
    older_driver,
    mixed,
    training,
    profiles,
    few_calls,
    steps_in_flight,
    in_a_stream,
    dropped_in_a_capture,
    forked,
    refused_start,
    limited,
    full,
    refused_machine_code,
    refused_ptx,
    hang,
    endless,
    third_kernel,
]


def run(stub: Stub, folder: str) -> None:
    """Run them all through the bindings of a folder, or through those that are installed."""
    sys.path.insert(0, folder)
    print(f"cuda-bindings {version('cuda-bindings')}", flush=True)
    for scenario in SCENARIOS:
        stub.restore()
        scenario(stub)
        print(scenario.__name__, flush=True)


def main() -> None:
    """Run them for each folder, until there is something wrong."""
    stub = Stub()
    stub.evaluate()
    for folder in sys.argv[1:]:
        process = get_context("fork").Process(target=run, args=(stub, folder))
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(1)


if __name__ == "__main__":
    main()
