"""Exports the networks of the catalogue, each in a process of its own.

    python exporting.py FOLDER PATTERN SECONDS LIMIT

Runs in the peers' environment. What all share is imported once; a child is forked for each network and
exporter, ended after LIMIT seconds, and tells in one line of JSON what became of it. No network is begun
after SECONDS. Those whose files are there already are left alone.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import re
import signal
import sys
import time
import warnings
import zlib
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.zoo import catalogue, networks
from benchmarks.zoo.catalogue import CATALOGUE, MIDDLE, Array, Network

torch = catalogue.torch
OPSET = 17
"""Of the exporter that traces; the other writes what is its own default."""


def traced(net: Network, path: Path) -> None:
    """By tracing the module (TorchScript)."""
    names = list(net.inputs)
    torch.onnx.export(
        net.module,
        arguments(net),
        str(path),
        dynamo=False,
        opset_version=OPSET,
        input_names=names,
        dynamic_axes={name: each.axes for name, each in net.inputs.items() if each.axes},
    )


def captured(net: Network, path: Path) -> None:
    """By `torch.export`."""
    torch.onnx.export(
        net.module,
        arguments(net),
        str(path),
        dynamo=True,
        external_data=False,
        verbose=False,
        input_names=list(net.inputs),
        dynamic_shapes=dynamic_shapes(net),
    )


def program(net: Network, path: Path) -> None:
    """A `.pt2`: the program of `torch.export` as it is."""
    with torch.no_grad():
        found = torch.export.export(
            net.module, arguments(net), dynamic_shapes=dynamic_shapes(net), strict=False
        )
    torch.export.save(found, str(path))


EXPORTERS: dict[str, tuple[str, Callable[[Network, Path], None]]] = {
    "script": (".onnx", traced),
    "dynamo": (".onnx", captured),
    "pt2": (".pt2", program),
}


def arguments(net: Network) -> tuple[Any, ...]:
    """The tensors that are exported with."""
    return tuple([torch.from_numpy(each) for each in net.given(MIDDLE).values()])


def dynamic_shapes(net: Network) -> tuple[object, ...]:
    """Which sizes have names, in the form that `torch.export` wants for the module's signature."""
    dynamic = torch.export.Dim.DYNAMIC
    shapes = tuple([dict.fromkeys(each.axes, dynamic) for each in net.inputs.values()])
    return (shapes,) if isinstance(net.module, catalogue.Flat) else shapes


def main(folder: str, pattern: str, seconds: str, limit: str, *exporters: str) -> None:
    """Export what the pattern names and print a line for each."""
    for module in pkgutil.iter_modules(networks.__path__):
        importlib.import_module(f"{networks.__name__}.{module.name}")
    torch.set_num_threads(1)
    end = time.monotonic() + float(seconds)
    for exporter in exporters:
        for name in CATALOGUE:
            full = f"{name}.{exporter}"
            if not fnmatch(full, pattern) or time.monotonic() > end:
                continue
            print(json.dumps(one(name, exporter, Path(folder), float(limit))), flush=True)


def one(name: str, exporter: str, folder: Path, limit: float) -> dict[str, object]:
    """Export in a child process: the name, and the reason if there is no file."""
    full = f"{name}.{exporter}"
    suffix, export = EXPORTERS[exporter]
    path = folder / (full + suffix)
    told: dict[str, object] = {"name": full}
    if path.exists():
        return told
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        reason = attempt(CATALOGUE[name], export, path, name)
        os.write(writing, reason.encode()[:4096])
        os._exit(0)
    os.close(writing)
    if not ended(child, limit):
        os.close(reading)
        return told | {"skipped": f"the exporter took more than {limit:g} s"}
    with os.fdopen(reading, "rb") as pipe:
        reason = pipe.read().decode(errors="replace")
    if not path.exists() and not reason:
        reason = "the exporter ended the process"
    return told | ({"skipped": reason} if reason else {})


def ended(child: int, limit: float) -> bool:
    """Wait for a child process, and kill it after `limit` seconds; whether it ended by itself."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def attempt(
    make: Callable[[], Network], export: Callable[[Network, Path], None], path: Path, name: str
) -> str:
    """Export and keep the file if its own framework runs it at three sizes; else the reason."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    warnings.simplefilter("ignore")
    parts = path.with_name(f"{path.stem}.part{path.suffix}")
    try:
        torch.manual_seed(zlib.crc32(name.encode()))
        net = make()
        net.module.eval()
        export(net, parts)
        keep(parts, path, [net.given(which) for which in range(3)])
    except BaseException as error:  # noqa: BLE001 - an exporter raises whatever it likes
        return first_words(error)
    finally:
        parts.unlink(missing_ok=True)
    return ""


def keep(made: Path, path: Path, given: list[dict[str, Array]]) -> None:
    """Write the inputs beside the file and give it its name, if it runs with them."""
    taken = list(given[0])
    if path.suffix == ".onnx":
        session = importlib.import_module("benchmarks.zoo.contender").onnxruntime_session(made, 1)
        taken = [each.name for each in session.get_inputs()]
        for each in given:
            for result in session.run(None, {name: each[name] for name in taken}):
                if result.dtype.kind == "f" and not np.isfinite(result).all():
                    raise ValueError("the results are not finite")
    for k, each in enumerate(given):
        arrays: dict[str, Any] = {name: each[name] for name in taken}
        np.savez(path.with_name(f"{path.stem}.{k}.npz"), **arrays)
    made.rename(path)


def first_words(error: BaseException) -> str:
    """The kind of an error and the line of its message that says the most."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    telling = [line for line in lines if re.search(r"[Ee]rror:", line)]
    return f"{type(error).__name__}: {(telling or lines)[0]}"[:300]


if __name__ == "__main__":
    main(*sys.argv[1:])
