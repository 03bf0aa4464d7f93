"""Update rules: any mix of learning rate, momentum, averaging and preconditioning.

Every mix is one linear map on the state (theta, m, average) of a coordinate plus a noise vector.  `_kernels.update`
says what a step is, `_kernels.maps.one_step` has the numbers of its map; all else (any number of steps, steady state,
hitting times) follows from them.
"""

from dataclasses import dataclass

import numpy as np

from batchlens._arrays import FloatArray
from batchlens._checks import require_flag, require_number
from batchlens.optimizers import averaged
from batchlens.theory._coordinates import preconditioned

# A rate beyond this diverges in its first step whatever its value; capped so that no infinity enters a kernel.
_LARGEST_RATE = 1e200


@dataclass(frozen=True)
class UpdateRule:
    """How training moves: SGD with momentum, averaging of the iterates and preconditioning, in any mix.

    One step, with g the gradient over a batch (section 3 of the paper; momentum as in torch.optim.SGD):

        m       <- momentum * m + h^-power * g
        theta   <- theta - learning_rate * m        (nesterov: h^-power * g + momentum * m in place of m)
        average <- averaging * average + (1 - averaging) * theta

    Arguments:
        learning_rate: at least 0.
        momentum: in [0, 1).
        nesterov: look ahead, as in torch.optim.SGD.
        averaging: coefficient of the exponential moving average, in [0, 1); its risk is what counts.
        power: the gradient is preconditioned by H^-power, in [0, 1].

    >>> UpdateRule(learning_rate=0.1, momentum=0.9)
    UpdateRule(learning_rate=0.1, momentum=0.9, nesterov=False, averaging=0.0, power=0.0)
    >>> UpdateRule(learning_rate=0.1, momentum=1.2)
    Traceback (most recent call last):
    ...
    ValueError: `momentum` must be in [0, 1), got 1.2.
    """

    learning_rate: float
    momentum: float = 0.0
    nesterov: bool = False
    averaging: float = 0.0
    power: float = 0.0

    def __post_init__(self) -> None:
        half_open = (True, False)
        checked = {
            "learning_rate": require_number("learning_rate", self.learning_rate, low=0),
            "momentum": require_number("momentum", self.momentum, 0, 1, closed=half_open),
            "nesterov": require_flag("nesterov", self.nesterov),
            "averaging": require_number("averaging", self.averaging, 0, 1, closed=half_open),
            "power": require_number("power", self.power, 0, 1),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def family(self) -> str:
        """What the rule is called in curves and JSON: sgd, momentum or nesterov, with +ema where it averages.

        >>> UpdateRule(learning_rate=0.1, momentum=0.9, averaging=0.99).family
        'momentum+ema'
        """
        name = "sgd" if self.momentum == 0 else "nesterov" if self.nesterov else "momentum"
        return averaged(name) if self.averaging else name

    def rates(self, curvature: FloatArray) -> tuple[FloatArray, FloatArray]:
        """learning_rate * h^(1 - power) as a double and what rounding took from it.

        Over 10^9 oscillating steps the rounding of this product would turn the phase by about 1e-7.  Where long
        doubles are no longer than doubles the second part is 0.
        """
        exact = np.longdouble(self.learning_rate) * preconditioned(curvature, self.power)
        exact = np.minimum(exact, np.longdouble(_LARGEST_RATE))
        rates = exact.astype(np.float64)
        return rates, (exact - rates).astype(np.float64)
