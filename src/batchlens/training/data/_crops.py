"""Random crops of images, as in the paper's augmentation."""

import torch
from torch import Tensor
from torch.nn import functional


def draw_crops(count: int, generator: torch.Generator, padding: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """For `count` images, the first row and column of the crop, in [0, 2 padding], and whether it is mirrored.

    Drawn for a whole batch and cut with it, they make its parts what the whole would be.
    """
    rows = torch.randint(2 * padding + 1, (count,), generator=generator)
    columns = torch.randint(2 * padding + 1, (count,), generator=generator)
    flips = torch.randint(2, (count,), generator=generator).bool()
    return rows, columns, flips


def apply_crops(images: Tensor, rows: Tensor, columns: Tensor, flips: Tensor, padding: int = 4) -> Tensor:
    """Each image mirrored where `flips` says so, padded with black, and cropped to its size at `rows` and `columns`."""
    count, channels, height, width = images.shape
    padded = functional.pad(images, (padding,) * 4)
    rows, columns, flips = (draw.to(images.device)[:, None] for draw in (rows, columns, flips))
    row = rows + torch.arange(height, device=images.device)
    column = columns + torch.arange(width, device=images.device)
    column = torch.where(flips, padded.shape[3] - 1 - column, column)
    pixel = (row[:, :, None] * padded.shape[3] + column[:, None, :]).view(count, 1, -1).expand(-1, channels, -1)
    return padded.flatten(2).gather(2, pixel).view(images.shape)
