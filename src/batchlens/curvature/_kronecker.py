"""Curvature and gradient noise in the directions of a Kronecker eigenbasis, exactly.

The basis of a layer is that of its K-FAC factors: with S = U s U^T and A = V a V^T its directions are the matrices
u_i v_j^T. In each of them v^T F v is the mean over examples of sum_k (u_i^T G_nk v_j)^2, where G_nk is the gradient of
example n's outputs along column k of a square root of the Fisher matrix of its outputs; v^T C v and the second moment
are those of u_i^T G_n v_j, with G_n its gradient of the loss. Where an example has many outputs (a language model), k
runs over drawn labels instead, and v^T F v is unbiased.

Factors of vocabulary size are diagonal (see `batchlens.kfac`), and so is their part of the basis.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from batchlens.curvature._layer_gradients import Basis, Forward, example_gradients
from batchlens.curvature._objective import Objective, output_curvature, output_gradient
from batchlens.curvature._spectra import Directions
from batchlens.kfac._graph import Call
from batchlens.kfac._labels import Uniforms, output_gradients
from batchlens.kfac._layers import Block, find_blocks
from batchlens.kfac._moments import Sums

# Up to this many outputs of an example the Fisher matrix is taken exactly, else from this many drawn labels.
_EXACT_OUTPUTS, _DRAWS = 128, 4
# Examples on which it is checked that calls of its layers account for the gradient of a weight.
_CHECKED = 7


@dataclass(frozen=True)
class Fisher:
    """The Fisher matrix of an example's outputs: `scale` times that of a likelihood, exactly or by drawn labels."""

    likelihood: str
    scale: float
    exact: bool

    def columns(self, outputs: Tensor, uniforms: Uniforms) -> Iterator[Tensor]:
        """Weights of the outputs whose outer products add up to it, up to `weight`."""
        kind, values = "exact" if self.exact else "sampled", _with_classes(outputs)
        for _ in range(1 if self.exact else _DRAWS):
            for column in output_gradients(self.likelihood, kind, values, None, uniforms):
                yield column.view_as(outputs)

    @property
    def weight(self) -> float:
        """What the outer product of a column counts."""
        return self.scale if self.exact else self.scale / _DRAWS


@dataclass
class _Totals:
    """Sums over examples in the directions of one block."""

    curvature: Tensor
    second_moment: Tensor
    gradient: Tensor


@dataclass(frozen=True)
class KroneckerFigure:
    """What was measured in the basis, and what is not in it.

    `squared_norms` has |g_n|^2 of each example over the parameters that are in it, which `covered` marks.
    """

    directions: Directions
    squared_norms: Tensor
    covered: Tensor
    left_out: Mapping[str, str]


def kronecker_figure(objective: Objective, seed: int) -> KroneckerFigure:
    """Every direction of every layer that K-FAC understands."""
    fisher = fisher_of(objective)
    blocks: list[Block] = []
    if fisher is None:
        reason = "the curvature of the loss is not that of a likelihood that K-FAC knows, with the classes last"
        left_out = dict.fromkeys(objective.names, reason)
    else:
        blocks, left_out = usable_blocks(objective)
    covered = {parameter for block in blocks for parameter in block.parameters}
    marks = [torch.full((weight.numel(),), weight in covered) for weight in objective.parameters]
    norms = objective.new_vector().new_zeros(objective.examples, dtype=torch.float64)
    totals: dict[Block, _Totals] = {}
    if fisher is not None and blocks:
        bases = _bases(objective, blocks, fisher, Uniforms(seed))
        totals = _totals(objective, bases, fisher, Uniforms(seed + 1), norms)
    return KroneckerFigure(_directions(totals, objective.examples), norms, torch.cat(marks), left_out)


def fisher_of(objective: Objective) -> Fisher | None:
    """The likelihood behind the loss, told by its second derivative on some examples; None: none that is known."""
    inputs, targets = objective.inputs[:_CHECKED], objective.targets[:_CHECKED]
    with torch.no_grad():
        outputs: Tensor = objective.model(inputs)
    # Of a model that is certain the second derivative is little but rounding: outputs of 1 at most are not.
    outputs = outputs / outputs.abs().max().clamp(min=1)
    generator = torch.Generator().manual_seed(0)
    along = torch.randn(outputs.shape, generator=generator, dtype=torch.float64).to(outputs)
    found = output_curvature(objective.losses, outputs, targets, along)
    chances, ahead = _with_classes(outputs).softmax(-1), _with_classes(along)
    of_classes = chances * (ahead - (chances * ahead).sum(-1, keepdim=True))
    for likelihood, expected in (("squared_error", along), ("cross_entropy", of_classes.view_as(along))):
        scale = float((found * expected).sum() / expected.square().sum())
        if scale > 0 and float((found - scale * expected).norm()) <= 1e-3 * float(found.norm()):
            return Fisher(likelihood, scale, outputs[0].numel() <= _EXACT_OUTPUTS)
    return None


def _with_classes(outputs: Tensor) -> Tensor:
    """Outputs with a last dimension of classes or values, also where an example has one output alone."""
    return outputs if outputs.ndim > 1 else outputs.unsqueeze(1)


