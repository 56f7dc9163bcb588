"""Labels of kernels for people: what a kernel computes, in the words of the text, and on which sizes.

`matmul 128×768×3072 + gelu`, `conv 3×3, 64→128, 56×56 + relu`, `softmax 12×128×128`. The operations are
those that the text or the imported graph asks for, which locations carry through all passes; where the IR
came without such locations, those of the formula stand for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlc.dialects import kernel, scalar
from dlc.dialects.kernel.attention import Attention, AttentionGradient, CachedAttention
from dlc.dialects.kernel.ordered import PrefixScan
from dlc.dialects.kernel.product_schedule import Winograd
from dlc.dialects.kernel.products import Conv, Gemm
from dlc.dialects.kernel.winograd import WINDOW
from dlc.dialects.kernel.winograd_gradient import WinogradGradient
from dlc.dialects.kernel.winograd_kernel import WinogradKernel
from dlc.ir.core import Op
from dlc.ir.dims import Size, floor_divide
from dlc.ir.location import GRADIENT, Location, fuse, parts_of
from dlc.ir.types import INDEX

MOST = 3
"""How many of the operations in a formula are told."""

_PRODUCTS = ("conv", "linear", "mat", "gemm", "attention", "einsum")
"""Parts of the names of operations that are products; one without sums pads or packs for it."""

_SILENT = (scalar.Constant, scalar.Cast)
"""What is in most formulas and says nothing about them."""


def label(op: kernel.Kernel) -> str:
    """What a kernel computes; of a product its sizes, then the operations of its epilogue."""
    asked = [part.operation for part in parts_of(op.location) if part.operation][:1]
    main = asked[0] if asked else ""
    backward = main.startswith(GRADIENT)
    names = list(dict.fromkeys(name.removeprefix(GRADIENT) for name in _operations(op)))
    kind = _kind(op)
    if kind:
        names = [name for name in names if name != main.removeprefix(GRADIENT)]
    elif not names:
        names = [main.removeprefix(GRADIENT) or "copy"]
    if not kind and not any(isinstance(inner, kernel.Reduce) for inner in op.walk()):
        names = [_helper(name) for name in names]
    more = ["…"] if len(names) > MOST else []
    text = " + ".join([*([kind] if kind else []), *names[:MOST], *more])
    sizes = "" if kind else _sizes(op)
    return f"{GRADIENT if backward else ''}{text}{f' {sizes}' if sizes else ''}"


def whole_location(op: kernel.Kernel) -> Location:
    """The location of a kernel with those of all operations in its formula, its own first."""
    return fuse([op.location, *[inner.location for inner in _computed(op)]])


def _kind(op: kernel.Kernel) -> str:
    """The kind of a kernel with its sizes; empty for one that is nothing but a formula."""
    match op:
        case Gemm(domain=(*batch, m, n), inner=k):
            return f"matmul {times([*batch, m, k, n])}"
        case Conv():
            return _conv(op)
        case WinogradGradient(inputs=(picture, *_), channels=(channels, outputs)):
            window, (_, *extents, _) = times((WINDOW, WINDOW)), kernel.array_type(picture).shape
            return f"winograd conv kernel {window}, {channels}→{outputs}, {times(extents)}"
        case WinogradKernel(channels=(channels, outputs)):
            return f"winograd transform of kernel, {channels}→{outputs}"
        case Attention():
            return f"attention {_sizes(op)}"
        case AttentionGradient(by_keys=by_keys):
            return f"attention for {'keys and values' if by_keys else 'queries'} {_sizes(op)}"
        case CachedAttention():
            return f"cached attention {_sizes(op)}"
        case PrefixScan(combine=combine):
            return f"prefix scan {combine} {_sizes(op)}"
        case kernel.Generic():
            return ""
        case _:
            return f"{op.name.partition('.')[2].replace('_', ' ')} {_sizes(op)}"


def _conv(op: Conv) -> str:
    *_, height, width, channels = kernel.array_type(op.lhs).shape
    outputs = op.domain[-1]
    window = times(op.window)
    stride = "" if op.strides == (1, 1) else f"/{times(dict.fromkeys(op.strides))}"
    if op.groups > 1 and floor_divide(channels, op.groups) == 1:
        kind, change = "depthwise conv", str(outputs)
    else:
        winograd = isinstance(op.schedule, Winograd)
        kind, change = "winograd conv" if winograd else "conv", f"{channels}→{outputs}"
        kind = f"grouped {kind}" if op.groups > 1 else kind
    return f"{kind} {window}{stride}, {change}, {times((height, width))}"


def _helper(operation: str) -> str:
    """What a formula without sums does for an operation: of a product it is not the sum itself."""
    is_product = any(word in operation for word in _PRODUCTS)
    return f"copy for {operation}" if is_product else operation


def _sizes(op: kernel.Kernel) -> str:
    """The shape of the first result."""
    values = op.targets or op.results
    return times(kernel.array_type(values[0]).shape) if values else ""


def times(sizes: Sequence[Size] | dict[int, None]) -> str:
    """Sizes with a cross between them; those that are sums are in brackets.

    >>> times((12, 128, 64))
    '12×128×64'
    """
    texts = [str(size) for size in sizes]
    return "×".join(f"({text})" if " " in text else text for text in texts)


def _operations(op: kernel.Kernel) -> Iterator[str]:
    """The operations that the text asks for, in the order of the formula."""
    for inner in _computed(op):
        asked = [part.operation for part in parts_of(inner.location) if part.operation]
        if asked:
            yield asked[0]
        elif isinstance(inner, kernel.Reduce):
            yield f"fold {inner.combine}"
        else:
            yield inner.name.partition(".")[2]


def _computed(op: kernel.Kernel) -> Iterator[Op]:
    """The operations on elements, without those that only find the way to one."""
    for inner in op.walk():
        if inner is op or isinstance(inner, _SILENT):
            continue
        is_scalar = inner.name.startswith("scalar.") and inner.result.type is not INDEX
        if is_scalar or isinstance(inner, kernel.Reduce):
            yield inner
