"""What the theory answers: risk, steps, schedule, reproduce."""

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import batchlens as bl
from batchlens.cli.options import json_option, problem_file_option, problem_options, rule_options
from batchlens.cli.progress import progress_bar, track, waiting
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
    say,
)
from batchlens.optimizers import FAMILIES

if TYPE_CHECKING:
    from batchlens.theory.problem import NoisyQuadratic

# Where the sweeps of real networks lie in a clone.
_EVIDENCE = Path("evidence")


@click.command("risk")
@rule_options(required=True)
@click.option("--power", type=NUMBER, default=0.0, show_default=True,
              help="Precondition by H^-POWER, in [0, 1].")  # fmt: skip
@click.option("--batch-size", type=NUMBER, required=True, help="Examples a step, above 0.")
@click.option("--steps", type=WHOLES, required=True, help="Step counts: 10,1000 or 1..1024.")
@problem_file_option
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
    rule = bl.UpdateRule(learning_rate, momentum, nesterov, averaging, power)
    document = bl.risk_terms(_problem(**problem), rule, batch_size, steps).as_document()
    if as_json:
        print_json(document)
    else:
        from batchlens.theory._showing import describe

        print_table(f"{describe(rule)}, batch size {batch_size:g}", document)


@click.command("steps")
@click.option(
    "--optimizer", "optimizers", type=Names(FAMILIES), help=f"Tuned: one or several of {', '.join(FAMILIES)}."
)
@rule_options(required=False)
@click.option("--power", type=NUMBERS, default="0", show_default=True,
              help="Precondition by H^-POWER, in [0, 1]; one or several.")  # fmt: skip
@click.option("--batch-sizes", type=NUMBERS, required=True, help="4,16,64 or 4..4096 for each doubling.")
@click.option("--target", type=NUMBER, required=True, help="Risk to reach, above 0.")
@problem_file_option
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
    if (optimizers is None) == (learning_rate is None):
        raise click.UsageError("Give either --optimizer (tuned) or --learning-rate (a fixed rule).")
    if optimizers is not None and (momentum or averaging or nesterov):
        raise click.UsageError(
            "--momentum, --nesterov and --averaging go with --learning-rate; --optimizer tunes them."
        )
    quadratic = _problem(**problem)
    rules: list[tuple[Any, float]] = list(product(optimizers or (), power))
    if learning_rate is not None:  # a rule has its own power
        rules = [(bl.UpdateRule(learning_rate, momentum, nesterov, averaging, each), 0.0) for each in power]
    from batchlens.theory._curves import scaling_curves

    with progress_bar("Tuning") as tell:
        curves = scaling_curves(quadratic, rules, batch_sizes, target, tell)
    if as_json:
        print_json({"curves": [curve.as_document() for curve in curves]})
        return
    for curve in curves:
        critical = curve.critical_batch_size()
        title = f"{curve.optimizer}, power {curve.power:g}, target {target:g}: critical batch size {critical}"
        print_table(title, columns_of(curve.as_document()["points"]))


@click.command("schedule")
@click.option("--batch-size", type=NUMBER, required=True, help="Examples a step, above 0.")
@click.option("--target", type=NUMBER, required=True, help="Risk to reach, above 0.")
@click.option("--pieces", type=WHOLE, default=50, show_default=True, help="Pieces of constant learning rate.")
@click.option("--momentum", type=NUMBER_OR_TUNED, default=0.0, show_default=True, help="In [0, 1), or 'tuned'.")
@click.option("--power", type=NUMBER, default=0.0, show_default=True, help="Precondition by H^-POWER, in [0, 1].")
@click.option("--max-learning-rate", type=NUMBER,
              help="Cap on every piece; by default the largest stable constant rate, as in the paper.")  # fmt: skip
@click.option("--compare", is_flag=True, help="Also the steps of ready-made schedules, their peaks tuned.")
@problem_file_option
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
    quadratic = _problem(**problem)
    with waiting(f"Optimising a schedule of {pieces:,} pieces"):
        plan = bl.optimal_schedule(quadratic, batch_size, target, pieces, momentum, power, max_learning_rate)
    others = _ready_made(quadratic, batch_size, target, plan.momentum, power) if compare else []
    if as_json:
        print_json(plan.as_document() | ({"ready_made": others} if compare else {}))
        return
    title = f"{plan.steps:,} steps to {target:g} at batch size {batch_size:g}, momentum {plan.momentum:g}"
    print_table(title, {"steps": plan.lengths.tolist(), "learning_rate": plan.learning_rates.tolist()})
    if compare:
        print_table("Ready-made schedules", columns_of(others))


def _ready_made(
    problem: "NoisyQuadratic", batch_size: float, target: float, momentum: float, power: float
) -> list[dict[str, Any]]:
    from batchlens._shapes import SHAPES

    rows = []
    for shape in track(list(SHAPES), "Ready-made schedules"):
        plan = bl.tune_ready_made(problem, shape, batch_size, target, momentum, power)
        rows.append(
            {"shape": shape, "steps": plan.steps, "largest_learning_rate": max(plan.learning_rates, default=0.0)}
        )
    return rows


@click.command("reproduce")
@click.option("--out", type=click.Path(path_type=Path), default=Path("report"), show_default=True,
              help="Folder for the page, its figures and their numbers.")  # fmt: skip
@click.option("--target", type=NUMBER, default=0.01, show_default=True, help="Risk to reach.")
@click.option("--evidence", type=click.Path(path_type=Path),
              help="Folder with the sweeps of real networks; ./evidence where there is one.")  # fmt: skip
@problem_options
@json_option
def reproduce_command(out: Path, target: float, evidence: Path | None, as_json: bool, **problem: Any) -> None:
    """The paper on one page, claims checked.

    Every figure (SVG and PNG, its numbers as CSV), and every claim with its verdict: of the theory, computed anew, and
    of real networks, from the sweeps of an evidence folder.

    \b
    Examples:
      batchlens reproduce
      batchlens reproduce --dim 1000 --exponent 1.5 --target 0.05 --out steeper
    """
    if evidence is None and _EVIDENCE.is_dir():
        evidence = _EVIDENCE
    with progress_bar("Reproducing") as advance:
        found = bl.reproduce(out, **problem, target=target, evidence=evidence, progress=advance)
    if as_json:
        print_json(found.as_document())
        return
    names = ("verdict", "name", "found")
    print_table(found.headline, {name: [getattr(claim, name) for claim in found.claims] for name in names})
    if found.networks:
        rows = [
            {"verdict": claim.verdict, "claim": claim.sentence, "workloads": claim.words} for claim in found.networks
        ]
        print_table("On networks", columns_of(rows))
    say(f"Page: {found.page}")


def _problem(dim: int, exponent: float, bins: int, rounding: Any, problem: Path | None) -> "NoisyQuadratic":
    from batchlens.theory._quantised import power_law, quantised

    if problem is None:
        return power_law(dim, exponent, bins, rounding)
    if (dim, exponent) != (10_000, 1.0):
        raise click.UsageError("--problem has its own curvatures; leave out --dim and --exponent.")
    return quantised(bl.read_problem(problem), bins, rounding)
