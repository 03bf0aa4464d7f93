"""The autograd graph behind a model's outputs: which calls of layers it holds, and what they leave out.

A forward hook leaves a `Call` on the graph, so that what is never observed goes with its graph. `take_calls` walks the
graph from the outputs, takes the calls off and checks that they account for all that the graph says:

* every path to a weight with factors leads through a call of one of its layers;
* the outputs have their classes last and every example that the last layer was given.
"""

import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, cast

from torch import Tensor, nn
from torch.autograd.graph import Node

from batchlens.errors import BatchlensError
from batchlens.kfac._layers import Block, is_convolution

_TURNED = ("PermuteBackward0", "TransposeBackward0")
_RESHAPED = ("ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0", "SqueezeBackward1", "SelectBackward0")
_PARTS = ("SliceBackward0", "SplitBackward0", "SplitWithSizesBackward0", "IndexSelectBackward0", "IndexBackward0")


class Call(NamedTuple):
    """A forward pass through one layer: its input, where that came from and where its output stands in the graph.

    `rows` is the number of rows that the layer made.
    """

    block: Block
    module: nn.Module
    inputs: Tensor
    source: Node | None
    output_number: int
    rows: int


class Capture:
    """The forward hook of a layer. With a model that is copied or pickled goes one that does nothing."""

    def __init__(self, listener: Callable[..., None] | None = None, block: Block | None = None) -> None:
        # The model holds its hooks: through a weak reference they do not keep the optimizer alive.
        self._listener = None if listener is None else weakref.WeakMethod(listener)
        self._block = block

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        listener = None if self._listener is None else self._listener()
        if listener is not None:
            listener(self._block, module, args[0] if args else kwargs["input"], output)

    def __reduce__(self) -> tuple[type["Capture"], tuple[()]]:
        return Capture, ()


