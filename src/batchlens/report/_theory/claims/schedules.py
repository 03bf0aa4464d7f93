"""What the paper says about optimal schedules."""

from collections.abc import Mapping, Sequence

import numpy as np

from batchlens._arrays import FloatArray
from batchlens.report._page.records import Claim
from batchlens.report._theory.claims.judging import judge
from batchlens.report._theory.claims.thresholds import (
    CLOSE,
    DECAYED,
    ENOUGH_PIECES,
    FULL,
    LINEAR,
    NEAR_BOUND,
    NO_BENEFIT,
    NOTHING,
    STRAIGHT,
)


def check_schedules_at_small_batches(constant: float, scheduled: float, bound: float) -> Claim:
    """Decay closes most of the gap to the bound."""
    return Claim(
        "schedules_small_batches",
        "At small batches an optimal schedule saves many steps and comes near the information-theoretic bound.",
        "section 3.7.2, figure 3b",
        "Steps at the smallest batch size, power 0: best constant rate over optimal schedule, and that over the "
        "maximum-likelihood bound.",
        f"{constant / scheduled:.3g} times fewer; {scheduled / bound:.3g} times the bound",
        f"above {1 / (1 - NO_BENEFIT):.2f}; at most {NEAR_BOUND}",
        *judge(
            constant * (1 - NO_BENEFIT) > scheduled and bound <= scheduled <= NEAR_BOUND * bound,
            scheduled < constant,
            "Fewer steps than that bound, which ignores where training starts."
            if scheduled < bound
            else "Schedules save steps, but few, or stay far from the bound.",
        ),
    )


def check_schedules_at_large_batches(constant: float, scheduled: float, capped: float, free: float) -> Claim:
    """True under the paper's cap on every piece; `capped` and `free` are risks after 50 steps, with and without it."""
    saved = 1 - scheduled / constant
    artefact = capped > (1 + CLOSE) * free
    return Claim(
        "schedules_large_batches",
        "Schedules do not help at large batches.",
        "section 3.7.2, figure 3b",
        "Share of steps saved at the largest batch size, power 0, under the cap 2 / h_1; and the risk after 50 steps "
        "of one piece each at power 0.5, with that cap over a cap 50 times as high.",
        f"{saved:.1%} saved; risk {capped / free:.3g} times as high with the cap",
        f"at most {NOTHING:.0%}; at most {1 + CLOSE:g} times",
        *judge(
            saved <= NOTHING and not artefact,
            saved <= NOTHING,
            "True under the paper's cap only: short pieces beyond 2 / h_1 act like Chebyshev steps and help most "
            "exactly there.",
        ),
    )


def check_schedule_shape(shares: Mapping[int, FloatArray]) -> Claim:
    """Learning rates as shares of the cap, by batch size: full at first, then a straight line in the logarithm."""
    starts = [float(rates[0]) for rates in shares.values()]
    straight = [_straightness(rates) for rates in shares.values()]
    known = [value for value in straight if value is not None]
    full = all(start >= FULL for start in starts)
    return Claim(
        "schedule_shape",
        "Optimal schedules start at the largest stable learning rate and then decay about exponentially.",
        "section 3.7.2, figure 3c",
        "First learning rate over the largest stable one, the least over the batch sizes; and R^2 of a straight line "
        "through the logarithm of the decaying part, the median over the batch sizes that decay.",
        f"{min(starts):.2f}; {np.median(known):.2f}" if known else f"{min(starts):.2f}; no decay",
        f"at least {FULL}; at least {STRAIGHT}",
        *judge(
            full and bool(known) and float(np.median(known)) >= STRAIGHT,
            max(starts) >= FULL,
            "Not at every batch size, or not along a straight line.",
        ),
    )


def check_final_rates(batch_sizes: Sequence[float], rates: Sequence[float]) -> Claim:
    """Where training ends is set by the noise."""
    half = max(2, len(rates) // 2)
    some = [(size, rate) for size, rate in zip(batch_sizes[:half], rates[:half], strict=True) if rate > 0]
    x, y = np.log(np.array(some).reshape(-1, 2)).T
    slope = float(np.polyfit(x, y, 1)[0]) if len(some) > 1 else 0.0
    return Claim(
        "final_rate_linear",
        "The final learning rate of the optimal schedule is linear in the batch size.",
        "section 3.7.2, appendix E",
        "Log-log slope over the smaller half of the batch sizes.",
        f"{slope:.3f}",
        f"{LINEAR[0]} to {LINEAR[1]}",
        *judge(LINEAR[0] <= slope <= LINEAR[1]),
    )


def check_batch_ramps(small: float, large: float) -> Claim:
    """Shares of the steps that growing batches save at equal examples, at the smallest and the largest batch size."""
    return Claim(
        "batch_ramps",
        "At equal examples a batch that grows saves steps where the learning rate would decay, and none at large "
        "batches.",
        "beyond the paper",
        "Share of the steps of the optimal schedule of one batch size that batch sizes optimised along save, at the "
        "examples of the smallest and of the largest batch size, power 0.",
        f"{small:.1%} at the smallest; {large:.1%} at the largest",
        f"above {NO_BENEFIT:.0%}; at most {NOTHING:.0%}",
        *judge(
            small > NO_BENEFIT and large <= NOTHING, small > large, "Little at the smallest, or some at the largest."
        ),
    )


def _straightness(shares: FloatArray) -> float | None:
    """R^2 of a line through log learning rate over time, where it has left the cap; None where too little has."""
    decaying = np.flatnonzero((shares < DECAYED) & (shares > 0))
    if decaying.size < ENOUGH_PIECES:
        return None
    log_rates = np.log(shares[decaying])
    if np.ptp(log_rates) == 0:
        return None
    fit = np.polyval(np.polyfit(decaying, log_rates, 1), decaying)
    return float(1 - ((log_rates - fit) ** 2).sum() / ((log_rates - log_rates.mean()) ** 2).sum())
