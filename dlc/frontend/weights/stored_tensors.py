"""Single tensors of files: `file("w.safetensors", "key")` and `npz("w.npz", "key")` as values."""

from __future__ import annotations

from dlc.errors import DlcError
from dlc.frontend.builtins.registry import SPECIALS
from dlc.frontend.elaboration.evaluator import Evaluator, Special
from dlc.frontend.elaboration.scope import MISSING, Scope
from dlc.frontend.elaboration.trace import Trace
from dlc.frontend.elaboration.types import declared_type
from dlc.frontend.elaboration.values import Datum, Stored
from dlc.frontend.elaboration.weight import Origin, Weight
from dlc.frontend.weights.initialisers import FILES, origin_of
from dlc.frontend.weights.symbols import weight_value
from dlc.ir.core import Value
from dlc.ir.types import DType, TensorType
from dlc.runtime.weights.files import open_weights_inside
from dlc.text.model import ast

__all__ = ["stored_constant", "stored_value"]


def stored_constant(
    ev: Evaluator, name: str, node: ast.Const | ast.Let, scope: Scope
) -> Stored | None:
    """The tensor of a file that a `const` or `let` names; None for any other value.

    With a declared type the file is not read before its numbers are needed.
    """
    call = node.value
    if not isinstance(call, ast.Call) or not isinstance(call.function, ast.Name):
        return None
    if call.function.name not in FILES or scope.find(call.function.name) is not MISSING:
        return None
    origin = origin_of(ev, call, scope)
    type = declared_type(ev, node.type, scope) if isinstance(node.type, ast.TensorType) else None
    return Stored(name, origin.file or "", origin.key, type, scope.home.source.place(call.span))


def stored_value(at: Trace, stored: Stored) -> Value:
    """The tensor in the function at hand."""
    known = at.stored.get(stored.name)
    if known is None:
        type = stored.type or _type_in_file(at, stored)
        origin = Origin(file=stored.file, key=stored.key or stored.name)
        known = Weight(stored.name, type, origin, False, 0, stored.place, constant=True)
        at.stored[stored.name] = known
    return weight_value(at, known, ())


def _type_in_file(at: Trace, stored: Stored) -> TensorType:
    """The file's record of the tensor."""
    help = "say its type: const x: f32[10] = file(...)"
    if at.folder is None:
        message = f"there is no folder to find {stored.file} in"
        raise at.fail("D0501", message, help=help, place=stored.place)
    try:
        found = open_weights_inside(at.folder, stored.file)[stored.key or stored.name]
    except DlcError as error:
        (first, *_) = error.diagnostics
        raise at.fail(
            first.code, first.message, help=first.help or help, place=stored.place
        ) from None
    return TensorType(DType.named[found.dtype], tuple(found.shape))


def _read(ev: Evaluator, node: ast.Call, scope: Scope) -> Datum:
    """`file(...)` in the midst of an expression."""
    origin = origin_of(ev, node, scope)
    file = origin.file or ""
    name = f"{file}:{origin.key or ''}"
    stored = Stored(name, file, origin.key, None, scope.home.source.place(node.span))
    return stored_value(ev.at, stored)


for _name, _what in (("file", "a safetensors, npz or npy file"), ("npz", "an npz file")):
    SPECIALS[_name] = Special(
        _name,
        _read,
        f"{_name}(path, key)",
        f"A tensor of {_what}, which lies beside the text or below it. After `param` it is where the "
        "weight starts.",
        "",
        "",
        "files",
    )
