"""How layers start."""

from torch import nn


def start_for_relu(model: nn.Module, output: nn.Linear) -> None:
    """Weights of convolutions and dense layers as in He et al. 2015 (normal, fan in), biases zero.

    The output layer starts small, so that the first predictions are close to uniform.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    nn.init.normal_(output.weight, std=0.01)
