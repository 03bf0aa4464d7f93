"""Residual networks for 32x32 images (He et al. 2016, section 4.2), post- or pre-activation.

Pre-activation is the block of He et al. 2016, "Identity mappings in deep residual networks", which Shallue et al. took
for ResNet8.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from batchlens.training.models._initialization import start_for_relu
from batchlens.training.models._normalization import GhostBatchNorm2d, hold_channels_at_norm_one


def _norm(channels: int, normalized: bool) -> list[nn.Module]:
    return [GhostBatchNorm2d(channels)] if normalized else []


def _convolution(inputs: int, outputs: int, stride: int, normalized: bool, preactivated: bool) -> nn.Sequential:
    """A convolution and its normalisation; pre-activated: normalisation, relu, convolution."""
    layer = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=not normalized)
    if preactivated:
        return nn.Sequential(*_norm(inputs, normalized), nn.ReLU(), layer)
    return nn.Sequential(layer, *_norm(outputs, normalized))


class _Block(nn.Module):
    """Two convolutions and a shortcut without parameters: every other pixel, new channels zero."""

    def __init__(self, inputs: int, outputs: int, stride: int, normalized: bool, preactivated: bool) -> None:
        super().__init__()
        self.first = _convolution(inputs, outputs, stride, normalized, preactivated)
        self.second = _convolution(outputs, outputs, 1, normalized, preactivated)
        self.stride, self.new_channels, self.preactivated = stride, outputs - inputs, preactivated

    def forward(self, images: Tensor) -> Tensor:
        shortcut = images
        if self.stride > 1 or self.new_channels:
            shortcut = images[:, :, :: self.stride, :: self.stride]
            shortcut = functional.pad(shortcut, (0, 0, 0, 0, 0, self.new_channels))
        if self.preactivated:
            branch: Tensor = self.second(self.first(images))
            return shortcut + branch
        return functional.relu(shortcut + self.second(functional.relu(self.first(images))))


class ResNet(nn.Module):
    """A residual network of 6 `blocks` + 2 layers: ResNet8 with 1 block a stage, ResNet32 with 5.

    `normalized` goes with ghost batch normalisation for every convolution, whose channels then have no bias and start
    at norm 1; without it (the paper's ResNet8) convolutions have biases. `preactivated` blocks normalise and rectify
    before a convolution, and nothing comes after the sum with the shortcut; else (the paper's ResNet32) they normalise
    after it, and rectify the sum.
    """

    def __init__(
        self,
        blocks: int = 1,
        normalized: bool = False,
        width: int = 16,
        classes: int = 10,
        preactivated: bool = True,
    ) -> None:
        super().__init__()
        self.stem = _convolution(3, width, 1, normalized, preactivated=False)
        stages: list[_Block] = []
        inputs = width
        for outputs in (width, 2 * width, 4 * width):
            for block in range(blocks):
                stride = 2 if block == 0 and outputs != width else 1
                stages.append(_Block(inputs, outputs, stride, normalized, preactivated))
                inputs = outputs
        self.stages = nn.Sequential(*stages)
        self.last = nn.Sequential()
        if preactivated:
            # The stem's activation serves both paths of the first block (He et al. 2016, appendix).
            stages[0].first = nn.Sequential(stages[0].first[-1])
            self.last = nn.Sequential(*_norm(inputs, normalized), nn.ReLU())
        self.head = nn.Linear(inputs, classes)
        start_for_relu(self, self.head)
        if normalized:
            hold_channels_at_norm_one(self)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.last(self.stages(functional.relu(self.stem(images))))
        logits: Tensor = self.head(torch.mean(features, dim=(2, 3)))
        return logits
