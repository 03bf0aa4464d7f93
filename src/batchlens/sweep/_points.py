"""Quasi-random search: trial k of a cell is the same point on every machine and in every order."""

import zlib
from functools import lru_cache

import numpy as np
from scipy.stats import qmc

from batchlens._arrays import FloatArray
from batchlens.sweep._declaration import Cell

_POINTS, _RUNS = 0, 1


def unit_point(seed: int, cell: Cell, number: int, dimensions: int) -> tuple[float, ...]:
    """Point `number` of the cell's scrambled Sobol sequence, in [0, 1).

    >>> unit_point(0, Cell("sgd", 64), 3, 2) == unit_point(0, Cell("sgd", 64), 3, 2)
    True
    """
    length = 1 << max(number, 1).bit_length()
    return tuple(_sequence(seed, cell, dimensions, length)[number].tolist())


@lru_cache(maxsize=256)
def _sequence(seed: int, cell: Cell, dimensions: int, length: int) -> FloatArray:
    entropy = (seed, _POINTS, zlib.crc32(cell.optimizer.encode()), cell.batch_size)
    generator = np.random.default_rng(np.random.SeedSequence(entropy))
    points: FloatArray = qmc.Sobol(dimensions, scramble=True, seed=generator).random(length)
    return points


def run_seed(seed: int, number: int, repeat: int = 0) -> int:
    """The seed of a run; repeats of a trial have others."""
    return int(np.random.SeedSequence((seed, _RUNS, number, repeat)).generate_state(1)[0])
