"""What `predict` says of a workload, against what dense tuning or the sweeps of evidence/ found.

    python benchmarks/evaluate_predictions.py [--sweep digits] [--candidates] [--errors-of mnist,fashion_mnist]
    python benchmarks/evaluate_predictions.py --sweep resnet8 --published     its committed prediction as well
    python benchmarks/evaluate_predictions.py --sweep resnet8 --published only
    python benchmarks/evaluate_predictions.py --target-on validation          digits to an accuracy of 0.97

Predicts from the references in benchmarks/references/ (`measure_references.py` makes them; nothing is trained here).
A prediction of evidence/ knows the sweep's batch sizes only: its model is fitted again to what it says of its run.
The truth is that of `measure_truth.py` where there is one, else what the sweep reports at its own target. Prints how
far critical batch sizes, steps and learning rates are off, how many intervals hold the truth, how many references are
refused, and whether that is what was asked for (of seconds it is not judged: they are the processor's, not the
clock's). Batch sizes go further than the sweep's on both sides, so that a critical batch size may come out too small or
too large; where it is a bound nevertheless, it is counted apart. With `--errors-of` intervals are as wide as the
largest errors of other sweeps make them: what they hold then was not looked at when they were made, and is judged.
`--candidates` does all that for other models and readings too: docs/prediction.md shows the losers.
"""

import argparse
import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple
from unittest import mock

import numpy as np

import batchlens as bl
from batchlens.prediction import _judging, _measured, _model, prediction
from batchlens.prediction._readings import READINGS
from batchlens.scaling._hyperbola import fit_curves

ROOT = Path(__file__).parents[1]
FOLDER, PUBLISHED = ROOT / "benchmarks" / "references", ROOT / "evidence" / "predictions"
TRUTHS = {"digits": "truth.json", "mnist": "truth_mnist.json"}
OPTIMIZERS = ("sgd", "momentum", "sgd+ema", "momentum+ema", "adam", "kfac")
# At which to predict, beside those of the sweep.
SIZES = tuple(2**k for k in range(2, 14))


class Reference(NamedTuple):
    """A run that predictions start from; without a measurement where it missed its target.

    One that was `published` in evidence/ has its prediction in place of a measurement.
    """

    sweep: str
    name: str
    batch_size: int
    learning_rate: float
    target_on: str
    target: float  # on that
    target_loss: float
    reason: str
    seconds: float
    measurement: bl.Measurement | None
    published: Mapping[str, Any] | None = None


def read_references(sweep: str, target_on: str | None = None) -> list[Reference]:
    """Those that are stored of a kind of target, the sweep's unless given, in order; there must be some."""
    found = []
    for file in sorted(FOLDER.glob(f"{sweep}-*.json")):
        document, own = json.loads(file.read_text(encoding="utf-8")), sweep_of(sweep).declaration.target_on
        about = {"target_on": own, **document["reference"]}
        if about["target_on"] != (target_on or own):
            continue
        about = {"target": about["target_loss"], **about}
        names = ("batch_size", "learning_rate", "target_on", "target", "target_loss", "reason", "seconds")
        known = {name: about[name] for name in names}
        measured = bl.read_measurement(file) if "moments" in document else None
        found.append(Reference(sweep=sweep, name=file.stem, measurement=measured, **known))
    if not found:
        sys.exit(f"{FOLDER} has no references of {sweep}: python benchmarks/measure_references.py --sweep {sweep}")
    return found


def read_published(sweep: str) -> Reference:
    """The prediction that evidence/ has."""
    document = json.loads((PUBLISHED / f"{sweep}.json").read_text(encoding="utf-8"))
    about, declaration = document["reference"], sweep_of(sweep).declaration
    return Reference(
        sweep=sweep,
        name="published",
        batch_size=about["batch_size"],
        learning_rate=about["learning_rate"],
        target_on=declaration.target_on,
        target=declaration.target,
        target_loss=document["target_loss"],
        reason="; ".join(document["reasons"]),
        seconds=document["seconds"],
        measurement=None,
        published=document,
    )


@cache
def sweep_of(name: str) -> bl.SweepResult:
    return bl.read_sweep(ROOT / "evidence" / f"{name}.sqlite")


