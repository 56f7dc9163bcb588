"""Sums of products in Einstein's notation, from transposes, reductions and `dot_general`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dlc.dialects.array.arithmetic import Multiply
from dlc.dialects.array.elementwise import tensor_type
from dlc.dialects.array.index import Gather
from dlc.dialects.array.linear import DotGeneral
from dlc.dialects.array.reduce import Broadcast, ReduceSum
from dlc.dialects.array.shape import Iota, reshape, transpose
from dlc.errors import ModelError
from dlc.ir.core import Builder, Value
from dlc.ir.dims import Size
from dlc.ir.types import I64

__all__ = ["einsum"]

Labels = tuple[str, ...]
"""One label for each axis: a letter, or `-k` for the k-th axis from the end of the `...`."""


@dataclass(frozen=True, slots=True)
class Term:
    """A tensor whose axes are labelled, each label once."""

    value: Value
    labels: Labels

    @property
    def sizes(self) -> dict[str, Size]:
        return dict(zip(self.labels, tensor_type(self.value).shape, strict=True))


def einsum(emit: Builder, equation: str, operands: Sequence[Value]) -> Value:
    """The product of the operands, summed over all labels that are not in the output.

    As in NumPy, for example `"bij,bjk->bik"`: a repeated label in one operand selects the diagonal, `...`
    (or `..`) stands for any leading axes, and without `->` the output has the labels that occur once, in
    alphabetical order. Products are taken from left to right. Raises D0311.
    """
    inputs, output = _read(emit, equation, operands)
    pairs = zip(operands, inputs, strict=True)
    terms = [_diagonal(emit, value, labels) for value, labels in pairs]
    terms = _unstretched(emit, equation, terms)
    total = terms[0]
    for position, term in enumerate(terms[1:], 2):
        later = {*output, *[label for other in terms[position:] for label in other.labels]}
        total = _product(emit, total, term, later)
    total = _summed(emit, total, set(output))
    return transpose(emit, total.value, tuple([total.labels.index(label) for label in output]))


def _read(emit: Builder, equation: str, operands: Sequence[Value]) -> tuple[list[Labels], Labels]:
    """The labels of each operand and of the output."""
    text = equation.replace(" ", "").replace("...", "..")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if not all(re.fullmatch(r"[A-Za-z]*(\.\.[A-Za-z]*)?", part) for part in [*parts, right]):
        raise _fail(emit, equation, "it is not of the form 'ij,jk->ik'")
    if len(parts) != len(operands):
        raise _fail(emit, equation, f"it is about {len(parts)} tensors, found {len(operands)}")
    inputs: list[Labels] = []
    for part, value in zip(parts, operands, strict=True):
        type = tensor_type(value)
        extra = type.rank - len(part.replace("..", ""))
        if extra < 0 or (extra > 0 and ".." not in part):
            raise _fail(emit, equation, f"{part!r} does not name the axes of {type.text}")
        inputs.append(_labels(part, extra))
    widest = max([sum(label[0] == "-" for label in labels) for labels in inputs])
    if arrow:
        output = _labels(right, widest)
    else:
        every = [label for labels in inputs for label in labels]
        once = sorted(label for label in every if label[0] != "-" and every.count(label) == 1)
        output = (*_labels("..", widest), *once)
    labels_of_inputs = {label for labels in inputs for label in labels}
    if len(set(output)) != len(output) or not labels_of_inputs.issuperset(output):
        raise _fail(
            emit, equation, f"the output {right!r} must name axes of the operands, each once"
        )
    return inputs, output


def _labels(part: str, extra: int) -> Labels:
    before, dots, after = part.partition("..")
    middle = [f"-{extra - k}" for k in range(extra)] if dots else []
    return (*before, *middle, *after)


def _fail(emit: Builder, equation: str, why: str) -> ModelError:
    return ModelError(f"einsum {equation!r}: {why}", code="D0311", place=emit.location.place)


def _diagonal(emit: Builder, value: Value, labels: Labels) -> Term:
    """The term with each label once: of repeated labels, the elements with equal indices."""
    for label in dict.fromkeys(labels):
        axes = tuple([axis for axis, other in enumerate(labels) if other == label])
        if len(axes) == 1:
            continue
        type = tensor_type(value)
        sizes = {type.shape[axis] for axis in axes}
        if len(sizes) > 1:
            raise ModelError(
                f"einsum takes the diagonal {label!r} of {type.text}, whose sizes differ",
                code="D0311",
                place=emit.location.place,
            )
        index = emit(Iota((type.shape[axes[0]],), 0, I64))
        value = emit(Gather(value, (index,) * len(axes), axes))
        labels = (label, *[other for other in labels if other != label])
    return Term(value, labels)


def _unstretched(emit: Builder, equation: str, terms: list[Term]) -> list[Term]:
    """Check that labels agree on their sizes; broadcast axes of `...` of size 1 are left out."""
    sizes: dict[str, Size] = {}
    for term in terms:
        for label, size in term.sizes.items():
            earlier = sizes.setdefault(label, size)
            if earlier == 1 and label[0] == "-":
                sizes[label] = size
            elif earlier != size and not (size == 1 and label[0] == "-"):
                raise _fail(
                    emit, equation, f"{label!r} is {earlier} in one tensor, {size} in another"
                )
    result: list[Term] = []
    for term in terms:
        kept = tuple([label for label, size in term.sizes.items() if size == sizes[label]])
        shape = tuple([term.sizes[label] for label in kept])
        result.append(Term(reshape(emit, term.value, shape), kept))
    return result


def _summed(emit: Builder, term: Term, wanted: set[str]) -> Term:
    """The term summed over all labels but the wanted ones."""
    gone = tuple([axis for axis, label in enumerate(term.labels) if label not in wanted])
    if not gone:
        return term
    kept = tuple([label for label in term.labels if label in wanted])
    return Term(emit(ReduceSum(term.value, gone)), kept)


def _product(emit: Builder, lhs: Term, rhs: Term, later: set[str]) -> Term:
    """The product of two terms, summed over the labels that are not in `later`."""
    lhs = _summed(emit, lhs, later.union(rhs.labels))
    rhs = _summed(emit, rhs, later.union(lhs.labels))
    both = [label for label in lhs.labels if label in rhs.labels]
    batch = [label for label in both if label in later]
    summed = [label for label in both if label not in later]
    rest = [label for label in rhs.labels if label not in both]
    if not summed:
        return _outer(emit, lhs, rhs, (*lhs.labels, *rest))

    def axes(term: Term, labels: Sequence[str]) -> tuple[int, ...]:
        return tuple([term.labels.index(label) for label in labels])

    value = emit(
        DotGeneral(
            lhs.value,
            rhs.value,
            axes(lhs, batch),
            axes(rhs, batch),
            axes(lhs, summed),
            axes(rhs, summed),
        )
    )
    free = [label for label in lhs.labels if label not in both]
    return Term(value, (*batch, *free, *rest))


def _outer(emit: Builder, lhs: Term, rhs: Term, labels: Labels) -> Term:
    """The element-wise product over the union of the labels, without a sum."""
    sizes = lhs.sizes | rhs.sizes
    shape = tuple([sizes[label] for label in labels])
    spread: list[Value] = []
    for term in (lhs, rhs):
        order = sorted(term.labels, key=labels.index)
        turned = transpose(emit, term.value, tuple([term.labels.index(label) for label in order]))
        places = tuple([labels.index(label) for label in order])
        spread.append(emit(Broadcast(turned, shape, places)))
    return Term(emit(Multiply(*spread)), labels)
