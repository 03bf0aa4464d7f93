"""A fully connected network, for images as small as the 8x8 digits."""

from torch import Tensor, nn

from batchlens.training.models._initialization import start_for_relu


class MLP(nn.Module):
    """One hidden layer with ReLU."""

    def __init__(self, inputs: int = 64, hidden: int = 64, classes: int = 10) -> None:
        super().__init__()
        output = nn.Linear(hidden, classes)
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), output)
        start_for_relu(self, output)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layers(images)
        return logits
