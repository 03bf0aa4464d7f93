"""From the outputs of a model to the means that its factors are averages of."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node

from batchlens.errors import BatchlensError
from batchlens.kfac._graph import Call, take_calls
from batchlens.kfac._labels import Uniforms, check_targets, ignored_examples, output_gradients
from batchlens.kfac._layers import Block
from batchlens.kfac._moments import Pending, Sums
from batchlens.kfac._processes import Group, place, pool
from batchlens.kfac._thinning import kept_examples, thin

_instances = count()


class Observer:
    """What is collected for the step to come, and how labels are drawn for it."""

    def __init__(
        self, blocks: Sequence[Block], loss: str, fisher: str, ignore_index: int, seed: int, group: Group | None
    ) -> None:
        self.blocks, self.loss, self.fisher, self.ignore_index = blocks, loss, fisher, ignore_index
        self.uniforms, self.group, self.pending = Uniforms(seed), group, Pending()
        self.key = f"batchlens.kfac.{next(_instances)}"

    def observe(self, outputs: Tensor, targets: Tensor | None, first: int | None) -> bool:
        """Adds what `outputs` say; whether they said anything. `first` examples count for every input factor."""
        if outputs.ndim < 2:
            raise ValueError(f"`outputs` must have the shape (examples, ..., classes), got {tuple(outputs.shape)}.")
        if targets is not None and (self.fisher == "empirical" or not targets.is_floating_point()):
            check_targets(self.loss, outputs, targets)
        if outputs.grad_fn is None:
            raise ValueError("`outputs` must come from the model: they are a tensor that was not computed.")
        calls = take_calls(outputs, self.key, self.blocks)
        if calls:
            with torch.no_grad(), torch.autocast(outputs.device.type, enabled=False):
                sums = self._sums(calls, outputs, targets, first)
            self.pending.add(sums, outputs)
        return bool(calls)

    def _sums(self, calls: Mapping[Node, Call], outputs: Tensor, targets: Tensor | None, first: int | None) -> Sums:
        sums = Sums()
        ignored = ignored_examples(targets, outputs, self.ignore_index) if self.loss == "cross_entropy" else None
        edges = [GradientEdge(node, call.output_number) for node, call in calls.items()]
        self.uniforms.process, self.uniforms.processes = place(self.group)
        passes = output_gradients(self.loss, self.fisher, outputs, targets, self.uniforms, ignored)
        for number, output_gradient in enumerate(passes):
            gradients = _differentiate(outputs, edges, output_gradient)
            for call, gradient in zip(calls.values(), gradients, strict=True):
                pair = sums.of(call.block.weight)
                call.block.accumulate_gradients(pair, call.module, gradient, first_pass=number == 0)
        examples = outputs.numel() // outputs.shape[-1] - (0 if ignored is None else int(ignored.sum()))
        self._add_inputs(sums, calls.values(), len(outputs), examples, first)
        return sums

    def _add_inputs(self, sums: Sums, calls: Iterable[Call], batch: int, examples: int, first: int | None) -> None:
        of_layers: dict[nn.Module, list[Call]] = {}
        for call in calls:
            of_layers.setdefault(call.module, []).append(call)
        kept = kept_examples(self.pending.position, batch, first, *place(self.group))
        for module, of_layer in of_layers.items():
            block = of_layer[0].block
            inputs, share = thin(of_layer, batch, kept, first)
            if share > 0:
                block.accumulate_inputs(sums.of(block.weight), module, inputs, share * examples)
        sums.examples = batch

    def take_means(self) -> dict[Block, tuple[Tensor, Tensor]]:
        """The means of all that was observed, on all processes, leaving nothing behind."""
        self.uniforms.end_step()
        sums = self.pending.take()
        pool(sums, self.blocks, self.group)
        means = {}
        for block in self.blocks:
            pair = sums.of(block.weight)
            inputs, outputs = pair.inputs.take_mean(), pair.outputs.take_mean()
            if inputs is not None and outputs is not None:  # or it was not part of the forward pass
                means[block] = inputs, outputs
        return means

    def restart(self, random_state: Tensor) -> None:
        """Goes on from between two steps."""
        self.uniforms.generator.set_state(random_state.cpu())
        self.uniforms.end_step()
        self.pending = Pending()


def _differentiate(outputs: Tensor, edges: list[GradientEdge], output_gradient: Tensor) -> tuple[Tensor, ...]:
    try:
        return torch.autograd.grad(outputs, edges, output_gradient, retain_graph=True)
    except RuntimeError as error:
        if "backward through the graph a second time" not in str(error):
            raise
        raise BatchlensError("observe(outputs) must come before backward(), which frees what it needs.") from None
