"""Tables of networks: critical batch sizes beside the theory's, and what the sweeps cost and saved."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from batchlens.optimizers import averaged, base_of, is_averaged
from batchlens.report._evidence.numbers import Numbers, Place, bound_of_misses, place_of
from batchlens.report._evidence.reading import Evidence
from batchlens.report._page.records import NOT_MEASURED, Verdict
from batchlens.report._sweep.page import curve_words
from batchlens.report._theory.study import Study
from batchlens.scaling._critical import DEFINITIONS, Relation, reached
from batchlens.scaling._hyperbola import fit_curves
from batchlens.scaling._intervals import Interval
from batchlens.scaling.curve import CriticalBatchSize
from batchlens.sweep._curves import MeasuredCell, MeasuredCurve
from batchlens.sweep._trial import Trial
from batchlens.sweep.results import SweepResult

_SIGNS = "†‡¶"
# Where the curve of "fit" misses the steps by so much, in their logarithm, the network's has another shape.
_OTHER_SHAPE, _SHAPE_SIGN = 0.1, "§"
# Any curve fits two points: they bound a critical batch size, and do not measure it.
_LEAST_SIZES = 3
# On which side of a bound something lies, how that is said, and what missed seeds make of a critical batch size.
_SIDES = {">=": 1, "=": 0, "<=": -1, "unknown": 0}
_BOUNDS = {1: "at least ", 0: "", -1: "at most "}
_RELATIONS: dict[str, Relation] = {"at least ": ">=", "at most ": "<="}
# What the theory shows beside each optimizer: a family, and the power nearest to what the optimizer achieves.
IN_THEORY = {
    "sgd": ("sgd", 0.0),
    "momentum": ("momentum", 0.0),
    "adam_no_momentum": ("sgd", 0.5),
    "adam": ("momentum", 0.5),
    "kfac_no_momentum": ("sgd", 0.75),
    "kfac": ("momentum", 0.75),
}
# What the paper says of each on real networks: section 4, figures 5 and 6.
_WORDS = {
    "sgd": "once the batch size exceeds a problem-dependent critical batch size, there are rapidly diminishing returns",
    "momentum": "extends perfect scaling to larger batch sizes than plain SGD",
    "adam": "K-FAC > Adam > momentum SGD",
    "adam_no_momentum": "the benefit of momentum diminishes with preconditioning",
    "kfac_no_momentum": "the benefit of momentum diminishes with preconditioning",
    "kfac": "has the largest critical batch size in all cases",
    "sgd+ema": "EMA leads to smaller critical batch sizes",
}


def critical_rows(study: Study, evidence: Evidence) -> tuple[Sequence[str], list[list[str]]]:
    """Critical batch sizes by "fit", and over SGD's: heads, and a row per optimizer, by its place in theory."""
    measured = with_repeats(evidence)
    optimizers = dict.fromkeys(name for sweep in measured.values() for name in sweep.declaration.optimizers)
    signs = {where: f" {sign}" for where, (sign, _) in _signed(evidence).items()}
    found = {
        (name, optimizer): f"{words}{signs.get((name, optimizer), '')}"
        for name, sweep in measured.items()
        for optimizer, words in _critical_words(sweep).items()
    }
    theory = {name: ratio for name in optimizers if (ratio := theory_ratio(study, name))}
    order = sorted(theory, key=theory.__getitem__)
    rows = [
        [
            optimizer,
            *(found.get((name, optimizer), "") for name in measured),
            f"{order.index(optimizer) + 1} ({times_words(theory[optimizer])})" if optimizer in theory else "",
            _WORDS.get(optimizer, ""),
        ]
        for optimizer in (*order, *(name for name in optimizers if name not in theory))
    ]
    return ("Optimizer", *measured, "Place in theory", "The paper on networks"), rows


def _critical_words(sweep: SweepResult) -> dict[str, str]:
    """ "657 (310 to 1,200), 2.8 times", by optimizer; a bound where seeds that missed their target make it one."""
    place, ratios = DEFINITIONS.index("fit"), measured_ratios(sweep)
    numbers = Numbers(sweep, 0)
    words = {}
    for curve in sweep.measured:
        low = _least(curve)
        own = f"{_missed_words(curve, numbers)}{curve_words(curve)[place]}" if low is None else f"above {low:,.3g}"
        told = ", ".join(filter(None, (own, ratios.get(curve.optimizer, ""))))
        words[curve.optimizer] = f"{told} {_SHAPE_SIGN}" if misfit(curve) >= _OTHER_SHAPE else told
    return words


