"""Types that arguments and answers share."""

from collections.abc import Sequence
from typing import Literal

from batchlens._arrays import IntArray

Steps = int | Sequence[int] | IntArray
Status = Literal["reached", "unstable", "steady_state_above_target", "beyond_max_steps", "undecided"]
Rounding = Literal["mean", "down"]
Bound = Literal["mle", "bayes"]
