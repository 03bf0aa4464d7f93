"""Ghost batch normalisation, and convolution channels of norm 1."""

import torch
from torch import Tensor, nn

GHOST_SIZE = 32


class GhostBatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation over ghosts of 32 examples (Hoffer et al. 2017), whatever the batch size.

    The examples are taken 32 by 32 in their order, what is left over as one smaller ghost, so that the training
    objective does not change with the batch size. The running statistics follow ghost after ghost: slicing a batch
    at multiples of 32 changes nothing.
    """

    def forward(self, images: Tensor) -> Tensor:
        if not self.training:
            return super().forward(images)
        # One call a ghost keeps the memory layout; ghosts laid side by side as channels took half as long again.
        return torch.cat([nn.BatchNorm2d.forward(self, ghost) for ghost in images.split(GHOST_SIZE)])


@torch.no_grad()
def hold_channels_at_norm_one(model: nn.Module) -> None:
    """Scales every convolution's output channel to Frobenius norm 1: the paper's stand-in for weight decay."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            norms = torch.linalg.vector_norm(module.weight, dim=(1, 2, 3), keepdim=True)
            module.weight.div_(norms.clamp_min_(torch.finfo(norms.dtype).tiny))
