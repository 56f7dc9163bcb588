"""The words that a sort on a CPU orders: keys as unsigned integers in whose order the elements are.

A key of at most 32 bits and the place of its element, below it, are one word of 64 bits. All words of a
row differ then, so any sort of them is stable. Longer keys are words of their own, and places stand beside
them.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects import scalar
from dlc.dialects.expr import Expr, Index, Pointer, select, select_pointer
from dlc.ir.types import BOOL, INDEX, U8, U16, U32, U64, DType, wide

__all__ = ["PLACE_BITS", "Words", "key_dtype", "ordered_bits"]

PLACE_BITS = 32
"""The low bits of a word that hold a place, if keys have at most as many."""
_UNSIGNED = {8: U8, 16: U16, 32: U32, 64: U64}


def key_dtype(dtype: DType) -> DType:
    """The dtype of keys: unsigned, as wide as elements in the dtype that computes with them."""
    return U8 if dtype is BOOL else _UNSIGNED[wide(dtype).bits if dtype.is_float else dtype.bits]


def ordered_bits(element: Expr, *, descending: bool) -> Expr:
    """An unsigned integer with the order of the elements; equal elements, also 0 and -0, have equal ones.

    NaN has the largest, before the order is reversed for `descending`.
    """
    dtype = element.dtype
    key = key_dtype(dtype)
    if dtype is BOOL:
        bits = element.cast(key)
    elif dtype.is_float:
        bits = _float_bits(element.cast(wide(dtype)), key)
    else:
        bits = element.apply(scalar.Bitcast(element.value, key))
        if dtype.kind == "int":
            bits = bits ^ _top(key)
    return ~bits if descending else bits


def _top(key: DType) -> int:
    return 1 << key.bits - 1


def _float_bits(element: Expr, key: DType) -> Expr:
    """The bits of a float: those of negative numbers are inverted, others get the sign's."""
    is_nan = element.differs(element)
    number = select(element.equals(0), element.constant(0.0), element)
    bits = number.apply(scalar.Bitcast(number.value, key))
    sign = bits >> key.bits - 1
    mask = (bits.constant(0) - sign) | _top(key)
    return select(is_nan, bits.constant(2 * _top(key) - 1), bits ^ mask)


@dataclass(frozen=True, slots=True)
class Words:
    """An array of words in the scratch; `places` is None where words hold them."""

    keys: Pointer
    places: Pointer | None

    def put(self, at: Index, key: Expr, place: Expr) -> None:
        """Write the word of an element."""
        if self.places is None:
            self.keys[at] = (key.cast(U64) << PLACE_BITS) | place.cast(U64)
        else:
            self.keys[at], self.places[at] = key, place

    def copy(self, source: Words, start: Index, at: Index) -> None:
        """Write the word that `source` has at `start`."""
        self.keys[at] = source.keys[start]
        if self.places is not None and source.places is not None:
            self.places[at] = source.places[start]

    def place(self, at: Index) -> Expr:
        """The place of an element in its row."""
        if self.places is None:
            return (self.keys[at] & (1 << PLACE_BITS) - 1).cast(INDEX)
        return self.places[at]

    def pointers(self) -> list[Expr]:
        """The arrays, as a loop carries them."""
        arrays = [self.keys] if self.places is None else [self.keys, self.places]
        return [Expr(array.emit, array.value) for array in arrays]

    def carried(self, pointers: list[Expr]) -> Words:
        """The words in arrays that a loop carries."""
        keys, *places = [Pointer(each.emit, each.value, U64) for each in pointers]
        return Words(keys, places[0].of(INDEX) if places else None)


def chosen(condition: Expr, yes: Words, no: Words) -> Words:
    """One of two arrays of words."""
    keys = select_pointer(condition, yes.keys, no.keys)
    if yes.places is None or no.places is None:
        return Words(keys, None)
    return Words(keys, select_pointer(condition, yes.places, no.places))
