"""The Simple CNN of the paper."""

from torch import Tensor, nn

from batchlens.training.models._initialization import start_for_relu


class SimpleCNN(nn.Module):
    """Two 5x5 convolutions with max-pooling and one hidden dense layer, for 28x28 images.

    The paper's has 32 and 64 channels and 1,024 hidden units; no dropout.
    """

    def __init__(self, channels: tuple[int, int] = (32, 64), hidden: int = 1024, classes: int = 10) -> None:
        super().__init__()
        first, second = channels
        self.features = nn.Sequential(
            nn.Conv2d(1, first, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(first, second, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        output = nn.Linear(hidden, classes)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(second * 7 * 7, hidden), nn.ReLU(), output)
        start_for_relu(self, output)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(images))
        return logits
