"""Gradient noise from what each example says, and the batch size at which it equals the gradient.

With c_n = |g_n - g|^2 and d_n = g_n . g for the gradient g of the mean loss over N examples,

    tr C = N / (N - 1) mean c        |G|^2 = mean d - tr C / N        B_simple = tr C / |G|^2

are unbiased but for the ratio (McCandlish et al. 2018, appendix A). Their errors are those of a sample of examples:
each example moves tr C by c_n and |G|^2 by 2 d_n, to first order in 1/N.
"""

from typing import NamedTuple

import numpy as np

from batchlens._arrays import FloatArray


class Noise(NamedTuple):
    """tr C and |G|^2 with the covariance matrix of their errors."""

    variance: float
    squared_gradient: float
    errors: FloatArray  # (2, 2)


def noise_of(squared_distances: FloatArray, slopes: FloatArray, more: float = 0.0) -> Noise:
    """From c_n and d_n; `more` is the variance of tr C's error that is not of the sample.

    >>> noise_of(np.array([1.0, 1.0, 4.0]), np.array([3.0, 3.0, 6.0]))[:2]
    (3.0, 3.0)
    """
    examples = len(squared_distances)
    variance = float(squared_distances.mean()) * examples / (examples - 1)
    errors = np.cov(np.stack([squared_distances, 2 * slopes])) / examples
    errors[0, 0] += more
    return Noise(variance, float(slopes.mean()) - variance / examples, errors)
