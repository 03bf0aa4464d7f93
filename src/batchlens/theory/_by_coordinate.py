"""Which coordinates the risk comes from."""

from batchlens._arrays import FloatArray
from batchlens._checks import require_instance
from batchlens.theory._arguments import require_batch_size, require_constant_noise, require_steps
from batchlens.theory._coordinates import lift, lifts, weights_at
from batchlens.theory._kernels import risks
from batchlens.theory._types import Steps
from batchlens.theory.problem import NoisyQuadratic
from batchlens.theory.rule import UpdateRule


def risk_by_coordinate(
    problem: NoisyQuadratic, rule: UpdateRule, batch_size: float, steps: Steps
) -> tuple[FloatArray, FloatArray]:
    """`risk_terms` before the sum over coordinates: what is left of the start, and noise; a row per step count.

    >>> left, noise = risk_by_coordinate(NoisyQuadratic.power_law(dim=2), UpdateRule(1.0), batch_size=1, steps=[0, 1])
    >>> left.tolist(), noise.tolist()
    ([[0.5, 0.25], [0.0, 0.0625]], [[0.0, 0.0], [0.5, 0.125]])
    """
    require_constant_noise(require_instance("problem", problem, NoisyQuadratic))
    require_instance("rule", rule, UpdateRule)
    batch_size = require_batch_size(batch_size)
    wanted = require_steps(steps)
    rates, tails = rule.rates(problem.curvature)
    lifted = lifts(rates)
    found = risks.risk_by_coordinate(
        lift(rates, lifted),
        lift(tails, lifted),
        *weights_at(problem, batch_size, lifted),
        rule.momentum,
        rule.nesterov,
        rule.averaging,
        wanted.reshape(-1),
    )
    return found[0], found[1]
