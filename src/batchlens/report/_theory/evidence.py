"""The numbers of a study, handed to the claims."""

from collections.abc import Iterator

import numpy as np

from batchlens.report._page.records import Claim, Verdict
from batchlens.report._theory.claims import averaging, momentum, preconditioning, rates, regimes, schedules
from batchlens.report._theory.claims.thresholds import LATER
from batchlens.report._theory.figures.coordinates import first_term_data
from batchlens.report._theory.figures.rates import final_rate_data
from batchlens.report._theory.study import Study, power_law_problem
from batchlens.theory._kernels.update import rate_limit
from batchlens.theory.bounds import lower_bound_steps
from batchlens.theory.dynamics import convergence_rate, steady_state_risk
from batchlens.theory.problem import NoisyQuadratic
from batchlens.theory.rule import UpdateRule
from batchlens.theory.schedules import best_schedule

_FEW_STEPS = 50
_VARIANCES = (0.1, 1.0, 10.0)


def check_claims(study: Study) -> Iterator[Claim]:
    """Every statement of the paper about the model, checked on a study, one by one."""
    powers = study.powers
    plain = {power: study.curve("sgd", power) for power in powers}
    tuned = {power: study.curve("momentum", power) for power in powers}
    moderate = {power: study.curve("momentum", power, momentum=0.9) for power in powers}
    averaged = {power: study.curve("sgd+ema", power) for power in powers}
    first = powers[0]
    smallest = {power: float(study.problem.curvature.min()) ** (1 - power) for power in powers}

    yield regimes.check_two_regimes([*plain.values(), *tuned.values(), *averaged.values()])
    yield momentum.check_momentum_at_small_batches(plain[first], moderate[first], tuned[first])
    yield momentum.check_momentum_raises_critical(plain, tuned)
    yield momentum.check_momentum_benefit_shrinks(plain, tuned)
    yield momentum.check_momentum_bound(tuned, smallest)
    yield preconditioning.check_preconditioning_raises_critical(plain, tuned)
    yield preconditioning.check_preconditioning_at_small_batches(plain)
    yield preconditioning.check_combination(plain, tuned)
    yield preconditioning.check_steady_state_grows(
        {power: _half_rate_risk(study.problem, power) for power in (*powers, 1.0)}
    )
    yield averaging.check_averaging_at_small_batches(plain, averaged)
    yield averaging.check_averaging_at_large_batches(plain, averaged)
    yield averaging.check_averaging_lowers_critical(plain, averaged)
    yield _averaging_rate(study)
    yield rates.check_linear_then_flat(plain)
    yield rates.check_rate_falls_with_power(plain)
    yield rates.check_effective_rates(plain, moderate, tuned)
    yield _effective_motion()
    yield from _schedules(study)
    yield regimes.check_harder_targets({target: study.curve("sgd", first, target) for target in study.targets})
    above = [variance for variance in _VARIANCES if variance * study.problem.initial_risk > study.target]
    if len(above) > 1:
        yield regimes.check_initial_variance({variance: _critical_from(study, variance) for variance in above})
    if "dim" in study.parameters:
        yield regimes.check_dimensions(_verdicts_by_dimension(study))


def _half_rate_risk(problem: NoisyQuadratic, power: float) -> float:
    """Steady-state risk of SGD at half of the largest stable learning rate, batch size 1."""
    rule = UpdateRule(float(problem.curvature.max()) ** (power - 1.0), power=power)
    return steady_state_risk(problem, rule, 1)


def _averaging_rate(study: Study) -> Claim:
    """With the learning rate that tuned SGD has in the middle of the batch sizes."""
    middle = len(study.batch_sizes) // 2
    rate = study.curve("sgd", study.powers[0]).settings[middle]["learning_rate"]
    slowest = rate * float(study.problem.curvature.min())
    plain = UpdateRule(rate)
    below = UpdateRule(rate, averaging=max(1 - 2 * slowest, 0.0))
    above = UpdateRule(rate, averaging=1 - slowest / 2)
    size = study.batch_sizes[middle]
    reduction = steady_state_risk(study.problem, below, size) / steady_state_risk(study.problem, plain, size)
    slow, same, slower = (convergence_rate(study.problem, rule) for rule in (plain, below, above))
    return averaging.check_averaging_rate(slow, same, slower, reduction)


def _effective_motion() -> Claim:
    data = first_term_data()
    moderate, late = data["gap"] >= 0.1, data["steps"] >= LATER
    apart = (data["momentum"] - data["sgd"]).abs()
    return momentum.check_effective_motion(apart[moderate].max(), apart[moderate & late].max(), apart.max())


def _schedules(study: Study) -> Iterator[Claim]:
    """The claims about optimal schedules."""
    plain = study.curve("sgd", study.powers[0])
    sizes = study.batch_sizes
    bound = lower_bound_steps(study.problem, sizes[0], study.target, "mle")
    yield schedules.check_schedules_at_small_batches(plain.steps[0] or np.nan, study.schedule(sizes[0]).steps, bound)
    stiffest = float(study.problem.curvature.max())
    middle = study.powers[len(study.powers) // 2]
    limit = rate_limit(0.0, nesterov=False) / stiffest ** (1 - middle)
    capped, free = (
        best_schedule(study.problem, sizes[-1], _FEW_STEPS, power=middle, max_learning_rate=cap)
        for cap in (None, 50.0 * limit)
    )
    yield schedules.check_schedules_at_large_batches(
        plain.steps[-1] or np.nan, study.schedule(sizes[-1]).steps, capped.risk, free.risk
    )
    cap = rate_limit(0.0, nesterov=False) / stiffest
    yield schedules.check_schedule_shape({size: study.schedule(size).learning_rates / cap for size in sizes})
    final = final_rate_data(study)
    yield schedules.check_final_rates(list(final["batch_size"]), list(final["final_learning_rate"]))


def _critical_from(study: Study, variance: float) -> float:
    """Critical batch size of tuned momentum when training starts from another variance."""
    problem = study.problem
    other = NoisyQuadratic(problem.curvature, problem.noise, variance * problem.initial, problem.count)
    curve = Study(other, study.target, study.batch_sizes).curve("momentum", study.powers[0])
    return curve.critical_batch_size().value or np.nan


def _verdicts_by_dimension(study: Study) -> dict[int, list[Verdict]]:
    """The main claims with ten times fewer and ten times more coordinates, where that is not yet at the target."""
    dim = study.parameters["dim"]
    shape = {name: study.parameters[name] for name in ("exponent", "bins", "rounding")}
    verdicts = {}
    for other in sorted({max(dim // 10, 10), dim, dim * 10}):
        problem = power_law_problem(other, **shape)
        if problem.initial_risk <= study.target:
            continue
        same = Study(problem, study.target, study.batch_sizes)
        curves = {"plain": same.curve("sgd", 0.0), "tuned": same.curve("momentum", 0.0)}
        verdicts[other] = [
            regimes.check_two_regimes(list(curves.values())).verdict,
            momentum.check_momentum_raises_critical({0.0: curves["plain"]}, {0.0: curves["tuned"]}).verdict,
        ]
    return verdicts
