"""One node of any domain with its operands, compared with onnxruntime: imported, as text, and compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import ModelProto, helper

from tests.importers.onnx.models import (
    Array,
    compiled,
    evaluated,
    expected,
    imported,
    meant,
    model_of,
    written,
)

VERSIONS = {"com.microsoft": 1, "ai.onnx.ml": 3}


@dataclass(frozen=True)
class NodeCase:
    """A node whose first `inputs` operands are inputs of the model, the others constants.

    `steps` is how far results of integers may be from those of onnxruntime, `apart` those of floats,
    relative and absolute; `version` is that of the domain.
    """

    domain: str
    kind: str
    operands: tuple[Array | None, ...]
    inputs: int
    attributes: Mapping[str, object] = field(default_factory=dict[str, object])
    outputs: tuple[str, ...] = ("y",)
    opset: int = 18
    steps: int = 0
    apart: float = 1e-5
    version: int | None = None

    @property
    def model(self) -> ModelProto:
        """The model of the node alone."""
        names = ["" if one is None else f"x{k}" for k, one in enumerate(self.operands)]
        node = helper.make_node(
            self.kind,
            names,
            self.outputs,
            domain=self.domain,
            **self.attributes,  # pyright: ignore[reportArgumentType]
        )
        tensors = {f"x{k}": one for k, one in enumerate(self.operands) if one is not None}
        constants = {name: one for name, one in tensors.items() if name not in self.given}
        version = self.version or VERSIONS.get(self.domain)
        domains = {} if version is None else {self.domain: version}
        made = list(filter(None, self.outputs))
        return model_of([node], self.given, made, constants, opset=self.opset, domains=domains)

    @property
    def given(self) -> dict[str, Array]:
        """The inputs by name."""
        first = self.operands[: self.inputs]
        return {f"x{k}": one for k, one in enumerate(first) if one is not None}

    def __str__(self) -> str:
        return self.kind


def check(case: NodeCase) -> None:
    """That the import of a node means what onnxruntime computes, and its text the same."""
    model, given = case.model, case.given
    made = imported(model)
    meaning = evaluated(made, given)
    check_close(case, meaning, expected(model, given))
    for got, wanted in zip(meant(written(made), given), meaning, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)


def check_compiled(case: NodeCase) -> None:
    """That its machine code computes what onnxruntime does."""
    check_close(case, compiled(case.model, case.given), expected(case.model, case.given))


def check_close(case: NodeCase, found: Sequence[Array], wanted: Sequence[Array]) -> None:
    """That results are as near as the case asks for."""
    for got, right in zip(found, wanted, strict=True):
        assert (got.dtype, got.shape) == (right.dtype, right.shape)
        if got.dtype.kind in "iub":
            far = np.abs(got.astype(np.int64) - right.astype(np.int64)).max(initial=0)
            assert far <= case.steps
        else:
            np.testing.assert_allclose(got, right, rtol=case.apart, atol=case.apart)
