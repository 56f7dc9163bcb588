"""A constant matrix times a vector of expressions, with as few operations as the matrix allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.dialects.expr import Expr, constant, fma

Matrix: TypeAlias = NDArray[np.float64]


def linear_map(matrix: Matrix, vector: Sequence[Expr], *, fused: bool) -> list[Expr]:
    """The product of a matrix and a vector; multiplications and additions are `fused` where they can be.

    Two neighbouring columns that differ in signs only are applied to the sum and the difference of their
    elements, and of two such rows the common part and the other one are computed once. The transforms of
    Winograd's form are such matrices, for a point and its negative.
    """
    matrix, vector = _with_columns_paired(matrix, vector)
    found: list[Expr] = []
    row = 0
    while row < len(matrix):
        if row + 1 < len(matrix) and _differ_in_signs(matrix[row], matrix[row + 1]):
            same = matrix[row] == matrix[row + 1]
            parts = (np.where(kept, matrix[row], 0) for kept in (same, ~same))
            common, other = (_weighted_sum(part, vector, fused) for part in parts)
            found += [common + other, common - other]
            row += 2
        else:
            found.append(_weighted_sum(matrix[row], vector, fused))
            row += 1
    return found


def _with_columns_paired(matrix: Matrix, vector: Sequence[Expr]) -> tuple[Matrix, Sequence[Expr]]:
    columns: list[Matrix] = []
    elements: list[Expr] = []
    column = 0
    while column < len(vector):
        one = matrix[:, column]
        if column + 1 < len(vector) and _differ_in_signs(one, matrix[:, column + 1]):
            same = one == matrix[:, column + 1]
            columns += [np.where(same, one, 0), np.where(same, 0, one)]
            elements += [vector[column] + vector[column + 1], vector[column] - vector[column + 1]]
            column += 2
        else:
            columns.append(one)
            elements.append(vector[column])
            column += 1
    return np.stack(columns, 1), elements


def _differ_in_signs(one: Matrix, other: Matrix) -> bool:
    """Whether two rows are equal but for signs, and some but not all elements have another sign."""
    nonzero = one != 0
    same = (one == other)[nonzero]
    return np.array_equal(abs(one), abs(other)) and bool(same.any()) and not same.all()


def _weighted_sum(weights: Matrix, vector: Sequence[Expr], fused: bool) -> Expr:
    """The sum of the elements with weights that are not 0, those of weight 1 first."""
    terms = [(weight, x) for weight, x in zip(weights.tolist(), vector, strict=True) if weight]
    terms.sort(key=lambda term: term[0] != 1)
    (weight, total), *rest = terms
    if weight != 1:
        total = total * _number(weight, total)
    for weight, x in rest:
        if abs(weight) == 1:
            total = total + x if weight > 0 else total - x
        elif fused:
            total = fma(x, _number(weight, x), total)
        else:
            total = x * _number(weight, x) + total
    return total


def _number(weight: float, like: Expr) -> Expr:
    return constant(like.emit, weight, like.type)
