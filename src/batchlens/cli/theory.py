"""What the theory answers: risk, steps, schedule, fit, reproduce."""

import math
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchlens.cli.options import json_option, problem_options, rule_options
from batchlens.cli.terminal import (
    NUMBER,
    NUMBER_OR_TUNED,
    NUMBERS,
    WHOLE,
    WHOLES,
    Names,
    columns_of,
    print_json,
    print_table,
    progress_bar,
    short,
    track,
)
from batchlens.optimizers import FAMILIES

if TYPE_CHECKING:
    from batchlens.scaling.curve import Interval
    from batchlens.scaling.runs import FittedRuns
    from batchlens.theory.problem import NoisyQuadratic
    from batchlens.theory.rule import UpdateRule

# How many claims a report of a power law checks, for the progress bar; a test counts them.
CLAIMS = 24


@click.command("risk")
@rule_options(required=True)
@click.option("--power", type=NUMBER, default=0.0, show_default=True,
              help="Precondition by H^-POWER, in [0, 1].")  # fmt: skip
@click.option("--batch-size", type=NUMBER, required=True, help="Examples a step, above 0.")
@click.option("--steps", type=WHOLES, required=True, help="Step counts: 10,1000 or 1..1024.")
@problem_options
@json_option
def risk_command(
    learning_rate: float,
    momentum: float,
    nesterov: bool,
    averaging: float,
    power: float,
    batch_size: float,
    steps: list[int],
    as_json: bool,
    **problem: Any,
) -> None:
    """Exact expected loss of an update rule.

    \b
    Example:
      batchlens risk --learning-rate 0.1 --momentum 0.9 --batch-size 256 --steps 10,1000
    """
    from batchlens.theory.dynamics import risk_terms
    from batchlens.theory.rule import UpdateRule

    rule = UpdateRule(learning_rate, momentum, nesterov, averaging, power)
    terms = risk_terms(_problem(**problem), rule, batch_size, steps)
    columns = {
        "steps": steps,
        "risk": terms.total.tolist(),
        "deterministic": terms.deterministic.tolist(),
        "noise": terms.noise.tolist(),
    }
    if as_json:
        print_json(columns)
    else:
        print_table(f"{_describe(rule)}, batch size {batch_size:g}", columns)


@click.command("steps")
@click.option(
    "--optimizer", "optimizers", type=Names(FAMILIES), help=f"Tuned: one or several of {', '.join(FAMILIES)}."
)
@rule_options(required=False)
@click.option("--power", type=NUMBERS, default="0", show_default=True,
              help="Precondition by H^-POWER, in [0, 1]; one or several.")  # fmt: skip
@click.option("--batch-sizes", type=NUMBERS, required=True, help="4,16,64 or 4..4096 for each doubling.")
@click.option("--target", type=NUMBER, required=True, help="Risk to reach, above 0.")
@problem_options
@json_option
def steps_command(
    optimizers: list[str] | None,
    learning_rate: float | None,
    momentum: float,
    nesterov: bool,
    averaging: float,
    power: list[float],
    batch_sizes: list[float],
    target: float,
    as_json: bool,
    **problem: Any,
) -> None:
    """Fewest steps to a target, at each batch size.

    Every parameter of --optimizer is tuned.
    With --learning-rate (and --momentum, --nesterov, --averaging): the steps of that rule, nothing tuned.

    \b
    Examples:
      batchlens steps --optimizer sgd,momentum --power 0,0.5 --batch-sizes 4..65536 --target 0.01
      batchlens steps --learning-rate 0.001 --momentum 0.9 --batch-sizes 256..65536 --target 0.01
    """
    from batchlens.scaling.curve import ScalingCurve

    if (optimizers is None) == (learning_rate is None):
        raise click.UsageError("Give either --optimizer (tuned) or --learning-rate (a fixed rule).")
    if optimizers is not None and (momentum or averaging or nesterov):
        raise click.UsageError(
            "--momentum, --nesterov and --averaging go with --learning-rate; --optimizer tunes them."
        )
    for size in batch_sizes:
        if not 0 < size < math.inf:
            raise click.UsageError(f"--batch-sizes must be finite and above 0, got {size:g}.")
    quadratic = _problem(**problem)
    sizes = sorted(set(batch_sizes))
    if optimizers is not None:
        solve = partial(_tuned_point, quadratic, target)
        families = optimizers
    else:
        settings = {
            "learning_rate": learning_rate,
            "momentum": momentum,
            "nesterov": nesterov,
            "averaging": averaging,
        }
        solve = partial(_fixed_point, quadratic, target, settings)
        families = [_rule(settings, 0.0).family]
    cells = list(product(families, power, sizes))
    points = dict(zip(cells, map(solve, track(cells, "Tuning")), strict=True))
    if optimizers is not None and all(point["steps"] is None for point in points.values()):
        raise click.UsageError(f"--target must be within reach of 1e12 steps, got {target:g}.")
    curves = []
    for family, exponent in product(families, power):
        rows = [points[family, exponent, size] for size in sizes]
        critical = ScalingCurve(sizes, [row["steps"] for row in rows]).critical_batch_size()
        if not as_json:
            title = f"{family}, power {exponent:g}, target {target:g}: critical batch size {critical}"
            print_table(title, columns_of(rows))
        curves.append(
            {"optimizer": family, "power": exponent, "critical_batch_size": critical._asdict(), "points": rows}
        )
    if as_json:
        print_json({"curves": curves})