def _least(curve: MeasuredCurve) -> float | None:
    """Where the interval begins of a critical batch size that lies beyond the sweep's."""
    found, interval = curve.estimates[DEFINITIONS.index("fit")]
    return None if found.relation != ">=" or interval is None else interval.low


def misfit(curve: MeasuredCurve) -> float:
    """By how much the curve of "fit" misses the logarithms of the steps, as a root mean square; 0 for two points."""
    log_batch, log_steps = reached(curve.curve.batch_sizes, curve.curve.steps)
    if len(log_batch) < _LEAST_SIZES:
        return 0.0
    (log_critical,), (log_least,) = fit_curves(log_batch, log_steps[None])
    away = log_steps - log_least - np.logaddexp(0, log_critical - log_batch)
    return math.sqrt(float(away @ away) / (len(away) - 2))


def measured_ratios(sweep: SweepResult) -> dict[str, str]:
    """Of every optimizer but plain SGD, how many times SGD's its critical batch size is, in words."""
    return ratios_to_sgd(measured_critical(sweep))


def measured_critical(sweep: SweepResult) -> dict[str, CriticalBatchSize]:
    """By "fit", by optimizer; a bound where seeds that missed their target make it one."""
    numbers = Numbers(sweep, 0)
    return {curve.optimizer: _with_misses(curve, numbers) for curve in sweep.measured}


def _with_misses(curve: MeasuredCurve, numbers: Numbers) -> CriticalBatchSize:
    found = curve.estimates[DEFINITIONS.index("fit")].critical_batch_size
    missed, low = _missed_words(curve, numbers), _least(curve)
    if low is not None:
        return found._replace(value=low)
    return found._replace(relation=_RELATIONS[missed]) if missed else found


def _missed_words(curve: MeasuredCurve, numbers: Numbers) -> str:
    """ "at most " or "at least " where missed seeds make a bound of what is none by itself."""
    is_value = curve.estimates[DEFINITIONS.index("fit")].critical_batch_size.relation == "="
    return bound_of_misses(numbers, curve.optimizer) if is_value else ""


def ratios_to_sgd(found: Mapping[str, CriticalBatchSize]) -> dict[str, str]:
    """The same of critical batch sizes by optimizer; nothing where that of SGD is not known.

    >>> sgd, kfac = CriticalBatchSize(32.0, "<=", "fit"), CriticalBatchSize(256.0, ">=", "fit")
    >>> ratios_to_sgd({"sgd": sgd, "momentum": kfac._replace(value=100.0, relation="="), "kfac": kfac})
    {'momentum': 'at least 3.1 times', 'kfac': 'at least 8 times'}
    >>> ratios_to_sgd({"sgd": sgd, "sgd+ema": sgd})
    {'sgd+ema': ''}
    """
    base = found.get("sgd")
    return {} if base is None else {name: ratio_words(own, base) for name, own in found.items() if name != "sgd"}


def ratio_words(own: CriticalBatchSize, base: CriticalBatchSize) -> str:
    """How many times the other one; nothing where both are bounds on the same side: then it may be anything."""
    sides = {_SIDES[own.relation], -_SIDES[base.relation]} - {0}
    if own.value is None or base.value is None or len(sides) > 1:
        return ""
    return f"{_BOUNDS[sum(sides)]}{times_words(own.value / base.value)}"


def times_words(ratio: float) -> str:
    """
    >>> times_words(264.2), times_words(0.1317)
    ('260 times', '0.13 times')
    """
    return f"{float(f'{ratio:.2g}'):g} times"


def footnotes(evidence: Evidence) -> list[str]:
    """What the signs in that table mean, a sentence each."""
    shape = (
        f'{_SHAPE_SIGN} the curve of "fit" misses the steps by {_OTHER_SHAPE:.0%} or more (root mean square): the '
        "network's has another shape, and the interval, which is of the seeds only, is too narrow."
    )
    every = (curve for sweep in with_repeats(evidence).values() for curve in sweep.measured)
    marked = any(misfit(curve) >= _OTHER_SHAPE for curve in every)
    notes = [f"{sign} {sweep}, {name}: {note}." for (sweep, name), (sign, note) in _signed(evidence).items()]
    return [shape, *notes] if marked else notes


