"""Settings that work at one batch size, carried to another: by rules of thumb, and by the theory beside them."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchlens._checks import require_choice, require_instance, require_number
from batchlens._results import Result, axes_or_new, short
from batchlens.advice._carrying import rate_cap
from batchlens.advice._measured_error import reach_of
from batchlens.advice._moves import Move, Moved, check_settings, divides_by_root, known_settings
from batchlens.advice._rules import RATE_RULES, default_rule
from batchlens.advice._theory_answer import PAPER_TARGET, PARTED, Question, TheoryAnswer, paper_problem
from batchlens.optimizers import OPTIMIZERS, averaged, base_of, in_theory
from batchlens.theory.problem import NoisyQuadratic
from batchlens.theory.reading import read_problem

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

# The target on a measured spectrum, as a part of its initial risk.
_TARGET_PART = 0.01
# Of optimizers whose momentum or beta1 is not given.
_USUAL_MOMENTUM = 0.9
# Where published recipes keep beta2.
_BETA2 = 0.95, 0.9999


@dataclass(frozen=True, repr=False)
class Transfer(Result):
    """Settings at another batch size, each with its rule, and what the theory says.

    Arguments:
        optimizer: its name.
        from_batch: the batch size that is left.
        to_batch: the one that is wanted.
        critical_batch_size: that the rules go by; None where it is not known.
        rule: of the learning rate.
        settings: one entry per setting.
        steps_ratio: steps at the new batch size over steps at the old.
        theory: tuned at both batch sizes; None where the target is beyond reach.
        measured: whether the theory's spectrum was measured; else it is the paper's.
        warnings: what to look out for, in sentences.
        ways: how to get to the new batch size.

    >>> moved = transfer({"learning_rate": 3e-4, "beta2": 0.99}, "adamw", 256, 1024, critical_batch_size=1000)
    >>> moved
    <Transfer: adamw from 256 to 1,024: learning_rate 0.0003 -> 0.0005929, beta2 0.99 -> 0.9606; 0.4029 times the steps>
    >>> round(moved["beta2"], 4)
    0.9606
    """

    optimizer: str
    from_batch: float
    to_batch: float
    critical_batch_size: float | None
    rule: str
    settings: tuple[Moved, ...]
    steps_ratio: float
    theory: TheoryAnswer | None
    measured: bool
    warnings: tuple[str, ...]
    ways: tuple[str, ...]

    def __getitem__(self, name: str) -> float:
        """The new value of a setting."""
        return {moved.name: moved.after for moved in self.settings}[name]

    @property
    def headline(self) -> str:
        """Every setting, before and after."""
        moves = ", ".join(f"{moved.name} {_plain(moved.before)} -> {_plain(moved.after)}" for moved in self.settings)
        sizes = f"from {short(self.from_batch):,} to {short(self.to_batch):,}"
        return f"{self.optimizer} {sizes}: {moves}; {self.steps_ratio:.4g} times the steps"

    def to_frame(self) -> "pandas.DataFrame":
        """One row per setting."""
        import pandas

        return pandas.DataFrame([moved.as_document() for moved in self.settings])

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """The learning rate on the way from one batch size to the other: by the rule, by others and by the theory."""
        from batchlens.advice._plots import draw_transfer

        return draw_transfer(axes_or_new(ax), self)

    def as_document(self) -> dict[str, Any]:
        """What `batchlens transfer --json` prints."""
        theory = self.theory
        return {
            "optimizer": self.optimizer,
            "from": short(self.from_batch),
            "to": short(self.to_batch),
            "critical_batch_size": self.critical_batch_size,
            "settings": [moved.as_document() for moved in self.settings],
            "steps_ratio": self.steps_ratio,
            "warnings": list(self.warnings),
            "ways": list(self.ways),
            "theory": None
            if theory is None
            else {
                "spectrum": "measured" if self.measured else "paper",
                "critical_batch_size": theory.critical_batch_size,
                "rate_factor": theory.rate_factor,
                "steps_ratio": theory.steps_ratio,
                "rule_parts_from": theory.parts_from,
                "rule_loses": theory.lost,
            },
        }


def transfer(
    settings: Mapping[str, float],
    optimizer: str,
    from_batch: float,
    to_batch: float,
    critical_batch_size: float | None = None,
    measurement: "NoisyQuadratic | Path | str | None" = None,
    rule: str | None = None,
) -> Transfer:
    """What do settings that work at one batch size become at another?

    Coefficients (momentum, betas, averaging) keep their half-life in examples; the learning rate saturates at the
    critical batch size B_crit: as 1 / (1 + B_crit / B) for SGD, as the root of min(B, B_crit) for Adam.  The theory's
    own answer, tuned at both batch sizes, stands beside the rules.

    Arguments:
        settings: what works now: learning_rate, and any of momentum, beta1, beta2, epsilon, weight_decay, averaging,
            warmup_steps, decay_steps and steps that the optimizer has.
        optimizer: a name such as "adamw" or "momentum+ema".
        from_batch: the batch size that they work at.
        to_batch: the one that is wanted.
        critical_batch_size: B_crit of steps = S_min (1 + B_crit / B), as `fit` finds it; for momentum and nesterov that
            of plain SGD. None: by the measurement, or not known, and then the rules do not saturate.
        measurement: a file of `batchlens measure`, or a `NoisyQuadratic` with the spectrum measured; None: the paper's.
        rule: of the learning rate, "linear", "saturating", "square_root", "square_root_saturating" or
            "square_root_capped"; None: the saturating one for SGD, the capped root for Adam, linear and square root
            where B_crit is not known.

    >>> moved = transfer({"learning_rate": 0.1}, "sgd", 64, 256, critical_batch_size=4096)
    >>> round(moved["learning_rate"], 4)
    0.3824
    """
    require_choice("optimizer", base_of(require_instance("optimizer", optimizer, str)), list(OPTIMIZERS))
    checked = check_settings(optimizer, settings)
    b0, b1 = (
        require_number(name, size, low=0, high=2.0**62, closed=(False, True))
        for name, size in (("from_batch", from_batch), ("to_batch", to_batch))
    )
    if critical_batch_size is not None:
        critical_batch_size = require_number("critical_batch_size", critical_batch_size, low=0, closed=(False, True))
    problem = read_problem(measurement) if isinstance(measurement, str | Path) else measurement
    if problem is not None:
        require_instance("measurement", problem, NoisyQuadratic)
    question = _question(optimizer, checked, b0, b1, critical_batch_size, problem)
    critical = question.critical_batch_size if problem is not None else critical_batch_size
    chosen = default_rule(divides_by_root(optimizer), critical)
    if rule is not None:
        chosen = RATE_RULES[require_choice("rule", rule, list(RATE_RULES))]
    if chosen.needs_critical and critical is None:
        raise ValueError(
            f"`critical_batch_size` must be given for the rule {chosen.name}, got none. "
            "`batchlens fit` finds it from runs at several batch sizes."
        )
    plain = OPTIMIZERS[base_of(optimizer)].power == 0.0
    cap = rate_cap(problem) if problem is not None and plain and chosen.name == "saturating" else None
    move = Move(optimizer, checked, b0, b1, critical, chosen, cap)
    theory = question.answer(chosen, rate_cap(question.problem) if plain and chosen.name == "saturating" else None)
    return Transfer(
        optimizer=optimizer,
        from_batch=b0,
        to_batch=b1,
        critical_batch_size=critical,
        rule=chosen.name,
        settings=tuple(move.settle(name, _by_theory(move, name, theory)) for name in checked),
        steps_ratio=move.steps_ratio,
        theory=theory,
        measured=problem is not None,
        warnings=tuple(_warnings(move, theory, measured=problem is not None)),
        ways=tuple(_ways(b0, b1)),
    )


def _question(
    optimizer: str,
    settings: Mapping[str, float],
    b0: float,
    b1: float,
    critical: float | None,
    problem: NoisyQuadratic | None,
) -> Question:
    family, power = in_theory(averaged(optimizer) if "averaging" in settings else optimizer)
    spectrum = paper_problem() if problem is None else problem
    target = PAPER_TARGET if problem is None else _TARGET_PART * problem.initial_risk
    name = "momentum" if "momentum" in known_settings(optimizer) else "beta1"
    momentum = settings.get(name, _USUAL_MOMENTUM)
    if family == averaged("nesterov"):  # which the theory does not tune
        family = averaged("momentum")
    return Question(
        spectrum, target, family, power, divides_by_root(optimizer), momentum, name not in settings, b0, b1, critical
    )


def _by_theory(move: Move, name: str, theory: TheoryAnswer | None) -> float | None:
    """What the theory has for a setting."""
    if theory is None:
        return None
    if move.b0 == move.b1:
        return move.settings[name]
    match name:
        case "learning_rate":
            return move.learning_rate(theory.rate_factor, theory.momentum)
        case "momentum":
            return theory.momentum if move.adds else None
        case "averaging":
            return theory.averaging
        case "steps" | "decay_steps":
            return move.settings[name] * theory.steps_ratio
    return None


def _warnings(move: Move, theory: TheoryAnswer | None, measured: bool) -> Iterator[str]:
    """What speaks against the rules here."""
    if move.critical is None:
        yield (
            "The critical batch size is not known: the rules hold below it only. Give --critical-batch-size, which "
            "batchlens fit finds from runs at several batch sizes."
        )
    yield from _reach_warnings(move)
    if theory is not None and theory.parts_from is not None:
        spectrum = "measured" if measured else "paper's"
        arrives = f"{theory.lost:.0%} at {short(move.b1):,}" if math.isfinite(theory.lost) else "does not arrive there"
        advice = "Prefer the theory's column."
        if divides_by_root(move.optimizer):
            advice = "Its preconditioner is a stand-in for second moments; published runs went with the rule."
        yield (
            f"On the {spectrum} spectrum the rules cost over {PARTED:.0%} more steps from batch size "
            f"{short(round(theory.parts_from, 6)):,} on ({arrives}). {advice}"
        )
    after = {name: move.settle(name, None).after for name in move.settings}
    if "beta2" in after and not _BETA2[0] <= after["beta2"] <= _BETA2[1] and move.b0 != move.b1:
        low, high = _BETA2
        end = low if after["beta2"] < low else high
        yield (
            f"A beta2 of {after['beta2']:.4g} is outside of [{low}, {high}], where published recipes keep it: {end} is "
            "the safe choice."
        )
    if after.get("learning_rate", 0.0) * after.get("weight_decay", 0.0) >= 1.0:
        yield "learning_rate times weight_decay is 1 or more: a step would take all of the weights away."


def _reach_warnings(move: Move) -> Iterator[str]:
    """Where SGD's rules are carried farther than they were seen to hold."""
    if move.critical is None or divides_by_root(move.optimizer) or move.b1 <= move.b0:
        return
    setting = "momentum" if move.adds else "learning_rate"
    reach = reach_of(move.measured_rule)
    if setting in move.settings and reach is not None and move.b1 > reach * move.critical:
        yield (
            f"{setting}: the rule holds up to {short(reach * move.critical):,.6g}, {reach:g} of the critical batch "
            f"size, and is carried to {short(move.b1):,}."
        )


def _ways(b0: float, b1: float) -> Iterator[str]:
    """How a machine that fits the smaller batch gets to the larger one."""
    times = math.ceil(b1 / b0)
    part = b1 / times
    if times < 2 or not part.is_integer():
        return
    each = f"{short(part):,}"
    yield f"accumulate the gradients of {times:,} batches of {each}, each divided by {times:,}: the same update"
    yield f"or average those of {times:,} devices, {each} each (DistributedDataParallel does)"
    yield f"batch normalisation still sees {each} at a time in both"


def _plain(value: float) -> str:
    """Four digits, and no powers of ten for steps."""
    return f"{value:,.0f}" if 1000 <= value < 1e15 else f"{value:.4g}"