def _tuned_point(problem: "NoisyQuadratic", target: float, cell: tuple[str, float, float]) -> dict[str, Any]:
    from batchlens.theory.tuning import tune

    family, power, batch_size = cell
    best = tune(problem, family, batch_size, target, power)
    return {**_point(batch_size, best.steps, best.rule, best.status), "limits": list(best.limits)}


def _fixed_point(
    problem: "NoisyQuadratic", target: float, settings: dict[str, Any], cell: tuple[str, float, float]
) -> dict[str, Any]:
    from batchlens.theory.hitting import hitting_time

    _, power, batch_size = cell
    rule = _rule(settings, power)
    steps, status = hitting_time(problem, rule, batch_size, target)
    return _point(batch_size, steps, rule, status)


def _rule(settings: dict[str, Any], power: float) -> "UpdateRule":
    from batchlens.theory.rule import UpdateRule

    return UpdateRule(**settings, power=power)


def _point(batch_size: float, steps: int | None, rule: "UpdateRule | None", status: str) -> dict[str, Any]:
    settings = {name: getattr(rule, name, None) for name in ("learning_rate", "momentum", "averaging")}
    return {"batch_size": short(batch_size), "steps": steps, **settings, "status": status}


@click.command("schedule")
@click.option("--batch-size", type=NUMBER, required=True, help="Examples a step, above 0.")
@click.option("--target", type=NUMBER, required=True, help="Risk to reach, above 0.")
@click.option("--pieces", type=WHOLE, default=50, show_default=True, help="Pieces of constant learning rate.")
@click.option("--momentum", type=NUMBER_OR_TUNED, default=0.0, show_default=True, help="In [0, 1), or 'tuned'.")
@click.option("--power", type=NUMBER, default=0.0, show_default=True, help="Precondition by H^-POWER, in [0, 1].")
@click.option("--max-learning-rate", type=NUMBER,
              help="Cap on every piece; by default the largest stable constant rate, as in the paper.")  # fmt: skip
@click.option("--compare", is_flag=True, help="Also the steps of ready-made schedules, their peaks tuned.")
@problem_options
@json_option
def schedule_command(
    batch_size: float,
    target: float,
    pieces: int,
    momentum: Any,
    power: float,
    max_learning_rate: float | None,
    compare: bool,
    as_json: bool,
    **problem: Any,
) -> None:
    """The best learning-rate schedule to a target.

    \b
    Examples:
      batchlens schedule --batch-size 256 --pieces 50 --target 0.01
      batchlens schedule --batch-size 256 --target 0.01 --compare
    """
    from batchlens.theory.schedules import optimal_schedule

    quadratic = _problem(**problem)
    plan = optimal_schedule(quadratic, batch_size, target, pieces, momentum, power, max_learning_rate)
    others = _ready_made(quadratic, batch_size, target, plan.momentum, power) if compare else []
    if as_json:
        document = {
            "steps": plan.steps,
            "risk": plan.risk,
            "lengths": plan.lengths.tolist(),
            "learning_rates": plan.learning_rates.tolist(),
            "momentum": plan.momentum,
        }
        print_json(document | ({"ready_made": others} if compare else {}))
        return
    title = f"{plan.steps:,} steps to {target:g} at batch size {batch_size:g}, momentum {plan.momentum:g}"
    print_table(title, {"steps": plan.lengths.tolist(), "learning_rate": plan.learning_rates.tolist()})
    if compare:
        print_table("Ready-made schedules", columns_of(others))


def _ready_made(
    problem: "NoisyQuadratic", batch_size: float, target: float, momentum: float, power: float
) -> list[dict[str, Any]]:
    from batchlens._shapes import SHAPES
    from batchlens.theory.ready_made import tune_ready_made

    rows = []
    for shape in track(list(SHAPES), "Ready-made schedules"):
        plan = tune_ready_made(problem, shape, batch_size, target, momentum, power)
        rows.append(
            {"shape": shape, "steps": plan.steps, "largest_learning_rate": max(plan.learning_rates, default=0.0)}
        )
    return rows


