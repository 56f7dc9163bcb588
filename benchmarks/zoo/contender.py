"""One contender of the zoo: opens a network, writes its results at each size, and runs when told to.

    python contender.py KIND FILE RESULTS THREADS NAME.0.npz NAME.1.npz ...

Writes RESULTS.0.npz for the inputs NAME.0.npz and so on, then serves calls at the last size
(`benchmarks.contenders.serve`). It imports nothing of ours but that and what it measures, because it runs
in the peers' environment too.
"""

from __future__ import annotations

import importlib
import json
import re
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.contenders.serve import serve

Array: TypeAlias = NDArray[Any]
Session: TypeAlias = Any
Peer: TypeAlias = Any
Run: TypeAlias = Callable[[Mapping[str, Array]], Sequence[Array]]


def dlc(path: Path, threads: int) -> Run:
    """A compiled file; inputs that were fixed when it was compiled are left out."""
    from dlc import load

    model = load(path, threads=threads)
    (entry,) = model.entry_points.values()
    names = [each.name for each in entry.inputs]

    def run(given: Mapping[str, Array]) -> Sequence[Array]:
        if len(names) < len(given):
            known = {re.sub(r"\W", "_", name): array for name, array in given.items()}
            given = {name: known[name] for name in names}
        results: Any = entry(*given.values())
        return cast("tuple[Array, ...]", results) if isinstance(results, tuple) else [results]

    return run


def onnxruntime_session(model: Path | bytes, threads: int, *, plain: bool = False) -> Session:
    """A session that says nothing, with everything else as it comes, or (`plain`) without optimisations."""
    peer: Any = importlib.import_module("onnxruntime")
    options: Any = peer.SessionOptions()
    if plain:
        options.graph_optimization_level = peer.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    given = model if isinstance(model, bytes) else str(model)
    return peer.InferenceSession(given, options, providers=["CPUExecutionProvider"])


def onnxruntime(path: Path, threads: int) -> Run:
    """The peer of `.onnx`."""
    session = onnxruntime_session(path, threads)
    return lambda given: session.run(None, dict(given))


def onnxruntime_plain(path: Path, threads: int) -> Run:
    """The same without optimisations: where the two differ, rounding does."""
    session = onnxruntime_session(path, threads, plain=True)
    return lambda given: session.run(None, dict(given))


def onnxruntime_last_bit(path: Path, threads: int) -> Run:
    """The same for inputs with other last bits: of `MOVES` results those that are farthest away."""
    session = onnxruntime_session(path, threads)

    def run(given: Mapping[str, Array]) -> Sequence[Array]:
        usual = session.run(None, dict(given))
        streams = [np.random.default_rng(seed) for seed in range(MOVES)]
        found = [session.run(None, _moved(given, stream)) for stream in streams]
        return max(found, key=lambda each: _distance(each, usual))

    return run


def onnxruntime_in_f32(path: Path, threads: int) -> Run:
    """The same network with f32 in place of f16: where the two differ, 16 bits round."""
    onnx: Any = importlib.import_module("onnx")
    network = onnx.load(str(path))
    half = onnx.TensorProto.FLOAT16
    results = [each.type.tensor_type.elem_type == half for each in network.graph.output]
    _widen(network.graph)
    session = onnxruntime_session(network.SerializeToString(), threads)

    def run(given: Mapping[str, Array]) -> Sequence[Array]:
        wide = {
            name: each.astype(np.float32) if each.dtype == np.float16 else each
            for name, each in given.items()
        }
        found = zip(session.run(None, wide), results, strict=True)
        return [each.astype(np.float16) if narrow else each for each, narrow in found]

    return run


def _widen(graph: Peer) -> None:
    """Give every array in f16 of an ONNX graph f32."""
    onnx: Any = importlib.import_module("onnx")
    half, single = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
    attributes = [each for node in graph.node for each in node.attribute]
    for tensor in (*graph.initializer, *[each.t for each in attributes if each.HasField("t")]):
        if tensor.data_type == half:
            wide = onnx.numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(wide, tensor.name))
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == half:
            value.type.tensor_type.elem_type = single
    for each in attributes:
        if each.name in {"to", "dtype"} and each.i == half:
            each.i = single
        if each.HasField("g"):
            _widen(each.g)


MOVES = 16
"""How often inputs are moved by their last bit: a step of 8 bits that rounding decides flips in some."""


