"""Writes `examples/imported`: texts of networks of PyTorch, and what these give, with seeded weights.

    python -m benchmarks imported_examples [NAME ...]

needs PyTorch, torchvision and transformers beside dlc: the environment of the zoo has them. The texts are
those that `dlc import` writes of the exported networks, with names for the sizes of batches and sentences.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.imported_examples.seeded_weights import Array, seeded
from benchmarks.zoo.catalogue import Model, Module, Tensor, torch
from benchmarks.zoo.vision import opened
from dlc.export.model_text import Written, write_model
from dlc.importers.torch.exporting import read_program
from dlc.importers.torch.importing import import_graph

FOLDER = Path(__file__).parents[2] / "examples" / "imported"


@dataclass(frozen=True, slots=True)
class Example:
    """A network, its inputs, the names of sizes by input and axis, and the names of its results."""

    module: Model
    inputs: Mapping[str, Array]
    sizes: Mapping[str, Mapping[int, str]]
    results: tuple[str, ...]


class _First(Module):
    """A model of transformers without the class of its results: it gives the first."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.model(input_ids, attention_mask=attention_mask, return_dict=False)[0]


def resnet50() -> Example:
    """torchvision's ResNet-50 with an eighth of its channels."""
    resnet: Any = opened().models.resnet

    class Narrow(resnet.ResNet):
        def _make_layer(self, block: Model, planes: int, *given: object, **named: object) -> Model:
            return resnet.ResNet._make_layer(self, block, planes // 8, *given, **named)

    made = Narrow(resnet.Bottleneck, [3, 4, 6, 3])
    made.fc = torch.nn.Linear(256, 10)
    return Example(made, _picture("x", 64), {"x": {0: "batch"}}, ("scores",))


def bert() -> Example:
    """transformers' BERT with a classifier, three layers of width 32."""
    opened()
    hf: Any = importlib.import_module("transformers")
    config = hf.BertConfig(**_NARROW, intermediate_size=64, num_labels=3)
    return _text(hf.BertForSequenceClassification(config))


def llama() -> Example:
    """transformers' Llama, three layers of width 32, with half as many heads of keys as of queries."""
    opened()
    hf: Any = importlib.import_module("transformers")
    config = hf.LlamaConfig(**_NARROW, intermediate_size=64, num_key_value_heads=2, use_cache=False)
    return _text(hf.LlamaForCausalLM(config))


def yolo() -> Example:
    """The detector of the zoo: a YOLO without anchors."""
    detection = importlib.import_module("benchmarks.zoo.networks.detection")
    made = detection.Yolo()
    return Example(made, _picture("x", 64), {"x": {0: "batch"}}, ("boxes", "scores"))


_NARROW: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}


def _picture(name: str, size: int) -> dict[str, Array]:
    stream = np.random.default_rng(0)
    return {name: stream.standard_normal((2, 3, size, size)).astype(np.float32)}


def _text(model: Model) -> Example:
    stream = np.random.default_rng(0)
    mask = np.ones((2, 9), np.int64)
    mask[1, 6:] = 0
    inputs = {"input_ids": stream.integers(0, 100, (2, 9)), "attention_mask": mask}
    sizes = {key: {0: "batch", 1: "tokens"} for key in inputs}
    return Example(_First(model), inputs, sizes, ("scores",))


EXAMPLES: Mapping[str, Callable[[], Example]] = {
    "resnet50": resnet50,
    "bert": bert,
    "llama": llama,
    "yolo": yolo,
}


def write(name: str, folder: Path) -> None:
    """Write the text of one, and beside it what it gives."""
    example = EXAMPLES[name]()
    module = example.module.eval()
    held = _seed(module)
    inputs = {key: torch.from_numpy(array) for key, array in example.inputs.items()}
    program = torch.export.export(
        module, (), inputs, dynamic_shapes=_dynamic(example), strict=False
    )
    graph = read_program(program, f"{name}.pt2", _symbols(program, example)).graph
    named = [
        replace(result, label=label)
        for result, label in zip(graph.results, example.results, strict=True)
    ]
    model = import_graph(replace(graph, results=tuple(named)))
    docs = f"{name}, imported from {name}.pt2."
    written = write_model(model, name, f"{name}.safetensors", docs)
    (folder / f"{name}.dlm").write_text(written.text, encoding="utf-8")
    with torch.no_grad():
        given: Any = module(**inputs)
    results: tuple[Any, ...] = given if len(example.results) > 1 else (given,)
    _record(name, folder, example, [result.numpy() for result in results], written, held)


def _seed(module: Model) -> dict[str, Array]:
    """Give the module seeded weights; gives them by path."""
    found: dict[str, Array] = {}
    with torch.no_grad():
        for path, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if path not in dict(module.named_parameters()) and "running" not in path:
                continue
            found[path] = seeded(path, tuple(tensor.shape))
            tensor.copy_(torch.from_numpy(found[path]))
    return found


def _dynamic(example: Example) -> dict[str, dict[int, Any]]:
    most = {"batch": 1024, "tokens": 64}
    dims = {name: torch.export.Dim(name, min=1, max=most[name]) for name in most}
    return {
        key: {axis: dims[name] for axis, name in example.sizes[key].items()}
        for key in example.inputs
    }


def _symbols(program: Model, example: Example) -> dict[str, str]:
    """The names of sizes by those that PyTorch gives them."""
    shapes = {
        node.name: node.meta["val"].shape
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in example.inputs
    }
    return {
        str(shapes[key][axis]): name
        for key, names in example.sizes.items()
        for axis, name in names.items()
    }


def _record(
    name: str,
    folder: Path,
    example: Example,
    results: list[Array],
    written: Written,
    held: Mapping[str, Array],
) -> None:
    """Write inputs, results and what is not a seeded weight, and where each weight of the text is from."""
    kept: dict[str, Array] = {f"in.{key}": array for key, array in example.inputs.items()}
    kept |= {f"out.{key}": array for key, array in zip(example.results, results, strict=True)}
    table: dict[str, Any] = {}
    for path, weight in written.weights.items():
        parts = weight.parts or (weight.origin,)
        if not {*parts} <= held.keys():
            kept[f"state.{path}"] = np.asarray(weight.array)
            continue
        first = held[parts[0]]
        own = weight.array[0] if weight.parts else weight.array
        transposed = not (own.shape == first.shape and np.array_equal(own, first))
        assert np.array_equal(own.T if transposed else own, first), path
        table[path] = {
            "from": list(parts),
            "shape": list(first.shape),
            "stacked": bool(weight.parts),
            "transposed": transposed,
        }
    beside = folder / "recorded"
    np.savez_compressed(beside / f"{name}.npz", allow_pickle=False, **kept)
    rows = [f"  {json.dumps(path)}: {json.dumps(row)}" for path, row in table.items()]
    (beside / f"{name}.json").write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


def main() -> None:
    """Write all, or those that are named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks imported_examples")
    parser.add_argument("names", nargs="*", choices=[*EXAMPLES, []])
    for name in parser.parse_args().names or EXAMPLES:
        write(name, FOLDER)
        print(f"{FOLDER / name}.dlm")


if __name__ == "__main__":
    main()