def _signed(evidence: Evidence) -> dict[tuple[str, str], tuple[str, str]]:
    """By sweep and optimizer, the sign of a footnote and its words."""
    known = (entry for entry in evidence.footnotes if entry["sweep"] in evidence.measured)
    return {
        (entry["sweep"], entry["optimizer"]): (sign, entry["note"]) for sign, entry in zip(_SIGNS, known, strict=False)
    }


def critical_sweeps(evidence: Evidence) -> dict[str, SweepResult]:
    """Every sweep with enough batch sizes, by name; without repeats."""
    measured = evidence.measured
    return {name: sweep for name, sweep in measured.items() if len(sweep.declaration.batch_sizes) >= _LEAST_SIZES}


def with_repeats(evidence: Evidence) -> dict[str, SweepResult]:
    """The same, each followed by the one that repeats it."""
    found = {}
    for name, sweep in critical_sweeps(evidence).items():
        found[name] = sweep
        if name in evidence.repeats:
            found[f"{name}, again"] = evidence.repeats[name]
    return found


def theory_ratio(study: Study, optimizer: str) -> float | None:
    """How many times as large as plain SGD's it is in theory."""
    if base_of(optimizer) not in IN_THEORY:
        return None
    family, power = IN_THEORY[base_of(optimizer)]
    own = _critical(study, averaged(family) if is_averaged(optimizer) else family, power)
    least = _critical(study, "sgd", 0.0)
    return None if own is None or least is None else own / least


def _critical(study: Study, family: str, power: float) -> float | None:
    return study.curve(family, power).critical_batch_size("fit").value


def outside_rows(evidence: Evidence) -> tuple[Sequence[str], list[list[str]]]:
    """The fewest steps of a search, and fresh seeds of what it chose, against published ones; by batch size."""
    outside, found = evidence.document["outside"], _outside_cells(evidence)
    rows = []
    for name, published in outside["published"].items():
        size = int(name)
        told = [""] * 3 if size not in found else _against(found[size], published)
        rows.append([f"{size:,}", f"{published:,}", *told, _outside_state(outside, size, found)])
    heads = ("Batch size", "Published", "Fewest of the search", "Over published", "Fresh seeds, mean (90% interval)")
    return (*heads, "Verdict"), rows


def outside_verdict(evidence: Evidence) -> Verdict:
    """Over the batch sizes that it is judged at, by the rule of claims.toml."""
    outside, found = evidence.document["outside"], _outside_cells(evidence)
    if not found.keys() >= set(outside["batch_sizes"]):
        return NOT_MEASURED
    near = [_is_near(outside, size, found[size]) for size in outside["batch_sizes"]]
    return "holds" if all(near) else "holds with a limit" if any(near) else "fails"


def outside_words(evidence: Evidence) -> str:
    """That verdict in sentences, and what the fewest steps of a search are."""
    outside = evidence.document["outside"]
    return (
        f"{outside_verdict(evidence).capitalize()}: the fewest steps that the search of {outside['sweep']} with "
        f"{outside['optimizer']} took are to be within {outside['within']:.0%} of those that Shallue et al. (2018) "
        f"published of the best of 100 trials; {_outside_count(evidence)}. The fewest steps of a search, here as "
        "there, are those of one lucky run; the mean of fresh seeds with the settings that were chosen says what "
        "these take."
    )


def _outside_count(evidence: Evidence) -> str:
    """ "they are at 1 of 2 batch sizes (2,048 was dropped before any run)"."""
    outside, found = evidence.document["outside"], _outside_cells(evidence)
    sizes = outside["batch_sizes"]
    near = sum(_is_near(outside, size, found[size]) for size in sizes if size in found)
    place = f"they are at {near or 'none'} of" if len(found) == len(sizes) else f"it is complete at {len(found)} of"
    dropped = ", ".join(f"{int(size):,}" for size in outside["published"] if int(size) not in sizes)
    return f"{place} {len(sizes)} batch sizes" + (f" ({dropped} was dropped before any run)" if dropped else "")


def _outside_cells(evidence: Evidence) -> dict[int, MeasuredCell]:
    """The complete cells that are held against published steps, by batch size."""
    outside = evidence.document["outside"]
    sweep = next((sweep.result for sweep in evidence.sweeps if sweep.name == outside["sweep"]), None)
    return {
        cell.batch_size: cell
        for cell in (() if sweep is None else sweep.cells)
        if cell.result.cell.optimizer == outside["optimizer"]
        and cell.batch_size in outside["batch_sizes"]
        and cell.result.complete
    }


