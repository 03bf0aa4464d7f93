"""The numbers of a study, handed to the claims."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from batchlens.report._page.records import Claim, Verdict
from batchlens.report._theory.claims import averaging, momentum, preconditioning, rates, regimes, schedules
from batchlens.report._theory.claims.judging import Curves
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


@dataclass(frozen=True)
class _Curves:
    """The curves of a study that several claims look at, by power; the study computes each of them once."""

    study: Study

    @property
    def plain(self) -> Curves:
        return self._tuned("sgd")

    @property
    def moderate(self) -> Curves:
        return self._tuned("momentum", momentum=0.9)

    @property
    def tuned(self) -> Curves:
        return self._tuned("momentum")

    @property
    def averaged(self) -> Curves:
        return self._tuned("sgd+ema")

    def _tuned(self, family: str, momentum: float | None = None) -> Curves:
        return {power: self.study.curve(family, power, momentum=momentum) for power in self.study.powers}


def plan_checks(study: Study) -> list[Callable[[], Claim]]:
    """Every statement of the paper about the model, as functions that check them on a study."""
    curves, problem, powers = _Curves(study), study.problem, study.powers
    first = powers[0]
    smallest = {power: float(problem.curvature.min()) ** (1 - power) for power in powers}
    checks: list[Callable[[], Claim]] = [
        lambda: regimes.check_two_regimes([*curves.plain.values(), *curves.tuned.values(), *curves.averaged.values()]),
        lambda: momentum.check_momentum_at_small_batches(
            curves.plain[first], curves.moderate[first], curves.tuned[first]
        ),
        lambda: momentum.check_momentum_raises_critical(curves.plain, curves.tuned),
        lambda: momentum.check_momentum_benefit_shrinks(curves.plain, curves.tuned),
        lambda: momentum.check_momentum_bound(curves.tuned, smallest),
        lambda: preconditioning.check_preconditioning_raises_critical(curves.plain, curves.tuned),
        lambda: preconditioning.check_preconditioning_at_small_batches(curves.plain),
        lambda: preconditioning.check_combination(curves.plain, curves.tuned),
        lambda: preconditioning.check_steady_state_grows(
            {power: _half_rate_risk(problem, power) for power in (*powers, 1.0)}
        ),
        lambda: averaging.check_averaging_at_small_batches(curves.plain, curves.averaged),
        lambda: averaging.check_averaging_at_large_batches(curves.plain, curves.averaged),
        lambda: averaging.check_averaging_lowers_critical(curves.plain, curves.averaged),
        lambda: _averaging_rate(study),
        lambda: rates.check_linear_then_flat(curves.plain),
        lambda: rates.check_rate_falls_with_power(curves.plain),
        lambda: rates.check_effective_rates(curves.plain, curves.moderate, curves.tuned),
        _effective_motion,
        lambda: _schedules_at_small_batches(study),
        lambda: _schedules_at_large_batches(study),
        lambda: _schedule_shape(study),
        lambda: _final_rates(study),
        lambda: _batch_ramps(study),
        lambda: regimes.check_harder_targets({target: study.curve("sgd", first, target) for target in study.targets}),
    ]
    above = [variance for variance in _VARIANCES if variance * problem.initial_risk > study.target]
    if len(above) > 1:
        checks.append(
            lambda: regimes.check_initial_variance({variance: _critical_from(study, variance) for variance in above})
        )
    if "dim" in study.parameters:
        checks.append(lambda: regimes.check_dimensions(_verdicts_by_dimension(study)))
    return checks


def check_claims(study: Study) -> Iterator[Claim]:
    """Every statement of the paper about the model, checked on a study, one by one."""
    return (check() for check in plan_checks(study))


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


def _schedules_at_small_batches(study: Study) -> Claim:
    constant, size = study.curve("sgd", study.powers[0]).steps[0], study.batch_sizes[0]
    bound = lower_bound_steps(study.problem, size, study.target, "mle")
    return schedules.check_schedules_at_small_batches(constant or np.nan, study.schedule(size).steps, bound)


def _schedules_at_large_batches(study: Study) -> Claim:
    constant, size = study.curve("sgd", study.powers[0]).steps[-1], study.batch_sizes[-1]
    power = study.powers[len(study.powers) // 2]
    limit = rate_limit(0.0, nesterov=False) / float(study.problem.curvature.max()) ** (1 - power)
    capped, free = (
        best_schedule(study.problem, size, _FEW_STEPS, power=power, max_learning_rate=cap)
        for cap in (None, 50.0 * limit)
    )
    scheduled = study.schedule(size).steps
    return schedules.check_schedules_at_large_batches(constant or np.nan, scheduled, capped.risk, free.risk)


def _schedule_shape(study: Study) -> Claim:
    cap = rate_limit(0.0, nesterov=False) / float(study.problem.curvature.max())
    return schedules.check_schedule_shape(
        {size: study.schedule(size).learning_rates / cap for size in study.batch_sizes}
    )


def _final_rates(study: Study) -> Claim:
    final = final_rate_data(study)
    return schedules.check_final_rates(list(final["batch_size"]), list(final["final_learning_rate"]))


def _batch_ramps(study: Study) -> Claim:
    sizes = study.batch_sizes[0], study.batch_sizes[-1]
    small, large = (1 - study.batch_schedule(size).steps / study.schedule(size).steps for size in sizes)
    return schedules.check_batch_ramps(small, large)


def _critical_from(study: Study, variance: float) -> float:
    """Critical batch size of tuned momentum when training starts from another variance."""
    problem = study.problem
    other = NoisyQuadratic(problem.curvature, problem.noise, variance * problem.initial, problem.count)
    curve = Study(other, study.target, study.batch_sizes).curve("momentum", study.powers[0])
    return curve.critical_batch_size().value or np.nan


def _verdicts_by_dimension(study: Study) -> dict[int, list[Verdict]]:
    """The main claims with ten times fewer and more coordinates, where training does not start at the target."""
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
