"""The paper's networks (appendix F), each with a width that narrows it."""

from batchlens.training.models.mlp import MLP
from batchlens.training.models.resnet import ResNet
from batchlens.training.models.simple_cnn import SimpleCNN
from batchlens.training.models.transformer import Transformer
from batchlens.training.models.vgg import VGG11

__all__ = ["MLP", "VGG11", "ResNet", "SimpleCNN", "Transformer"]
