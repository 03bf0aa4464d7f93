"""VGG11 for 32x32 images (Simonyan and Zisserman 2014, configuration A)."""

from torch import Tensor, nn

from batchlens.training.models._initialization import start_for_relu
from batchlens.training.models._normalization import GhostBatchNorm2d, hold_channels_at_norm_one

# Channels of each convolution in units of the width; 0 halves the image.
_LAYERS = (1, 0, 2, 0, 4, 4, 0, 8, 8, 0, 8, 8, 0)


class VGG11(nn.Module):
    """Eight 3x3 convolutions with ghost batch normalisation and one dense layer; the paper's has width 64."""

    def __init__(self, width: int = 64, classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for factor in _LAYERS:
            if factor == 0:
                layers.append(nn.MaxPool2d(2))
                continue
            outputs = factor * width
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), GhostBatchNorm2d(outputs), nn.ReLU()]
            inputs = outputs
        self.features = nn.Sequential(*layers, nn.Flatten())
        self.head = nn.Linear(inputs, classes)
        start_for_relu(self, self.head)
        hold_channels_at_norm_one(self)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(images))
        return logits
