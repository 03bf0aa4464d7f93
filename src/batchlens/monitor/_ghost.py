"""Squared gradients of single examples, without the gradients where that is cheaper ("ghost norms").

With g_i = sum_t l_t r_t' of example i, |g_i|^2 = <L L', R R'> = |L' R|^2: the first form takes rows^2 (outputs +
inputs) products, the second rows * outputs * inputs. Several uses of one weight are more rows; where an Embedding and
a Linear share it, their cross term is sum_tu l_u[token_t] <r_t, r_u>. In a geometry with weights p for every entry only
the second form is left, except for single rows: |g_i|^2_p = (l^2)' p (r^2).
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from batchlens.monitor._layers import Call, Rows, is_matrix, matrix_rows, matrix_size, vector

_PORTION = 2**20  # numbers held at once


def squared_norms(
    parameter: nn.Parameter, calls: Sequence[Call], examples: int, weights: Tensor | None = None
) -> Tensor:
    """(examples,): the squared gradient of each of the first examples, entries weighted by `weights`."""
    dtype = torch.promote_types(parameter.dtype, torch.float32)
    weights = None if weights is None else weights.to(dtype)
    if not is_matrix(calls[0].module, parameter):
        part = slice(examples)
        total = torch.stack([vector(call, parameter, part, dtype) for call in calls]).sum(0).square()
        return (total if weights is None else total * weights.flatten()).sum(1)
    squares = []
    for part in _portions(calls, examples, weighted=weights is not None):
        uses = [matrix_rows(call, part, dtype) for call in calls]
        found = _squares(uses, parameter, weights)
        squares.append(found.reshape(part.stop - part.start, -1).sum(1))  # over groups
    return torch.cat(squares)


def total_gradient(parameter: nn.Parameter, calls: Sequence[Call]) -> Tensor:
    """The gradient of all examples together, as the calls have it."""
    dtype = torch.promote_types(parameter.dtype, torch.float32)
    examples = len(calls[0].gradients)
    if not is_matrix(calls[0].module, parameter):
        return sum_of(vector(call, parameter, slice(None), dtype).sum(0) for call in calls).view(parameter.shape)
    total = torch.zeros_like(parameter, dtype=dtype)
    for call in calls:
        for part in _portions([call], examples, weighted=False):
            rows = matrix_rows(call, part, dtype)
            if rows.is_one_hot:
                total.index_add_(0, rows.left.flatten(), rows.right.flatten(0, 1))
                continue
            count = part.stop - part.start
            left, right = (
                side.unflatten(0, (count, -1)).transpose(0, 1).flatten(1, 2) for side in (rows.left, rows.right)
            )  # (groups, examples and rows, features)
            total += (left.transpose(1, 2) @ right).view(total.shape)
    return total


def sum_of(tensors: Iterable[Tensor]) -> Tensor:
    first, *others = tensors
    for tensor in others:
        first = first + tensor
    return first


def _portions(calls: Sequence[Call], examples: int, weighted: bool) -> list[slice]:
    """Slices of examples, few enough that what they take fits a portion."""
    sizes = [matrix_size(call) for call in calls]
    rows = sum(size[0] for size in sizes)
    outputs, inputs = (max(size[place] for size in sizes) for place in (1, 2))
    held = rows if rows == 1 else outputs * inputs if weighted else min(rows * rows, outputs * inputs)
    step = max(1, _PORTION // max(1, rows * (outputs + inputs) + held))
    return [slice(start, min(start + step, examples)) for start in range(0, examples, step)]


def _squares(uses: Sequence[Rows], parameter: nn.Parameter, weights: Tensor | None) -> Tensor:
    """(examples and groups,)"""
    one_hot = _joined([rows for rows in uses if rows.is_one_hot])
    dense = _joined([rows for rows in uses if not rows.is_one_hot])
    if dense is None:
        assert one_hot is not None
        return _one_hot_squares(one_hot, len(parameter), weights)
    if one_hot is None:
        return _dense_squares(dense, None if weights is None else weights.flatten(1))
    if weights is not None:
        return (_tied(dense, one_hot).square() * weights).sum((1, 2))
    squares = _dense_squares(dense, None) + _one_hot_squares(one_hot, len(parameter), None)
    return squares + 2 * _cross(dense, one_hot)


def _joined(uses: Sequence[Rows]) -> Rows | None:
    """Several uses as one with all their rows."""
    if len(uses) <= 1:
        return uses[0] if uses else None
    return Rows(torch.cat([rows.left for rows in uses], 1), torch.cat([rows.right for rows in uses], 1))


def _dense_squares(use: Rows, weights: Tensor | None) -> Tensor:
    left, right = use.left, use.right
    rows, outputs, inputs = left.shape[1], left.shape[2], right.shape[2]
    if weights is not None:  # (groups * outputs, inputs)
        if rows == 1 and len(weights) == outputs:
            return ((left[:, 0].square() @ weights) * right[:, 0].square()).sum(1)
        squares = (left.transpose(1, 2) @ right).square()
        weighted: Tensor = (
            squares.unflatten(0, (-1, len(weights) // outputs)) * weights.unflatten(0, (-1, outputs))
        ).sum((2, 3))
        return weighted
    if rows == 1:
        return left.square().sum((1, 2)) * right.square().sum((1, 2))
    if rows * (outputs + inputs) < outputs * inputs:
        return ((left @ left.transpose(1, 2)) * (right @ right.transpose(1, 2))).sum((1, 2))
    gradients: Tensor = left.transpose(1, 2) @ right
    return gradients.square().sum((1, 2))


def _one_hot_squares(use: Rows, places: int, weights: Tensor | None) -> Tensor:
    """Rows at the same place of the same example are added before they are squared."""
    examples = len(use.left)
    keys = use.left + places * torch.arange(examples, device=use.left.device).unsqueeze(1)
    found, order = keys.unique(return_inverse=True)
    sums = use.right.new_zeros(len(found), use.right.shape[2])
    squares = sums.index_add_(0, order.flatten(), use.right.flatten(0, 1)).square()
    if weights is not None:
        squares = squares * weights[found % places]
    return use.right.new_zeros(examples).index_add_(0, found // places, squares.sum(1))


def _cross(dense: Rows, one_hot: Rows) -> Tensor:
    """<gradient by the dense use, gradient by the one-hot use>, for each example."""
    places = one_hot.left.unsqueeze(1).expand(-1, dense.left.shape[1], -1)
    return (dense.left.gather(2, places) * (dense.right @ one_hot.right.transpose(1, 2))).sum((1, 2))


def _tied(dense: Rows, one_hot: Rows) -> Tensor:
    """(examples, places, entries): the gradients by both uses themselves."""
    gradients = dense.left.transpose(1, 2) @ dense.right
    places = one_hot.left.unsqueeze(2).expand_as(one_hot.right)
    return gradients.scatter_add_(1, places, one_hot.right)