def _moved(given: Mapping[str, Array], stream: np.random.Generator) -> dict[str, Array]:
    """The inputs, each float larger or smaller by its last bit."""
    moved = dict(given)
    for name, each in given.items():
        if each.dtype.kind == "f":
            signs = np.where(stream.random(each.shape) < 0.5, -np.inf, np.inf)
            moved[name] = np.nextafter(each, signs.astype(each.dtype))
    return moved


def _distance(found: Sequence[Array], usual: Sequence[Array]) -> float:
    """The largest difference of results in floats, relative to the largest element of each."""
    pairs = [
        (one, other) for one, other in zip(found, usual, strict=True) if other.dtype.kind == "f"
    ]
    return max(
        (
            float(np.abs(one - other).max(initial=0) / max(np.abs(other).max(initial=0), 1e-30))
            for one, other in pairs
            if one.shape == other.shape
        ),
        default=0.0,
    )


def torch(path: Path, threads: int) -> Run:
    """The peer of `.pt2`: the program in eager mode."""
    peer: Any = importlib.import_module("torch")
    peer.set_num_threads(threads)
    module = peer.export.load(str(path)).module()
    leaves = peer.utils._pytree.tree_leaves

    def run(given: Mapping[str, Array]) -> Sequence[Array]:
        with peer.no_grad():
            results = module(*[peer.from_numpy(each) for each in given.values()])
        return [each.numpy() for each in leaves(results)]

    return run


def jax(path: Path, threads: int) -> Run:
    """The peer of `.mlir`: what `jax.export` wrote, for any sizes, or a module of StableHLO for its own.

    XLA has threads of its own, so `threads` changes nothing.
    """
    peer: Any = importlib.import_module("jax")
    peer.config.update("jax_platforms", "cpu")
    written = path.read_bytes()
    if written.startswith((MODULE_BYTECODE, b"module", b"#")):
        run = _xla_module(peer, written)
    else:
        run = peer.export.deserialize(bytearray(written)).call
    return lambda given: [np.asarray(each) for each in peer.tree.leaves(run(*given.values()))]


MODULE_BYTECODE = b"ML\xefR"
"""What bytecode of MLIR begins with; its text begins with the module, or with names of locations."""


def _xla_module(peer: Peer, written: bytes) -> Callable[..., object]:
    """A module of StableHLO, compiled by XLA."""
    mlir: Any = importlib.import_module("jax._src.interpreters.mlir")
    stablehlo: Any = importlib.import_module("jaxlib.mlir.dialects.stablehlo")
    bindings: Any = importlib.import_module("jaxlib._jax")
    with mlir.make_ir_context() as context:
        if written.startswith(MODULE_BYTECODE):
            module = stablehlo.deserialize_portable_artifact(context, written)
        else:
            module = mlir.ir.Module.parse(written)
        text = str(module)
    device: Any = peer.devices()[0]
    compiled = device.client.compile_and_load(text, bindings.DeviceList((device,)))
    return lambda *given: compiled.execute([peer.device_put(each) for each in given])


KINDS = {
    "dlc": dlc,
    "onnxruntime": onnxruntime,
    "onnxruntime_plain": onnxruntime_plain,
    "onnxruntime_last_bit": onnxruntime_last_bit,
    "onnxruntime_in_f32": onnxruntime_in_f32,
    "torch": torch,
    "jax": jax,
}


def peak_bytes() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(kind: str, file: str, results: str, threads: str, *inputs: str) -> None:
    """Open, write the results of every size, and serve the last one."""
    importlib.import_module(kind.partition("_")[0])
    given = [read(path) for path in inputs]
    before, begin = peak_bytes(), time.perf_counter()
    try:
        run = KINDS[kind](Path(file), int(threads))
        facts = {"open_s": time.perf_counter() - begin}
        for path, each in zip(inputs, given, strict=True):
            which = Path(path).suffixes[-2]
            np.savez(f"{results}{which}.npz", *[np.array(result) for result in run(each)])
    except Exception as error:  # noqa: BLE001 - whatever stops it is told in the table
        print(json.dumps({"failed": f"{type(error).__name__}: {error}"}), flush=True)
        return
    facts["memory_bytes"] = peak_bytes() - before
    serve(lambda: run(given[-1]), facts)


def read(path: str) -> dict[str, Array]:
    """The arrays of a file by name, in its order."""
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


if __name__ == "__main__":
    main(*sys.argv[1:])
