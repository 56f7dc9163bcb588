"""MLIR reads texts and prints them; run by the Python of `.venv-oracles/mlir`.

In: a JSON list of texts. Out: for each either {"text": what MLIR prints} or {"error": why it refuses}.
Upstream's dialects are registered, so their operations are checked; other operations are let through.
"""

# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

import json
import sys

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext


def read(text: str) -> dict[str, str]:
    try:
        module = ir.Module.parse(text)
        module.operation.verify()
    except ir.MLIRError as error:
        return {"error": str(error)}
    return {"text": module.operation.get_asm(print_generic_op_form=True)}


def main() -> None:
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    with ir.Context() as context:
        context.append_dialect_registry(registry)
        context.load_all_available_dialects()
        context.allow_unregistered_dialects = True
        json.dump([read(text) for text in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