@cache
def dense_truth(sweep: str) -> Mapping[str, Any]:
    file = ROOT / "benchmarks" / TRUTHS.get(sweep, "none")
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def predict(reference: Reference, optimizers: tuple[str, ...]) -> tuple[dict[str, Any], float]:
    """The prediction as a document, and the seconds that it took beside the run."""
    started = time.process_time()
    declaration = sweep_of(reference.sweep).declaration
    names = [name for name in optimizers if name in declaration.optimizers]
    sizes = sorted({*SIZES, *declaration.batch_sizes})
    if reference.published is not None:
        document = reference.published
        return again(document, names, sizes) if document["curves"] else dict(document), time.process_time() - started
    if reference.measurement is None:
        return {"status": "not_identifiable", "reasons": [reference.reason], "curves": []}, 0.0
    found = bl.predict_from(
        reference.measurement,
        reference.measurement.loss_curve,
        reference.batch_size,
        reference.learning_rate,
        reference.target_loss,
        optimizers=names,
        batch_sizes=sizes,
    )
    return found.as_document(), time.process_time() - started


def again(published: Mapping[str, Any], names: Sequence[str], sizes: Sequence[int]) -> dict[str, Any]:
    """A published prediction at other batch sizes: intervals lack the scatter of what was measured."""
    about, target = published["reference"], published["target_loss"]
    curve = list(zip(about["curve_steps"], about["curve_losses"], strict=True))
    run = _model.Reference.of(curve, about["batch_size"], about["learning_rate"], about["momentum"], target)
    curves = []
    for name in names:
        wait = about["delay"] if READINGS[name].delayed else 0
        model = _model.fit_model(run, about["top_curvature"], about["gradient_variance"], target, wait)
        fitted = prediction._Fitted(model, [model] * 2, model)
        curves.append(prediction._predict(name, fitted, sizes, target).as_document())
    return {**published, "curves": curves}


def truth_of(optimizer: str, reference: Reference) -> dict[int, dict[str, Any]]:
    """Steps and settings by batch size, as far as they are known: of dense tuning, else of the sweep's own target."""
    sweep, target = sweep_of(reference.sweep), (reference.target_on, reference.target)
    own = target == (sweep.declaration.target_on, sweep.declaration.target)
    found = {
        cell.result.cell.batch_size: {"steps": cell.steps, "settings": cell.result.winner.settings}
        for cell in sweep.cells
        if own and cell.result.cell.optimizer == optimizer and cell.result.complete and cell.result.winner
    }
    for size, entry in dense_truth(reference.sweep).get(optimizer, {}).items():
        found[int(size)] = entry[f"{reference.target_on} {reference.target:g}"]
    return dict(sorted(found.items()))


class Errors(NamedTuple):
    """Logarithms of prediction over truth of one reference, and whether intervals hold the truth.

    Of critical batch sizes by "fit". `critical` is None where one of the two is not known or a bound, and `bound` says
    whether they agree; `critical_held` is None where the truth is a bound. What "fit" says depends a little on the
    batch sizes that it is given: `alike` has both by the truth's own.
    """

    critical: float | None
    alike: float | None
    bound: Literal["", "agrees", "contradicts"]
    critical_held: bool | None
    half_open: bool
    steps: list[float]
    steps_held: list[bool]
    rates: list[float]


def errors(optimizer: str, document: Mapping[str, Any], reference: Reference) -> Errors | None:
    """None where there is no truth."""
    truth = truth_of(optimizer, reference)
    curves = [entry for entry in document["curves"] if entry["optimizer"] == optimizer]
    if len(truth) < 3 or not curves:
        return None
    (curve,) = curves
    (fit,) = (entry for entry in curve["critical_batch_sizes"] if entry["definition"] == "fit")
    true = bl.ScalingCurve(list(truth), [entry["steps"] for entry in truth.values()]).critical_batch_size("fit")
    pairs = [(point, truth[point["batch_size"]]) for point in curve["points"] if point["batch_size"] in truth]
    rates = [(_rate(p), _rate(t["settings"])) for p, t in pairs if optimizer not in ("adam", "kfac")]
    return Errors(
        **_critical_errors(fit, true.value, true.relation),
        alike=_alike([p["steps"] for p, _ in pairs], truth) if true.relation == "=" else None,
        steps=[math.log(p["steps"] / t["steps"]) if p["steps"] else math.inf for p, t in pairs],
        steps_held=[_holds(p["interval"], t["steps"]) for p, t in pairs],
        rates=[math.log(mine / true) for mine, true in rates if mine and true],
    )