@click.command("fit")
@click.argument("runs", type=click.Path(path_type=Path))
@click.option(
    "--predict", type=NUMBERS, default=None, help="Batch sizes at which to predict steps: 4,16,64 or 4..4096."
)
@json_option
def fit_command(runs: Path, predict: list[float] | None, as_json: bool) -> None:
    """The critical batch size of your own runs.

    RUNS is a CSV file with the columns batch_size and steps (empty where the target was not reached), and optionally
    optimizer, seconds (how long the run took) and repeat (a name for each of several runs alike).

    Three definitions: knee, where perfect scaling and the plateau meet; overhead, the largest batch that costs at most
    20% more examples; fit, B_crit of steps = S_min (1 + B_crit / B). A ? is an end that the runs leave open.

    \b
    Examples:
      batchlens fit runs.csv
      batchlens fit runs.csv --predict 64..8192
    """
    from batchlens.scaling.runs import fit_runs, read_runs

    fits = fit_runs(read_runs(runs), batch_sizes=predict or ())
    if as_json:
        print_json({"fits": [_fit_document(fit) for fit in fits]})
        return
    for fit in fits:
        title = fit.optimizer or "runs"
        rows = [
            {
                "definition": estimate.critical_batch_size.definition,
                "critical_batch_size": str(estimate.critical_batch_size),
                "95% interval": _interval(estimate.interval),
            }
            for estimate in fit.estimates
        ]
        print_table(f"{title}: critical batch size", columns_of(rows))
        table: dict[str, list[Any]] = {
            "batch_size": [short(size) for size in fit.curve.batch_sizes],
            "steps": list(fit.curve.steps),
        }
        efficiency = [None if part is None else f"{part:.0%}" for part in fit.curve.efficiency()]
        print_table(f"{title}: measured", {**table, "efficiency": efficiency, "seconds": list(fit.seconds)})
        if fit.predictions:
            predicted = [
                {
                    "batch_size": short(entry.batch_size),
                    "steps": round(entry.steps),
                    "95% interval": _interval(entry.interval),
                    "extrapolated": "yes" if entry.extrapolated else "",
                }
                for entry in fit.predictions
            ]
            print_table(f"{title}: predicted", columns_of(predicted))
        for name in ("fastest", "cheapest"):
            size = getattr(fit, name)
            if size is not None:
                click.echo(f"{title}: {name} batch size {short(size):,}")


def _fit_document(fit: "FittedRuns") -> dict[str, Any]:
    return {
        "optimizer": fit.optimizer,
        "batch_sizes": [short(size) for size in fit.curve.batch_sizes],
        "steps": list(fit.curve.steps),
        "efficiency": list(fit.curve.efficiency()),
        "critical_batch_sizes": [
            {**estimate.critical_batch_size._asdict(), "interval": estimate.interval} for estimate in fit.estimates
        ],
        "least_steps": fit.least_steps,
        "predictions": [entry._asdict() for entry in fit.predictions],
        "fastest": fit.fastest,
        "cheapest": fit.cheapest,
    }


def _interval(interval: "Interval | None") -> str:
    return "none" if interval is None else str(interval)


@click.command("reproduce")
@click.option("--out", type=click.Path(path_type=Path), default=Path("report"), show_default=True,
              help="Folder for the page, its figures and their numbers.")  # fmt: skip
@click.option("--target", type=NUMBER, default=0.01, show_default=True, help="Risk to reach.")
@problem_options
@json_option
def reproduce_command(out: Path, target: float, as_json: bool, **problem: Any) -> None:
    """The paper's theory on one page, claims checked.

    Every figure (SVG and PNG, its numbers as CSV), and every claim with its verdict.

    \b
    Examples:
      batchlens reproduce
      batchlens reproduce --dim 1000 --exponent 1.5 --target 0.05 --out steeper
    """
    from batchlens.report._page.frame import summarise
    from batchlens.report._theory.panels import PANELS
    from batchlens.report._theory.study import Study
    from batchlens.report.reproduction import reproduce

    study = Study.of_power_law(**problem, target=target)
    with progress_bar("Reproducing", CLAIMS + len(PANELS)) as advance:
        claims = reproduce(study, out, advance)
    if as_json:
        print_json({"page": str(out / "index.html"), "claims": [vars(claim) for claim in claims]})
        return
    names = ("verdict", "name", "found")
    print_table(summarise(claims), {name: [getattr(claim, name) for claim in claims] for name in names})
    click.echo(f"Page: {out / 'index.html'}")


def _problem(dim: int, exponent: float, bins: int, rounding: Any) -> "NoisyQuadratic":
    from batchlens.theory.problem import NoisyQuadratic

    if bins < 0:
        raise click.UsageError(f"--bins must be at least 0, got {bins}.")
    problem = NoisyQuadratic.power_law(dim, exponent)
    return problem if bins == 0 else problem.binned(bins, rounding)


def _describe(rule: "UpdateRule") -> str:
    words = [f"{rule.family}, learning rate {rule.learning_rate:g}"]
    words += [f"{name} {value:g}" for name in ("momentum", "averaging", "power")
              if (value := getattr(rule, name))]  # fmt: skip
    return ", ".join(words)
