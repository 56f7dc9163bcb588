"""Records what PyTorch computes for what says the same in the language.

    python tests/twins/record.py

writes three files beside it. It was run with PyTorch 2.13 and Transformers 5. `gradients.npz` has for
each case of `cases.py` the loss of the program of `examples/pytorch`, `CASE/loss`, and its gradient by each
weight under our name and in our layout, `CASE/NAME`, computed in f64 and rounded to f32; and with which
running statistics a batch norm begins. `expressions.npz` has what each expression of PyTorch in
docs/from-pytorch.md gives. `transformers.npz` has a small Llama of Transformers: its weights, tokens, and
the logits of what follows them.
"""

# pyright: basic, reportMissingModuleSource=false, reportAttributeAccessIssue=false
# pyright: reportMissingImports=false, reportArgumentType=false

from __future__ import annotations

import importlib.util
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.twins.cases import CASES, EXAMPLES, RECORDED, TRANSFORMERS, Case, weight
from tests.twins.expressions import RECORDED as EXPRESSIONS
from tests.twins.expressions import inputs, rows

OUR_NAMES = {
    "weight_ih_l0": "wx",
    "weight_hh_l0": "wh",
    "bias_ih_l0": "b",
    "bias_hh_l0": "bh",
    "bias": "b",
    "weight": "w",
}
NORMS = (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm2d, nn.RMSNorm)


def twin(case: Case) -> nn.Module:
    """The module of the program, at the size of the case, without dropout."""
    path = EXAMPLES / "pytorch" / f"{case.example}.py"
    spec = importlib.util.spec_from_file_location(case.example, path)
    assert spec is not None and spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    models = [
        each
        for each in vars(program).values()
        if isinstance(each, type) and hasattr(each, case.loss) and issubclass(each, nn.Module)
    ]
    model = models[-1](**case.settings).train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def our_layout(module: nn.Module, name: str) -> tuple[str, Callable[[Tensor], Tensor]]:
    """What we call a parameter of a layer, and how it is laid out with us."""
    if isinstance(module, NORMS):
        return {"weight": "scale", "bias": "shift"}[name], lambda p: p
    if isinstance(module, nn.Conv2d) and name == "weight":
        return "w", lambda p: p.permute(2, 3, 1, 0)
    if isinstance(module, nn.ConvTranspose2d) and name == "weight":
        return "w", lambda p: p.permute(2, 3, 0, 1)
    is_table = isinstance(module, nn.Embedding)
    turns = name.startswith("weight") and not is_table
    return OUR_NAMES.get(name, name), (lambda p: p.T) if turns else lambda p: p


def parameters(
    model: nn.Module,
) -> dict[str, list[tuple[nn.Parameter, Callable[[Tensor], Tensor]]]]:
    """The parameters by our names; those of a stack of modules under one."""
    found = defaultdict(list)
    stacks = {name for name, each in model.named_modules() if isinstance(each, nn.ModuleList)}
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            own, layout = our_layout(module, name)
            parts = path.split(".") if path else []
            kept = [p for k, p in enumerate(parts) if ".".join(parts[:k]) not in stacks or k == 0]
            found[".".join([*kept, own])].append((parameter, layout))
    return found


def gathered(name: str, tensors: list[Tensor], model: nn.Module) -> np.ndarray:
    """One array for a weight; that of a stack has an axis more."""
    head = name.split(".", 1)[0]
    stacked = isinstance(getattr(model, head), nn.ModuleList)
    return (torch.stack(tensors) if stacked else tensors[0]).detach().numpy()


def gradient(p: nn.Parameter) -> Tensor:
    """Zeros where the loss does not depend on the parameter."""
    return torch.zeros_like(p) if p.grad is None else p.grad


def record(case: Case) -> dict[str, np.ndarray]:
    """The loss and the gradients of a case."""
    model = twin(case)
    weights = parameters(model)
    for name, group in weights.items():
        shape = gathered(name, [layout(p) for p, layout in group], model).shape
        drawn = torch.tensor(weight(name, shape)).double().reshape(len(group), -1)
        for row, (p, layout) in zip(drawn, group, strict=True):
            layout(p.data).copy_(row.reshape(layout(p).shape))
    given = {name: torch.tensor(array) for name, array in case.inputs().items()}
    for name in given.keys() - {"image"}:
        given[name] = given[name].to(torch.double if name == "z" else torch.long)
    begun = {name: value.clone() for name, value in model.state_dict().items()}
    found = getattr(model, case.loss)(**given)
    loss = found[0] if isinstance(found, tuple) else found
    loss.backward()
    gradients = {
        f"{case.name}/{name}": gathered(name, [layout(gradient(p)) for p, layout in group], model)
        for name, group in weights.items()
    }
    statistics = {
        f"{case.name}/{name}": value.numpy() for name, value in begun.items() if "running" in name
    }
    return {f"{case.name}/loss": loss.detach().numpy(), **gradients, **statistics}


def expressions() -> dict[str, np.ndarray]:
    """What each expression of the page gives; statements name it `z`."""
    found: dict[str, np.ndarray] = {}
    for theirs, _ in rows():
        names = {name: torch.from_numpy(value) for name, value in inputs().items()}
        scope = {"torch": torch, "F": nn.functional, **names}
        exec(theirs if ";" in theirs else f"z = {theirs}", scope)
        result = scope["z"]
        found[theirs] = result.contiguous().numpy()
    return found


def llama() -> dict[str, np.ndarray]:
    """The state dict of a small Llama, `ids`, and `logits` of what follows them."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=20,
        hidden_size=16,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_hidden_layers=2,
        intermediate_size=24,
        rms_norm_eps=1e-5,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    ids = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]])
    with torch.no_grad():
        logits = model(ids).logits[:, -1]
    weights = {name: value.numpy().astype(np.float32) for name, value in model.state_dict().items()}
    return {**weights, "ids": ids.numpy().astype(np.int32), "logits": logits.numpy()}


def main() -> None:
    """Write the files."""
    np.savez_compressed(TRANSFORMERS, **llama())
    np.savez_compressed(EXPRESSIONS, **expressions())
    torch.set_default_dtype(torch.float64)
    found: dict[str, np.ndarray] = {}
    for case in CASES:
        found |= record(case)
    np.savez_compressed(
        RECORDED, **{name: value.astype(np.float32) for name, value in found.items()}
    )


if __name__ == "__main__":
    main()
