"""Residual networks for 32x32 images (He et al. 2016, section 4.2)."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from batchlens.training.models._initialization import start_for_relu
from batchlens.training.models._normalization import GhostBatchNorm2d, hold_channels_at_norm_one


def _convolution(inputs: int, outputs: int, stride: int, normalized: bool) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=not normalized)]
    if normalized:
        layers.append(GhostBatchNorm2d(outputs))
    return nn.Sequential(*layers)


class _Block(nn.Module):
    """Two convolutions and a shortcut without parameters: every other pixel, new channels zero."""

    def __init__(self, inputs: int, outputs: int, stride: int, normalized: bool) -> None:
        super().__init__()
        self.first = _convolution(inputs, outputs, stride, normalized)
        self.second = _convolution(outputs, outputs, 1, normalized)
        self.stride, self.new_channels = stride, outputs - inputs

    def forward(self, images: Tensor) -> Tensor:
        shortcut = images
        if self.stride > 1 or self.new_channels:
            shortcut = images[:, :, :: self.stride, :: self.stride]
            shortcut = functional.pad(shortcut, (0, 0, 0, 0, 0, self.new_channels))
        return functional.relu(shortcut + self.second(functional.relu(self.first(images))))


class ResNet(nn.Module):
    """A residual network of 6 `blocks` + 2 layers: ResNet8 with 1 block a stage, ResNet32 with 5.

    `normalized` puts ghost batch normalisation behind every convolution, whose channels then have no bias and start
    at norm 1; without it (the paper's ResNet8) convolutions have biases.
    """

    def __init__(self, blocks: int = 1, normalized: bool = False, width: int = 16, classes: int = 10) -> None:
        super().__init__()
        self.stem = _convolution(3, width, 1, normalized)
        stages: list[nn.Module] = []
        inputs = width
        for outputs in (width, 2 * width, 4 * width):
            for block in range(blocks):
                stride = 2 if block == 0 and outputs != width else 1
                stages.append(_Block(inputs, outputs, stride, normalized))
                inputs = outputs
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(inputs, classes)
        start_for_relu(self, self.head)
        if normalized:
            hold_channels_at_norm_one(self)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.stages(functional.relu(self.stem(images)))
        logits: Tensor = self.head(torch.mean(features, dim=(2, 3)))
        return logits