def _critical_errors(fit: Mapping[str, Any], true: float | None, relation: str) -> dict[str, Any]:
    """Of a predicted critical batch size, where the true one is `true`, or beyond it."""
    value, interval = fit["value"], fit["interval"]
    known = value is not None and true is not None
    exact = known and fit["relation"] == relation == "="
    agrees = known and _meet(_range(value, fit["relation"]), _range(true or math.nan, relation))
    return {
        "critical": math.log(value / true) if exact and true else None,
        "bound": "" if exact or not known else "agrees" if agrees else "contradicts",
        "critical_held": _holds(interval, true or math.nan) if relation == "=" else None,
        "half_open": interval is not None and None in interval,
    }


def _alike(predicted: Sequence[float | None], truth: Mapping[int, Mapping[str, Any]]) -> float | None:
    """Prediction over truth by the same batch sizes, beyond which both may lie."""
    steps = [predicted, [entry["steps"] for entry in truth.values()]]
    if not all(steps[0]):
        return None
    mine, true = fit_curves(np.log(list(truth)), np.log(np.array(steps, dtype=np.float64)))[0]
    return float(mine - true)


def _range(value: float, relation: str) -> tuple[float, float]:
    return 0.0 if relation == "<=" else value, math.inf if relation == ">=" else value


