"""Row bands: depthwise convolutions of large pictures and the products around them, a few rows at a time.

A product widens the channels of each pixel, a depthwise convolution follows, and another product narrows
them again (MobileNet v2). The wide pictures between them are the largest arrays of such a network, and
each is written to memory and read back. Here all three kernels compute one band of rows after the other,
and what is between them stays in the cache. The first product computes the rows where windows of two
bands overlap twice. Each element is the same sum as before, so no bit changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dlc.dialects import array, func, kernel
from dlc.dialects.array.shape import reshape, without_reshapes
from dlc.dialects.kernel.generic import array_type
from dlc.dialects.kernel.pieces import Join, Subview
from dlc.dialects.kernel.product_schedule import Packed
from dlc.dialects.kernel.products import Conv, Gemm
from dlc.ir.clone import clone_block
from dlc.ir.core import Block, Builder, Op, Value
from dlc.ir.dims import ceil_divide, product
from dlc.ir.passes import Context, define_pass
from dlc.ir.rewrite import EQUAL, Rewriter
from dlc.ir.value_map import Gone
from dlc.planning.liveness import updates_of
from dlc.planning.overwriting import reads_only_own_element
from dlc.target import cpu_of
from dlc.target.cpu import CpuTarget


@define_pass("row_bands")
def row_bands(module: Op, context: Context) -> None:
    """Compute chains with depthwise convolutions of large pictures a band of rows at a time."""
    cpu = cpu_of(context.options)
    for function in [op for op in module.walk() if isinstance(op, func.Func)]:
        if updates_of(function):
            continue
        for op in [op for op in function.body if isinstance(op, Conv)]:
            chain = _chain(op)
            if chain is None:
                continue
            if chain.between < cpu.products.band_worth:
                reason = "the arrays between it and its neighbours are small"
                context.log.refused(reason, op, bytes=chain.between)
                continue
            bands = chain.bands(cpu)
            context.log.did("compute bands of rows", op, bands=len(bands), bytes=chain.between)
            lhs = chain.last.lhs
            context.rewriter.replace(chain.last, _Bands(chain, bands).run(), relation=EQUAL)
            _erase_unread(lhs, context.rewriter)


def _erase_unread(value: Value, rewriter: Rewriter) -> None:
    """Erase what computes a value that nothing reads, and so on through left operands."""
    while value.op is not None and not value.uses:
        op, value = value.op, value.op.operands[0]
        rewriter.erase(op, Gone("it is computed a band of rows at a time"))


@dataclass(frozen=True, slots=True)
class _Chain:
    """A depthwise convolution of one picture, the product that reads it and, perhaps, the one it reads."""

    first: Gemm | None
    conv: Conv
    last: Gemm

    @property
    def between(self) -> int:
        """Bytes of what is between the kernels."""
        wide = [self.conv.lhs, self.conv.results[0]] if self.first else [self.conv.results[0]]
        return sum(_bytes(value) for value in wide)

    def bands(self, cpu: CpuTarget) -> list[range]:
        """The rows of the convolution's result in each band."""
        height = _static(self.conv.extents[0])
        count = ceil_divide(self.between, cpu.products.band_bytes)
        each = max(-(-height // _static(count)), LEAST_ROWS)
        return [range(start, min(start + each, height)) for start in range(0, height, each)]


LEAST_ROWS = 4
"""Of a band: the rows that its windows share with the next are computed twice."""


def _chain(conv: Conv) -> _Chain | None:
    """The chain around a convolution, if it is depthwise and all sizes are known."""
    sizes = (
        *array_type(conv.lhs).shape,
        *conv.domain,
        *(size for pair in conv.padding for size in pair),
    )
    static = all(isinstance(size, int) for size in sizes)
    if not (static and conv.is_depthwise and array_type(conv.lhs).shape[0] == 1):
        return None
    last = _only_reader(conv.results[0])
    if (
        not isinstance(last, Gemm)
        or not _is_rowwise(last)
        or without_reshapes(last.lhs).op is not conv
    ):
        return None
    if any(isinstance(use, Join) for use in _readers(last.results[0])) or not _is_rowwise(conv):
        return None
    source = without_reshapes(conv.lhs)
    first = source.op
    if isinstance(first, Gemm) and _is_rowwise(first) and _only_reader(source) is conv:
        return _Chain(first, conv, last)
    return _Chain(None, conv, last)


def _is_rowwise(op: Gemm | Conv) -> bool:
    """Whether rows of the result can be computed apart: all extras are of the same row, or of none."""
    if op.outs or len(op.results) > 1 or len(op.domain) != 2:
        return False
    if isinstance(op, Gemm) and not isinstance(op.schedule, Packed):
        return False
    row = op.epilogue.arguments[0]
    plain = [
        not any(row in use.operands for use in argument.uses)
        for argument in _extras(op.epilogue, op)
    ]
    own = [reads_only_own_element(op, argument) for argument in _extras(op.epilogue, op)]
    row_uses = [use for use in row.uses if not isinstance(use, kernel.Load)]
    return not row_uses and all(a or b for a, b in zip(plain, own, strict=True))


def _extras(epilogue: Block, op: Gemm | Conv) -> Sequence[Value]:
    """The arguments of the epilogue of a product, or of a copy of it, for the extra arrays."""
    return epilogue.arguments[len(op.domain) + 1 :]


def _only_reader(value: Value) -> Op | None:
    """The only operation that reads a value, through reshapes that nothing else reads."""
    while len(value.uses) == 1:
        (reader,) = value.uses
        if not isinstance(reader, array.Reshape):
            return reader
        value = reader.result
    return None


def _readers(value: Value) -> Iterator[Op]:
    """The operations that read a value, through reshapes."""
    for reader in value.uses:
        if isinstance(reader, array.Reshape):
            yield from _readers(reader.result)
        else:
            yield reader


def _bytes(value: Value) -> int:
    type = array_type(value)
    return _static(product(type.shape)) * type.dtype.bytes


def _static(size: object) -> int:
    assert isinstance(size, int)
    return size


class _Bands:
    """Writes a chain band by band before its last product."""

    def __init__(self, chain: _Chain, bands: Sequence[range]) -> None:
        self.chain = chain
        self.bands = bands
        self.emit = Builder.before_op(chain.last)

    def run(self) -> Value:
        """The result of the chain's last product."""
        pieces = [self._band(rows) for rows in self.bands]
        flat = [
            reshape(self.emit, piece, (1, product(array_type(piece).shape))) for piece in pieces
        ]
        return reshape(self.emit, self.emit(Join(flat)), self.chain.last.domain)

    def _band(self, rows: range) -> Value:
        """The band of the last product for some rows of the convolution's result."""
        conv, last = self.chain.conv, self.chain.last
        _, height, _, _ = map(_static, array_type(conv.lhs).shape)
        low, stride = _static(conv.padding[0][0]), conv.strides[0]
        begin = rows.start * stride - low
        end = (rows.stop - 1) * stride - low + (conv.window[0] - 1) * conv.dilations[0] + 1
        vertical = max(-begin, 0), max(end - height, 0)
        picture = self._source(range(max(begin, 0), min(end, height)))
        width = _static(conv.extents[1])
        pixels = range(rows.start * width, rows.stop * width)
        made = self._convolution(picture, pixels, vertical)
        return self._product(last, made, pixels)

    def _source(self, rows: range) -> Value:
        """Rows of the convolution's source."""
        conv, first = self.chain.conv, self.chain.first
        _, _, width, channels = map(_static, array_type(conv.lhs).shape)
        shape = (1, len(rows), width, channels)
        if first is None:
            return self.emit(Subview(conv.lhs, (0, rows.start, 0, 0), shape))
        pixels = range(rows.start * width, rows.stop * width)
        matrix = self._rows_of(first.lhs, pixels)
        return reshape(self.emit, self._product(first, matrix, pixels), shape)

    def _rows_of(self, matrix: Value, rows: range) -> Value:
        _, columns = array_type(matrix).shape
        return self.emit(Subview(matrix, (rows.start, 0), (len(rows), columns)))

    def _product(self, op: Gemm, lhs: Value, rows: range) -> Value:
        """Some rows of a product, of these rows of its left operand."""
        extras, epilogue = self._extras_of(op, rows)
        domain = len(rows), op.columns
        flags = {"rhs_transposed": op.rhs_transposed, "rhs_shared": op.rhs_shared}
        part = Gemm(
            lhs, op.rhs, extras, [], epilogue, domain, op.inner, schedule=op.schedule, **flags
        )
        return self.emit(part)

    def _convolution(self, picture: Value, rows: range, vertical: tuple[int, int]) -> Value:
        """`rows` of the convolution, from the rows `picture` of its source with this padding."""
        op = self.chain.conv
        extras, epilogue = self._extras_of(op, rows)
        part = Conv(
            lhs=picture,
            rhs=op.rhs,
            blank=op.blank,
            extras=extras,
            outs=[],
            epilogue=epilogue,
            domain=(len(rows), op.columns),
            window=op.window,
            strides=op.strides,
            padding=(vertical, op.padding[1]),
            dilations=op.dilations,
            groups=op.groups,
        )
        return self.emit(part)

    def _extras_of(self, op: Gemm | Conv, rows: range) -> tuple[list[Value], Block]:
        """The extra arrays for some rows, and the epilogue that reads them."""
        epilogue, extras = clone_block(op.epilogue), list(op.extras)
        row = op.epilogue.arguments[0]
        for number, (argument, copy) in enumerate(
            zip(_extras(op.epilogue, op), _extras(epilogue, op), strict=True)
        ):
            if any(row in use.operands for use in argument.uses):
                extras[number] = self._rows_of(extras[number], rows)
                copy.type = extras[number].type
        return extras, epilogue
