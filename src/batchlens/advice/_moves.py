"""One line per setting: what it becomes at another batch size, by which rule, and how far that rule can be trusted."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from batchlens._checks import require_number
from batchlens.advice._measured_error import NOT_MEASURED, model_error, model_reach, published_error, reach_of
from batchlens.advice._rules import RateRule, power, saturating
from batchlens.optimizers import OPTIMIZERS, base_of

_ROOTS = ("beta1", "beta2", "epsilon")
_OF_ALL = ("learning_rate", "weight_decay", "averaging", "warmup_steps", "decay_steps", "steps")
_COEFFICIENTS = ("momentum", "averaging", "beta1", "beta2")


@dataclass(frozen=True)
class Moved:
    """A setting at two batch sizes.

    Arguments:
        name: of the setting.
        before: its value at the old batch size.
        after: at the new one, by the rule.
        theory: at the new one, by the theory; None where the theory does not have it.
        rule: its name.
        formula: in terms of kappa, the new batch size over the old.
        valid: where the rule holds.
        error: what was measured of it.
        beyond: what changes where the critical batch size is crossed.
        source: where the rule comes from.
    """

    name: str
    before: float
    after: float
    theory: float | None
    rule: str
    formula: str
    valid: str
    error: str
    beyond: str
    source: str

    def as_document(self) -> dict[str, Any]:
        """With the names that JSON has."""
        values = {"name": self.name, "from": self.before, "to": self.after}
        rest = ("theory", "rule", "formula", "valid", "error", "beyond", "source")
        return values | {name: getattr(self, name) for name in rest}


def known_settings(optimizer: str) -> tuple[str, ...]:
    """What can be carried for an optimizer."""
    entry = OPTIMIZERS[base_of(optimizer)]
    names = list(_OF_ALL)
    if entry.momentum == "adds" or entry.name == "muon":
        names.insert(1, "momentum")
    if divides_by_root(optimizer):
        names[1:1] = [name for name in _ROOTS if name != "beta1" or entry.momentum == "averages"]
    return tuple(names)


def divides_by_root(optimizer: str) -> bool:
    """Whether an optimizer divides by the root of second moments, as Adam does, or normalises its steps otherwise."""
    return OPTIMIZERS[base_of(optimizer)].power == 0.5


def check_settings(optimizer: str, settings: Mapping[str, float]) -> dict[str, float]:
    """The settings, each in its range."""
    if not isinstance(settings, Mapping):
        raise TypeError(f"`settings` must be a dictionary such as {{'learning_rate': 0.1}}, got {settings!r}.")
    if not settings:
        raise ValueError("`settings` must give at least one setting, such as learning_rate, got none.")
    known = known_settings(optimizer)
    for name in settings:
        if name not in known:
            raise ValueError(f"`settings` of {optimizer} must be among {', '.join(known)}, got {name}.")
    return {name: _check(name, settings[name]) for name in known if name in settings}


def _check(name: str, value: object) -> float:
    if name in _COEFFICIENTS:
        return require_number(name, value, 0, 1, closed=(True, False))
    return require_number(name, value, low=0)


@dataclass(frozen=True)
class Move:
    """A change of batch size, for an optimizer with its settings.

    Arguments:
        optimizer: its name.
        settings: checked.
        b0: the batch size that is left.
        b1: the one that is wanted.
        critical: None where it is not known.
        rule: of the learning rate.
        cap: the largest learning rate without momentum; None where it is not known.
    """

    optimizer: str
    settings: Mapping[str, float]
    b0: float
    b1: float
    critical: float | None
    rule: RateRule
    cap: float | None

    @property
    def kappa(self) -> float:
        return self.b1 / self.b0

    @property
    def adds(self) -> bool:
        """Whether learning_rate / (1 - momentum) is what counts."""
        return "momentum" in self.settings and OPTIMIZERS[base_of(self.optimizer)].momentum == "adds"

    @property
    def steps_ratio(self) -> float:
        """Steps at the new batch size over steps at the old."""
        return 1 / self.kappa if self.critical is None else 1 / saturating(self.b0, self.b1, self.critical)

    @cached_property
    def rate_factor(self) -> float:
        """Of learning_rate / (1 - momentum), the cap included where a learning rate is given."""
        factor = self.rule.factor(self.b0, self.b1, self.critical or math.nan)
        rate = self.settings.get("learning_rate")
        if self.cap is None or not rate or self.kappa <= 1:
            return factor
        before, after = self._momenta
        most = max(self.cap * (1 + after), rate)
        return min(factor, most / rate * (1 - before) / (1 - after))

    @property
    def _momenta(self) -> tuple[float, float]:
        before = self.settings["momentum"] if self.adds else 0.0
        return before, power(before, self.kappa)

    def learning_rate(self, factor: float, momentum: float | None = None) -> float:
        """The new one, for a factor of learning_rate / (1 - momentum) and a momentum, that of the rule unless given."""
        before, after = self._momenta
        after = after if momentum is None or not self.adds else momentum
        return self.settings["learning_rate"] * factor * (1 - after) / (1 - before)

    def settle(self, name: str, theory: float | None) -> Moved:
        """A setting at the new batch size."""
        value = self.settings[name]
        match name:
            case "learning_rate":
                return Moved(name, value, self.learning_rate(self.rate_factor), theory, *self._rate_words())
            case "momentum" | "beta1" | "beta2" | "averaging":
                return Moved(name, value, power(value, self.kappa), theory, *self._coefficient_words(name))
            case "epsilon":
                return Moved(name, value, value / self._root_factor, theory, *self._epsilon_words())
            case "weight_decay":
                factor = self.kappa / self.rate_factor
                return Moved(name, value, value * factor, theory, *self._decay_words())
            case "warmup_steps":
                return Moved(name, value, value / self.kappa, theory, *self._warmup_words(value))
        return Moved(name, value, value * self.steps_ratio, theory, *self._steps_words())

    @property
    def _root_factor(self) -> float:
        """By which the root of second moments falls."""
        return math.sqrt(self.kappa if self.critical is None else saturating(self.b0, self.b1, self.critical))

    def _rate_words(self) -> tuple[str, str, str, str, str, str]:
        rule, formula = self.rule, self.rule.formula
        if self.adds:
            formula = f"eta / (1 - momentum) times {formula.removeprefix('eta ')}"
        if self.cap is not None and rule.name == "saturating":
            formula += f", at most 1.5 / h_max = {self.cap:.4g}"
        name = base_of(self.optimizer)
        if divides_by_root(self.optimizer):
            valid = f"gradients dominated by noise, {'below B_crit' if self.critical is None else 'any B'}"
            error = published_error(rule.name) if name in ("adam", "adamw") else NOT_MEASURED
        else:
            reach = reach_of(self.measured_rule)
            valid = "not known" if reach is None else f"up to B_crit / {1 / reach:g}, with warm-up"
            error = self._model_error(self.measured_rule)
        return rule.name, formula, valid, error, self._rate_beyond(), rule.source

    @property
    def measured_rule(self) -> str:
        """Under which name the rule of the learning rate was measured on the model, if it was."""
        if self.adds and (self.rule.name == "saturating" or self.critical is None):
            return "momentum: power"
        uncapped = self.rule.name == "saturating" and self.cap is None
        return f"{'momentum' if self.adds else 'sgd'}: {self.rule.name}{', uncapped' * uncapped}"

    def _model_error(self, rule: str) -> str:
        if base_of(self.optimizer) not in ("sgd", "momentum", "nesterov"):
            return NOT_MEASURED
        if self.critical is None:
            return model_reach(rule)
        return model_error(rule, self.b0, self.b1, self.critical)

    def _rate_beyond(self) -> str:
        if self.critical is None:
            return "unknown without B_crit: the rule ends there"
        if not self.rule.needs_critical:
            return "the rule goes on growing: too large beyond B_crit"
        most = self.settings["learning_rate"] * self.rule.factor(self.b0, math.inf, self.critical)
        if self.adds:
            return f"eta / (1 - momentum) tends to {most / (1 - self.settings['momentum']):.4g}"
        if self.rule.name == "square_root_capped":
            return f"stays at {most:.4g} from B_crit on"
        return f"tends to {most:.4g}"

    def _coefficient_words(self, name: str) -> tuple[str, str, str, str, str, str]:
        rule, formula, beyond = "power", f"{name}^kappa: half-life in examples kept", "nothing: it counts examples"
        match name:
            case "momentum":
                beyond = "momentum pays beyond B_crit: take the theory's"
                error = self._model_error(self.measured_rule) if self.adds else NOT_MEASURED
                return rule, formula, "up to B_crit / 16", error, beyond, "first order: Malladi 2022; batchlens"
            case "averaging":
                valid = "learning rate by its own rule"
                error = self._model_error("averaging: power") if self.critical else NOT_MEASURED
                return rule, formula, valid, error, beyond, "Busbridge 2023, arXiv:2307.13813"
            case "beta1":
                valid = "kappa (1 - beta1) < 1; some recipes keep it (marin: 0.9062 at all B)"
                return rule, formula, valid, NOT_MEASURED, beyond, "first order: Malladi 2022, arXiv:2205.10287"
        valid = "recipes keep it in [0.95, 0.9999] (marin)"
        error = "0.95 at 512 to 0.9999 at 1: GPT-2 and GPT-3 1.3B match (published)"
        return rule, formula, valid, error, beyond, "Marek 2025, arXiv:2507.07101"

    def _epsilon_words(self) -> tuple[str, str, str, str, str, str]:
        known = self.critical is not None
        formula = "epsilon sqrt((1 + B_crit/B1) / (1 + B_crit/B0))" if known else "epsilon / sqrt(kappa)"
        beyond = "tends to a constant, as second moments do" if known else "unknown without B_crit"
        valid = "keeps its part of the root of second moments"
        return "second_moment", formula, valid, "exact where E[g^2] = G^2 (1 + B_crit/B)", beyond, "arithmetic"

    def _decay_words(self) -> tuple[str, str, str, str, str, str]:
        beyond = "grows with kappa alone: watch that eta lambda stays below 1"
        formula = "lambda kappa eta0/eta1: B / (eta lambda D) kept"
        return (
            "timescale",
            f"{formula}, eta / (1 - momentum) for eta" if self.adds else formula,
            "decoupled decay, same number of examples",
            "at one eta, best lambda linear in B for given N and D, 111M to 3.3B (published)",
            beyond,
            "Wang & Aitchison 2024, arXiv:2405.13698; Bergsma 2025, arXiv:2505.13738",
        )

    def _warmup_words(self, value: float) -> tuple[str, str, str, str, str, str]:
        share = value * self.steps_ratio
        beyond = f"as a part of all steps it would be {share:.4g}" if self.critical else "unknown without B_crit"
        return "examples", "steps / kappa", "below B_crit", NOT_MEASURED, beyond, "marin#1565"

    def _steps_words(self) -> tuple[str, str, str, str, str, str]:
        if self.critical is None:
            return "examples", "steps / kappa", "below B_crit", NOT_MEASURED, "more examples are needed", "definition"
        error = (
            "4 to 7% (rms) on 45 published points of language models; up to 25% off on the paper's problem, at B_crit"
        )
        formula = "steps (1 + B_crit/B1) / (1 + B_crit/B0)"
        beyond = "no fewer than steps / (1 + B_crit/B0)"
        return "hyperbola", formula, "settings tuned at both", error, beyond, "McCandlish 2018; Zhang 2024"