def _meet(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _rate(settings: Mapping[str, Any]) -> float | None:
    """The effective learning rate."""
    rate = settings.get("learning_rate")
    return None if rate is None else rate / (1 - (settings.get("momentum") or 0.0))


def _holds(interval: list[float | None] | None, truth: float) -> bool:
    low, high = interval or (None, None)
    return interval is not None and (low or 0.0) <= truth <= (high or math.inf)


def rms(values: Sequence[float]) -> float:
    return math.sqrt(np.mean(np.square(values))) if values else math.nan


def criticals(found: Sequence[Errors]) -> list[float]:
    """Errors of critical batch sizes that are known."""
    return [entry.critical for entry in found if entry.critical is not None]


def within(found: Sequence[Errors], factor: float) -> float:
    """Which part of critical batch sizes is that close; bounds do not count, unless they contradict the truth."""
    known = criticals(found)
    count = len(known) + sum(entry.bound == "contradicts" for entry in found)
    return sum(abs(value) <= math.log(factor) for value in known) / count if count else math.nan


def typical(values: Sequence[float]) -> float:
    """The factor that logarithms are off by in the geometric mean."""
    return math.exp(np.abs(values).mean()) if len(values) else math.nan


def held(found: Sequence[Errors]) -> tuple[float, float]:
    """Which part of intervals holds the truth: of steps, of critical batch sizes."""
    sizes = [entry.critical_held for entry in found if entry.critical_held is not None]
    steps = [value for entry in found for value in entry.steps_held]
    return float(np.mean(steps)), float(np.mean(sizes)) if sizes else math.nan


def report(found: list[Errors], optimizer: str) -> str:
    steps = [value for entry in found for value in entry.steps]
    rates = [value for entry in found for value in entry.rates]
    told = f", rates {typical(rates):.2f}" if rates else ""
    return (
        f"{optimizer:12} of {len(found)}: critical batch size {_closeness(found)}; steps {typical(steps):.2f} in the "
        f"geometric mean, {math.exp(np.abs(steps).max()):.2f} at worst{told}; rms of logs: critical "
        f"{rms(criticals(found)):.2f}, steps {rms(steps):.2f}"
    )


def report_intervals(found: list[Errors]) -> str:
    of_steps, of_sizes = held(found)
    sizes = "" if math.isnan(of_sizes) else f", {of_sizes:.0%} of critical batch sizes"
    half_open = sum(entry.half_open for entry in found)
    return f"90% intervals hold {of_steps:.0%} of steps{sizes} ({half_open} half open)"


def _closeness(found: Sequence[Errors]) -> str:
    known = criticals(found)
    if not known:
        return f"not known{_bounds(found)}"
    median = math.exp(float(np.median(known)))
    parts = f"within 1.5 in {within(found, 1.5):.0%}, 2 in {within(found, 2):.0%}"
    return f"{parts} (median {median:.2f} of the truth{_bounds(found)}{_by_the_same(found)})"


def _by_the_same(found: Sequence[Errors]) -> str:
    """How close critical batch sizes are by the truth's own batch sizes."""
    logs = np.array([entry.alike for entry in found if entry.alike is not None])
    if not len(logs):
        return ""
    parts = [f"{factor:g} in {np.mean(np.abs(logs) <= math.log(factor)):.0%}" for factor in (1.5, 2)]
    return f"; by the same batch sizes within {', '.join(parts)}, median {math.exp(float(np.median(logs))):.2f}"


def _bounds(found: Sequence[Errors]) -> str:
    """Of how many references the prediction or the truth is a bound."""
    kinds = [entry.bound for entry in found if entry.bound]
    return f"; {len(kinds)} bounds, {kinds.count('contradicts')} contradict" if kinds else ""


Found = dict[str, list[Errors]]


class Evaluated(NamedTuple):
    """Errors by optimizer, how many references there were, and how many of them were refused; seconds of each."""

    found: Found
    references: int
    refused: int
    seconds: list[float]


def evaluate(references: list[Reference], optimizers: tuple[str, ...], intervals: bool = True) -> Evaluated:
    """Prints a line for each optimizer, with what its `intervals` hold, and for each reference that is refused."""
    documents = [(reference, *predict(reference, optimizers)) for reference in references]
    predicted = [(reference, document) for reference, document, _ in documents if document["status"] == "predicted"]
    for reference, document, _ in documents:
        if document["reasons"]:
            print(f"  {reference.name} refused: {'; '.join(document['reasons'])}")
    refused = len(documents) - len(predicted)
    print(f"  {refused} of {len(documents)} references refused")
    if intervals:
        print(f"  {report_runs(references, [document for _, document, _ in documents])}")
    every: Found = {}
    for optimizer in optimizers:
        found = [entry for reference, document in predicted if (entry := errors(optimizer, document, reference))]
        words = report(found, optimizer) if found else f"{optimizer}: no truth"
        print(f"  {words}; {report_intervals(found)}" if found and intervals else f"  {words}", flush=True)
        every[optimizer] = found
    return Evaluated(every, len(documents), refused, [seconds for *_, seconds in documents])


def report_runs(references: list[Reference], documents: list[dict[str, Any]]) -> str:
    """What was measured at the target of runs that are predicted from, and how far their own models outrun them."""
    scales: dict[str, list[float]] = {"B_simple": [], "B_noise": []}
    for entry in chain.from_iterable(document.get("noise_scales", ()) for document in documents):
        if entry["value"] is not None:
            scales[entry["definition"]].append(entry["value"])
    parts = [f"{name} {min(values):.3g} to {max(values):.3g}" for name, values in scales.items() if values]
    ratios = sorted(ratio for reference in references if (ratio := outrun(reference)) is not None)
    words = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    return "; ".join([*parts, *([f"steps of the run over those of its model's best rate: {words}"] if words else [])])


def outrun(reference: Reference) -> float | None:
    """Steps of a run over what its model's best rate would take."""
    measured = reference.measurement
    if measured is None:
        return None
    run = _model.Reference.of(measured.loss_curve, reference.batch_size, reference.learning_rate, 0.0,
                              reference.target_loss)  # fmt: skip
    model = _judging.first_model(run, _measured.Measured.of(measured, run.steps[-1]))
    best = bl.tune(model.problem(), "sgd", run.batch_size, run.target).steps
    return None if best is None else run.steps[-1] / (best + model.delay)


class Must(NamedTuple):
    """What predictions must show: a number that is at most, or at least, a limit."""

    words: str
    number: Callable[[Evaluated], float]
    limit: float
    at_least: bool = False

    def holds(self, evaluated: Evaluated) -> bool:
        number = self.number(evaluated)
        return number >= self.limit if self.at_least else number <= self.limit

    def verdict(self, evaluated: Evaluated) -> str:
        asked = f"{'at least' if self.at_least else 'at most'} {self.limit:.3g}"
        passed = "pass" if self.holds(evaluated) else "fail"
        return f"{passed}: {self.words}: {self.number(evaluated):.3g}, {asked} asked for"


def close(optimizer: str, factor: float, part: float) -> Must:
    """For so large a part of the references the critical batch size is that close."""
    words = f"{optimizer}: part of critical batch sizes within {factor:g}"
    return Must(words, lambda evaluated: within(evaluated.found[optimizer], factor), part, at_least=True)


def off(optimizer: str, what: Literal["steps", "rates"], limit: float, worst: bool = False) -> Must:
    """By which factor steps or learning rates are off at most, in the geometric mean or at worst."""

    def number(evaluated: Evaluated) -> float:
        logs = [value for entry in evaluated.found[optimizer] for value in getattr(entry, what)]
        return math.exp(np.abs(logs).max()) if worst else typical(logs)

    return Must(
        f"{optimizer}: {what} off by a factor of, {'at worst' if worst else 'in the geometric mean'}", number, limit
    )


def hold(which: Literal[0, 1]) -> Must:
    """How many intervals of steps, or of critical batch sizes, hold the truth."""
    words = f"90% intervals of {('steps', 'critical batch sizes')[which]} that hold the truth"
    return Must(words, lambda evaluated: held([*chain(*evaluated.found.values())])[which], 0.85, at_least=True)


# Of sweeps that the model was chosen on, to their own targets, and of all else.
MUSTS: Mapping[str, Sequence[Must]] = {
    "digits": (
        Must("references", lambda evaluated: evaluated.references, 20, at_least=True),
        Must("references refused", lambda evaluated: evaluated.refused, 2),
        close("sgd", 1.5, 0.8),
        off("sgd", "steps", 1.25),
        off("sgd", "steps", 1.7, worst=True),
        off("sgd", "rates", 1.35),
        close("momentum", 1.5, 0.7),
        off("momentum", "steps", 1.4),
        close("sgd+ema", 2, 1.0),
        off("sgd+ema", "steps", 2, worst=True),
    ),
    "mnist": (close("sgd", 1.5, 2 / 3), close("sgd", 2, 1.0), close("momentum", 2, 1.0)),
}
HELD_OUT = (hold(0), hold(1))


def musts_of(sweep: str, target_on: str | None, published: str | None, errors_of: Sequence[str]) -> Sequence[Must]:
    """What is judged: aims where they were set, and intervals only where others than the sweep's errors made them."""
    aims = () if target_on or published == "only" else MUSTS.get(sweep, ())
    return (*aims, *(HELD_OUT if errors_of and sweep not in errors_of else ()))


def readings_from(found: Found) -> dict[str, dict[str, float]]:
    """Errors of readings as these references have them."""
    return {
        optimizer: {
            "steps_error": rms([value for entry in entries for value in entry.steps]),
            "critical_error": rms(criticals(entries)),
        }
        for optimizer, entries in found.items()
        if entries
    }


def errors_of(sweeps: Sequence[str], published: bool = False) -> dict[str, dict[str, float]]:
    """Errors of readings, of the sweep with the largest ones; those that are known."""
    largest: dict[str, dict[str, float]] = {}
    for sweep in sweeps:
        print(f"{sweep}: as it is")
        with changed({prediction: {"_DRAWS": 1}}, {}):
            runs = [*read_references(sweep), *([read_published(sweep)] if published else [])]
            found = readings_from(evaluate(runs, OPTIMIZERS, intervals=False).found)
        for optimizer, values in found.items():
            known = largest.setdefault(optimizer, {})
            known |= {name: max(value, known.get(name, 0.0)) for name, value in values.items() if value >= 0}
    return largest


@contextmanager
def changed(constants: Mapping[Any, Mapping[str, Any]], readings: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Other constants of modules, other readings of optimizers."""
    with ExitStack() as stack:
        for module, values in constants.items():
            for name, value in values.items():
                stack.enter_context(mock.patch.object(module, name, value))
        stack.enter_context(
            mock.patch.dict(READINGS, {name: READINGS[name]._replace(**values) for name, values in readings.items()})
        )
        yield


def _tenth(numbers: _measured.Measured, _: float) -> int:
    return int(0.1 * max(numbers.tops))


CANDIDATES: tuple[
    tuple[str, tuple[str, ...], Mapping[Any, Mapping[str, Any]], Mapping[str, Mapping[str, Any]]], ...
] = (
    ("noise is constant", ("sgd", "momentum", "sgd+ema"), {_model: {"_CONSTANT": 1.0}}, {}),
    ("a quarter of it is", ("sgd", "momentum", "sgd+ema"), {_model: {"_CONSTANT": 0.25}}, {}),
    ("none of it is", ("sgd", "momentum", "sgd+ema"), {_model: {"_CONSTANT": 0.0}}, {}),
    ("jumps count as their squares", ("sgd", "momentum"), {_model: {"_JUMP": 100.0}}, {}),
    ("nothing is believed of the exponents", ("sgd", "momentum", "sgd+ema"), {_model: {"_BELIEF_WEIGHT": 0.0}}, {}),
    ("nothing is counted as delay", ("sgd", "momentum", "sgd+ema", "adam"), {_measured: {"_DELAYED": 0.0}}, {}),
    ("a tenth of the steps is, always", ("sgd", "momentum"), {_measured.Measured: {"steps_at_the_edge": _tenth}}, {}),
    ("a fifth of the steps may be", ("sgd", "momentum"), {_measured: {"_DELAYED": 0.2}}, {}),
    ("Adam without delay", ("adam",), {}, {"adam": {"delayed": False}}),
    ("Adam as power 0.25", ("adam",), {}, {"adam": {"power": 0.25}}),
    ("Adam as power 0.5", ("adam",), {}, {"adam": {"power": 0.5}}),
    ("K-FAC with delay", ("kfac",), {}, {"kfac": {"delayed": True}}),
    ("K-FAC as power 0.5, all noise", ("kfac",), {}, {"kfac": {"power": 0.5, "noise": 1.0}}),
    ("K-FAC as power 0.5", ("kfac",), {}, {"kfac": {"power": 0.5}}),
    ("K-FAC as power 0.75", ("kfac",), {}, {"kfac": {"power": 0.75}}),
)


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweep", default="digits", help="one of evidence/ (digits)")
    parser.add_argument("--candidates", action="store_true", help="other models and readings too")
    parser.add_argument("--errors-of", default="", help="other sweeps, whose errors make the intervals")
    parser.add_argument(
        "--published",
        nargs="?",
        const="also",
        choices=("also", "only"),
        help="the prediction of evidence/, too or only",
    )
    parser.add_argument("--target-on", help="references to such a target; the sweep's unless given")
    asked = parser.parse_args()
    references = [] if asked.published == "only" else read_references(asked.sweep, asked.target_on)
    references += [read_published(asked.sweep)] if asked.published else []
    others = [name for name in asked.errors_of.split(",") if name]
    widths = errors_of(others, bool(asked.published))
    print(f"{asked.sweep}: {f'intervals by the errors of {asked.errors_of}' if others else 'as it is'}")
    with changed({}, widths):
        evaluated = evaluate(references, OPTIMIZERS)
    if not others:
        print("  widths were raised by the errors of this network too: what intervals hold is no test (--errors-of)")
    for must in musts_of(asked.sweep, asked.target_on, asked.published, others):
        print(f"  {must.verdict(evaluated)}")
    runs = [reference.seconds for reference in references]
    print(f"  processor seconds: {np.mean(runs):.1f} of the run, {np.mean(evaluated.seconds):.1f} of six curves")
    for words, optimizers, constants, readings in CANDIDATES if asked.candidates else ():
        print(f"{asked.sweep}: {words}")
        with changed({**constants, prediction: {"_DRAWS": 1}}, readings):  # intervals are of no interest here
            evaluate(references, optimizers, intervals=False)


if __name__ == "__main__":
    main()
