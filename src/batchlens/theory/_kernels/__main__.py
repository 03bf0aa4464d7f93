"""`python -m batchlens.theory._kernels` compiles every kernel, so that the machine code is on disk."""

from batchlens.theory._by_coordinate import risk_by_coordinate
from batchlens.theory.batch_schedules import best_batch_schedule
from batchlens.theory.dynamics import risk, risk_path, steady_state_risk
from batchlens.theory.hitting import steps_to_target
from batchlens.theory.problem import NoisyQuadratic
from batchlens.theory.rule import UpdateRule
from batchlens.theory.schedules import best_schedule
from batchlens.theory.tuning import tune


def warm_up() -> None:
    """Use the library in every way that calls a kernel of its own."""
    problem = NoisyQuadratic.power_law(dim=2)
    rule = UpdateRule(learning_rate=0.5)
    risk(problem, rule, batch_size=1, steps=[1])
    risk_by_coordinate(problem, rule, batch_size=1, steps=[1])
    risk_path(problem, rule, batch_size=1, lengths=[1])
    steady_state_risk(problem, rule, batch_size=1)
    steps_to_target(problem, rule, batch_size=1, target=1.0)
    tune(problem, "sgd", batch_size=100, target=0.5)
    following = NoisyQuadratic([1.0], [0.0], [1.0], noise_growth=[1.0])
    risk(following, rule, batch_size=10, steps=[1])
    steps_to_target(following, rule, batch_size=10, target=0.1)
    for momentum in (0.0, 0.5):
        best_schedule(problem, batch_size=1, steps=2, momentum=momentum)
        best_batch_schedule(problem, UpdateRule(0.1, momentum), steps=2, examples=4)


if __name__ == "__main__":
    warm_up()