def _outside_state(outside: Mapping[str, Any], size: int, found: Mapping[int, MeasuredCell]) -> str:
    if size not in outside["batch_sizes"]:
        return "dropped"
    if size not in found:
        return NOT_MEASURED
    return "holds" if _is_near(outside, size, found[size]) else "fails"


def _is_near(outside: Mapping[str, Any], size: int, cell: MeasuredCell) -> bool:
    reported = cell.result.reported
    return reported is not None and abs(reported.minimum / outside["published"][str(size)] - 1) <= outside["within"]


def _against(cell: MeasuredCell, published: float) -> list[str]:
    reported = cell.result.reported
    if reported is None:
        return ["", "", "missed the target"]
    interval = reported.interval or Interval(None, None)
    return [f"{reported.minimum:,.0f}", f"{reported.minimum / published:.2f}", f"{reported.steps:,.0f} ({interval})"]


def cost_rows(evidence: Evidence) -> tuple[Sequence[str], list[list[str]]]:
    """What every declared sweep cost, and what it saved against the paper's protocol."""
    rows = []
    for sweep in evidence.sweeps:
        result = sweep.result
        rows.append(
            [
                sweep.name + (" (only if time is left)" if sweep.optional else ""),
                sweep.state,
                "" if result is None else f"{result.ended:,}",
                f"{sweep.core_hours:g}",
                "" if result is None else f"{result.seconds / 3600:.2f}",
                "" if result is None else _saved_words(result, _steps_raced(result)),
                _averaging_words(result),
                _verified_words(evidence.verified.get(sweep.name), result),
            ]
        )
    saved = ("Saved by racing, at most", "Saved by averaging in the same runs")
    heads = ("Sweep", "State", "Runs", "Core-hours expected", "Core-hours spent", *saved, "Runs repeated")
    return heads, rows


def _verified_words(found: Mapping[str, Any] | None, result: SweepResult | None) -> str:
    """How repeated runs came out, and how many runs the store has got since."""
    if found is None or result is None:
        return ""
    more = result.ended - found.get("ended", result.ended)
    since = f"before {more:,} more run{'s' * (more > 1)}" if more > 0 else ""
    here, elsewhere = found["like_here"], found["runs"] - found["like_here"]
    bits = f"{found['same']} of {here} the same to the bit" if here else ""
    ranges = f"{found['close']} of {elsewhere} within the range of one more seed" if elsewhere else ""
    return "; ".join(filter(None, (bits, ranges, since)))


def _averaging_words(result: SweepResult | None) -> str:
    """What averaging in the same runs saved, where a sweep has averages."""
    if result is None or not any(map(is_averaged, result.declaration.optimizers)):
        return ""
    return _saved_words(result, _steps_shared(result))


def _saved_words(sweep: SweepResult, saved: Mapping[Place, int]) -> str:
    """ "82%, 3.9 core-hours": a share of all steps with those saved, and their time at the pace of their own cells."""
    steps = sum(saved.values())
    share = steps / (sweep.steps + steps) if steps else 0.0
    return f"{share:.0%}, {hours_of(sweep, saved):.2g} core-hours"


def hours_of(sweep: SweepResult, steps: Mapping[Place, int]) -> float:
    """How long further steps of cells would take at the pace of the runs there, or of all where a cell has none."""
    taken = {place_of(cell): [*cell.result.members, *cell.result.repeats] for cell in sweep.cells}
    pace = {place: _seconds_per_step(trials) for place, trials in taken.items()}
    usual = _seconds_per_step([trial for trials in taken.values() for trial in trials]) or 0.0
    return sum(count * (pace[place] or usual) for place, count in steps.items()) / 3600


def _seconds_per_step(trials: Sequence[Trial]) -> float | None:
    steps = sum(trial.steps_taken for trial in trials)
    return sum(trial.seconds for trial in trials) / steps if steps else None


def _steps_raced(sweep: SweepResult) -> dict[Place, int]:
    """What was left of the budgets of runs that were given up, by cell."""
    return {place_of(cell): cell.result.steps_saved for cell in sweep.cells}


def _steps_shared(sweep: SweepResult) -> dict[Place, int]:
    """Of searches that would have been run again for averaged weights, less what was run for those alone."""
    searched = {place_of(cell): sum(trial.steps_taken for trial in cell.result.members) for cell in sweep.cells}
    return {
        (base_of(name), size): max(searched[base_of(name), size] - own, 0)
        for (name, size), own in searched.items()
        if is_averaged(name) and (base_of(name), size) in searched
    }
