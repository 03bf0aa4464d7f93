"""`python -m batchlens.theory.kernels` compiles every kernel, so that the machine code is on disk."""

import numpy as np

from batchlens.theory.kernels.hitting import first_hit
from batchlens.theory.kernels.maps import sum_risk, sum_risk_path, sum_steady_state


def warm_up() -> None:
    """Call every kernel that the library calls, with arguments of the types it uses."""
    one = np.ones(1)
    none = np.zeros(1)
    steps = np.ones(1, np.int64)
    sum_risk(one, none, one, one, 0.5, False, 0.5, steps)
    rule = (one, np.zeros(1, np.bool_), one)
    sum_risk_path(one[None], none[None], one[None], one, one, *rule, one, steps)
    sum_steady_state(one, none, one, one, 0.5, False, 0.5)
    first_hit(one, none, one, one, 0.5, False, 0.5, 1.0, 1, 1)


warm_up()