def leave_call(key: str, block: Block, module: nn.Module, inputs: Tensor, output: Tensor) -> None:
    """Hangs the call on the node that made `output`."""
    assert output.grad_fn is not None
    call = Call(block, module, inputs.detach(), inputs.grad_fn, output.output_nr, output.numel() // len(block.weight))
    _metadata(output.grad_fn)[key] = call


def find_calls(outputs: Tensor, key: str) -> tuple[list[Node], dict[Node, Call]]:
    """Every node that `outputs` were computed from, and the calls, which are taken off them."""
    assert outputs.grad_fn is not None
    nodes = list(_walk(outputs.grad_fn))
    found = {node: _metadata(node).pop(key, None) for node in nodes}
    return nodes, {node: call for node, call in found.items() if call is not None}


def take_calls(outputs: Tensor, key: str, blocks: Collection[Block]) -> dict[Node, Call]:
    """The calls that `outputs` were computed from, taken off the graph and checked."""
    nodes, calls = find_calls(outputs, key)
    if calls:
        _check_outputs(outputs, calls)
        _check_paths(nodes, calls, blocks)
    return calls


def _walk(root: Node, stop: Collection[Node | None] = ()) -> Iterator[Node]:
    """Every node from `root` down, those of `stop` left out."""
    seen, waiting = {root}, [root]
    while waiting:
        node = waiting.pop()
        yield node
        for following in _below(node):
            if following not in seen and following not in stop:
                seen.add(following)
                waiting.append(following)


def _below(node: Node) -> list[Node]:
    return [following for following, _ in node.next_functions if following is not None]


def _metadata(node: Node) -> dict[str, Call]:
    return cast("dict[str, Call]", node.metadata)  # torch declares a method, and has an attribute


# Paths ------------------------------------------------------------------------------------------


def _check_paths(nodes: list[Node], calls: Mapping[Node, Call], blocks: Collection[Block]) -> None:
    """Raises where the graph uses a weight in another way than by calling its layer."""
    # A layer in evaluation mode is not captured: whether that matters, the step will say.
    tracked = {
        parameter: block
        for block in blocks
        if all(module.training for module in block.modules)
        for parameter in block.parameters
    }
    owners = _owners(nodes, calls, tracked)
    uses = {(node, owners[below]) for node in nodes if owners[node] is None for below in _below(node)}
    if owners[nodes[0]] is not None:
        uses.add((nodes[0], owners[nodes[0]]))
    for node, call in calls.items():
        inside = list(_walk(node, stop=[call.source]))
        uses -= {(used_by, parameter) for used_by in inside for parameter in call.block.parameters}
    for node, parameter in uses:
        if parameter is not None:
            block = tracked[parameter]
            raise BatchlensError(
                f"`outputs` use the weight of {block.name} in {_name(node)}, outside a call of its layer, and its "
                "factors would be wrong. Call the layer: a weight is shared by giving two layers the same one, as in "
                "`output.weight = embedding.weight`, not by functional.linear."
            )


def _owners(
    nodes: list[Node], calls: Mapping[Node, Call], tracked: Mapping[nn.Parameter, Block]
) -> dict[Node, nn.Parameter | None]:
    """The parameter that a node is made from alone, as the transposed or rounded weight is; None for most nodes."""
    owners: dict[Node, nn.Parameter | None] = {}
    waiting = [nodes[0]]
    while waiting:
        node = waiting[-1]
        missing = [below for below in _below(node) if below not in owners]
        if missing:
            waiting.extend(missing)
            continue
        waiting.pop()
        variable = getattr(node, "variable", None)
        if variable is not None:
            owners[node] = variable if variable in tracked else None
        else:
            below = {owners[below] for below in _below(node)}
            owners[node] = below.pop() if len(below) == 1 and node not in calls else None
    return owners


def _name(node: Node) -> str:
    return node.name().removesuffix("0").removesuffix("Backward")


# Outputs ----------------------------------------------------------------------------------------


def _check_outputs(outputs: Tensor, calls: Mapping[Node, Call]) -> None:
    """Raises where the last layer says that `outputs` are not (examples, ..., classes), or not all examples."""
    assert outputs.grad_fn is not None
    path, last = _last_call(outputs.grad_fn, calls)
    names = {node.name() for node in path}
    _check_layout(outputs, last, names)
    for node in path:
        whole = _part_of(node)
        if whole is not None and whole == len(last.inputs) and outputs.shape[0] < whole:
            raise BatchlensError(
                f"`outputs` are {outputs.shape[0]} of the {whole} examples that {last.block.name} was given. Observe "
                "all outputs; those that the loss leaves out are told by `targets` that hold `ignore_index` there."
            )


def _check_layout(outputs: Tensor, last: Call, names: Collection[str]) -> None:
    turned, reshaped = any(name in names for name in _TURNED), any(name in names for name in _RESHAPED)
    if outputs.ndim < 3 or reshaped:
        return
    if is_convolution(last.module):
        misread = not turned
    else:
        size = last.block.weight.shape[0]
        misread = turned and outputs.shape[-1] != size == outputs.shape[1]
    if misread:
        raise BatchlensError(
            f"`outputs` of the shape {tuple(outputs.shape)} have their classes in dimension 1, and the last is taken "
            "for the classes. Observe outputs.movedim(1, -1), or outputs.flatten(1) where an example is all of them."
        )


def _last_call(root: Node, calls: Mapping[Node, Call]) -> tuple[list[Node], Call]:
    """The call that is nearest to the outputs, and the nodes between."""
    came_from: dict[Node, Node | None] = {root: None}
    waiting = [root]
    for node in waiting:
        if node in calls:
            break
        for below in _below(node):
            if below not in came_from:
                came_from[below] = node
                waiting.append(below)
    path, step = [], came_from[node]
    while step is not None:
        path.append(step)
        step = came_from[step]
    return path, calls[node]


def _part_of(node: Node) -> int | None:
    """How many examples there were where `node` takes some of them."""
    if node.name() not in _PARTS:
        return None
    saved = cast("Any", node)
    if node.name() == "IndexBackward0":
        indices = saved._saved_indices
        along_examples = indices[0] is not None and sum(index is not None for index in indices) == 1
    else:
        along_examples = saved._saved_dim == 0
    return int(saved._saved_self_sym_sizes[0]) if along_examples else None
