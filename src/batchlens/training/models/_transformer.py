"""The Transformer of the paper: the base model of Vaswani et al. 2017 with two layers, as a language model."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class _Attention(nn.Module):
    """Causal self-attention, with projections that have no bias."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, hidden: Tensor) -> Tensor:
        query, key, value = (
            project(hidden).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        output: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return output


class _Layer(nn.Module):
    """Attention, then a dense layer at every position; each is added to its input and then normalised."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.attention = _Attention(width, heads)
        self.attention_norm = nn.LayerNorm(width)
        self.dense = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))
        self.dense_norm = nn.LayerNorm(width)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = self.attention_norm(hidden + self.attention(hidden))
        normal: Tensor = self.dense_norm(hidden + self.dense(hidden))
        return normal


class Transformer(nn.Module):
    """Predicts every next token; the embedding is also the output's weight.

    Positions are sinusoids; no dropout.
    """

    positions: Tensor

    def __init__(
        self,
        vocabulary: int = 32_768,
        width: int = 512,
        layers: int = 2,
        heads: int = 8,
        hidden: int = 2048,
        length: int = 64,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.Sequential(*(_Layer(width, heads, hidden) for _ in range(layers)))
        self.output = nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("positions", _sinusoids(length, width), persistent=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.output.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        embedded = self.embedding(tokens) * math.sqrt(self.embedding.embedding_dim)
        logits: Tensor = self.output(self.layers(embedded + self.positions[: tokens.shape[1]]))
        return logits


def _sinusoids(length: int, width: int) -> Tensor:
    """Section 3.5 of Vaswani et al.: sines at even coordinates, cosines at odd ones, wavelengths from 2 pi up."""
    angles = torch.arange(length)[:, None] / 10_000 ** (torch.arange(0, width, 2) / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
