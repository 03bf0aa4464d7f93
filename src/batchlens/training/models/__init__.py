"""The paper's networks (appendix F), each with a width that narrows it."""

from batchlens.training.models._mlp import MLP
from batchlens.training.models._resnet import ResNet
from batchlens.training.models._simple_cnn import SimpleCNN
from batchlens.training.models._transformer import Transformer
from batchlens.training.models._vgg import VGG11

__all__ = ["MLP", "VGG11", "ResNet", "SimpleCNN", "Transformer"]