def usable_blocks(objective: Objective) -> tuple[list[Block], dict[str, str]]:
    """The blocks whose calls give the gradient of each example, and every other parameter with the reason."""
    blocks, others = find_blocks(objective.model)
    left_out = {name: reason for name, (_, reason) in others.items()}
    inputs, targets = objective.inputs[:_CHECKED], objective.targets[:_CHECKED]
    forward = Forward(objective.model, blocks, inputs)
    _, weights = output_gradient(objective.losses, forward.outputs, targets)
    calls, first = forward.differentiate(weights), forward.differentiate(_of_the_first(forward.outputs))
    gradients = torch.autograd.grad(forward.outputs, objective.parameters, weights, materialize_grads=True)
    truth = dict(zip(objective.parameters, gradients, strict=True))
    names = dict(zip(objective.parameters, objective.names, strict=True))
    kept = []
    for block in blocks:
        expected = [truth[parameter] for parameter in block.parameters]
        if reason := _refusal(block, calls.get(block, []), first.get(block, []), len(inputs), expected):
            left_out |= {names[parameter]: reason for parameter in block.parameters}
        else:
            kept.append(block)
    return kept, left_out


def _of_the_first(outputs: Tensor) -> Tensor:
    """Weights of the outputs of the first example alone, no two alike."""
    weights = torch.zeros_like(outputs)
    weights[0] = torch.arange(1, outputs[0].numel() + 1).to(outputs).view_as(outputs[0])
    return weights


def _refusal(
    block: Block,
    calls: Sequence[tuple[Call, Tensor]],
    first: Sequence[tuple[Call, Tensor]],
    examples: int,
    expected: Sequence[Tensor],
) -> str:
    """Why a block's calls do not give the gradient of each example, or nothing; `first` is of the first alone."""
    if not calls:
        return "no call of its layer leads to the outputs"
    apart = [len(call.inputs) == examples and not bool(gradient[1:].any()) for call, gradient in first]
    if not all(apart):
        return "its layer does not have the examples in its first dimension"
    parts = example_gradients(block, [calls], Basis(None, None))
    found = block.split(sum((gradients.total() for (gradients,) in parts), start=torch.zeros(())))
    gap = sum(float((mine - theirs).square().sum()) for mine, theirs in zip(found, expected, strict=True))
    if gap > 1e-6 * sum(float(theirs.square().sum()) for theirs in expected):
        return "its weight is used outside a call of its layer"
    return ""


def _bases(objective: Objective, blocks: Sequence[Block], fisher: Fisher, uniforms: Uniforms) -> dict[Block, Basis]:
    """The eigenvectors of every block's factors."""
    sums = Sums()
    for inputs, _ in objective.chunks():
        forward = Forward(objective.model, blocks, inputs)
        for number, column in enumerate(fisher.columns(forward.outputs, uniforms)):
            for block, calls in forward.differentiate(column).items():
                for call, gradient in calls:
                    pair = sums.of(block.weight)
                    block.accumulate_gradients(pair, call.module, gradient, first_pass=number == 0)
        places = _with_classes(forward.outputs)[..., 0].numel()
        for call in forward.calls:
            call.block.accumulate_inputs(sums.of(call.block.weight), call.module, [call.inputs], places)
    return {block: _basis(block, sums) for block in blocks}


def _basis(block: Block, sums: Sums) -> Basis:
    pair = sums.of(block.weight)
    sides = [
        None if mean is None or mean.ndim == 1 else torch.linalg.eigh(mean)[1]
        for mean in (pair.inputs.take_mean(), pair.outputs.take_mean())
    ]
    return Basis(*sides) if block.is_embedding else Basis(sides[1], sides[0])


def _totals(
    objective: Objective, bases: Mapping[Block, Basis], fisher: Fisher, uniforms: Uniforms, norms: Tensor
) -> dict[Block, _Totals]:
    """Sums over all examples; adds the squared norm of each one's gradient to `norms`."""
    blocks = list(bases)
    totals = {block: _no_totals(block) for block in blocks}
    first = 0
    for inputs, targets in objective.chunks():
        forward = Forward(objective.model, blocks, inputs)
        _, weights = output_gradient(objective.losses, forward.outputs, targets)
        passes = [forward.differentiate(each) for each in (*fisher.columns(forward.outputs, uniforms), weights)]
        for block, total in totals.items():
            at = first
            for *columns, gradients in example_gradients(block, [one[block] for one in passes], bases[block]):
                for column in columns:
                    total.curvature += fisher.weight * column.total_squares()
                total.second_moment += gradients.total_squares()
                total.gradient += gradients.total()
                each = gradients.squared_norms()
                norms[at : at + len(each)] += each
                at += len(each)
        first += len(inputs)
    return totals


def _no_totals(block: Block) -> _Totals:
    rows, columns = len(block.weight), block.weight[0].numel() + (block.bias is not None)
    return _Totals(*(block.weight.new_zeros(rows, columns, dtype=torch.float64) for _ in range(3)))


def _directions(totals: Mapping[Block, _Totals], examples: int) -> Directions:
    """Means over examples; the variance is unbiased."""
    parts = []
    for number, total in enumerate(totals.values()):
        second, mean = total.second_moment / examples, total.gradient / examples
        variance = (second - mean.square()) * (examples / (examples - 1))
        values = [part.detach().cpu().flatten().numpy() for part in (total.curvature / examples, variance, second)]
        parts.append((np.full(len(values[0]), number), *values))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)] or [np.zeros(0)] * 4
    return Directions([block.name for block in totals], *columns)
