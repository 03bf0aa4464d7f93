"""Sweeps: running them, reporting on them, joining their parts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import batchlens as bl
from batchlens._extras import import_extra
from batchlens.cli.measuring import report_measurement
from batchlens.cli.options import data_dir_option, json_option
from batchlens.cli.progress import Lines, is_watched, progress_bar
from batchlens.cli.terminal import (
    DURATION,
    NUMBER,
    PART,
    WHOLE,
    WHOLES,
    Names,
    columns_of,
    plain,
    print_json,
    print_table,
    say,
)

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

    from batchlens.sweep._curves import MeasuredCell
    from batchlens.sweep._progress import CellProgress, Progress
    from batchlens.sweep.results import SweepResult

_FILE = click.Path(path_type=Path)


@click.command("sweep")
@click.argument("workload")
@click.option("--optimizers", type=Names(), required=True, help="sgd,momentum,kfac,...; each also with +ema.")
@click.option("--batch-sizes", type=WHOLES,
              help="16,64,256 or 16..4096 for each doubling; the workload's by default.")  # fmt: skip
@click.option("--search", type=click.Choice(["guided", "sobol"]), default="guided", show_default=True,
              help="Rounds that learn from those before, or independent points as in the paper.")  # fmt: skip
@click.option("--trials", type=WHOLE,
              help="Of each optimizer and batch size; 29 by default, the workload's with sobol.")  # fmt: skip
@click.option("--seeds", type=WHOLE, help="Fresh ones that report what guided search has chosen; 5 by default.")
@click.option("--store", type=_FILE, required=True, help="File that keeps the sweep; made where there is none.")
@click.option("--size", type=click.Choice(["laptop", "paper"]), default="laptop", show_default=True,
              help="As published, or narrower with an easier target.")  # fmt: skip
@click.option("--seed", type=WHOLE, default=0, show_default=True, help="Of the search and of the runs.")
@click.option("--target", type=NUMBER, help="Metric to reach; the workload's by default.")
@click.option("--target-on", type=click.Choice(["validation", "train", "train-loss"]), default="validation",
              show_default=True, help="What is to reach it: the metric, or the training loss.")  # fmt: skip
@click.option("--also-targets", type=Names(), default=[],
              help="Others to note on the way, such as train-loss:0.3,validation:0.97.")  # fmt: skip
@click.option("--confirm-target", is_flag=True, help="Two evaluations in a row must meet a target.")
@click.option("--max-steps", type=WHOLE, help="Step budget of a run; the workload's by default.")
@click.option("--keep", type=WHOLE, default=5, show_default=True,
              help="With sobol: how many of the best trials are known exactly; others may be cut short.")  # fmt: skip
@click.option(
    "--repeats",
    type=WHOLE,
    default=0,
    show_default=True,
    help="With sobol: with how many other seeds each winner is trained again.",
)
@click.option("--no-pruning", is_flag=True, help="Let every trial run to its end; the winners are the same.")
@click.option("--extend/--no-extend", default=None,
              help="Whether a search may leave its space; by default it may, but not a shard of sobol.")  # fmt: skip
@click.option("--precision", type=PART,
              help="Half the interval of steps that is enough, such as 5%: as many seeds as it takes.")  # fmt: skip
@click.option("--time-budget", type=DURATION,
              help="90s, 20m or 3h, after which no trial is started; what is left goes to more seeds.")  # fmt: skip
@click.option("--retry-failed", is_flag=True, help="Run trials again that failed in earlier runs.")
@click.option("--take-over", is_flag=True,
              help="Take the store from another sweep at once; that one can write no more.")  # fmt: skip
@click.option("--workers", type=WHOLE, help="Processes of this machine; one per core by default.")
@click.option("--ray", help="Address of a Ray cluster to run on instead, or auto.")
@click.option("--cpus", type=WHOLE, default=1, show_default=True, help="Of each trial.")
@click.option("--gpus", type=NUMBER, default=0, show_default=True, help="Of each trial.")
@click.option("--shard", help="I/N: only every N-th family of optimizers, with sobol every N-th trial.")
@click.option("--device", help="cpu, cuda or mps; cpu by default, with --gpus cuda.")
@data_dir_option
@json_option
def sweep_command(
    workload: str, optimizers: list[str], store: Path, no_pruning: bool, as_json: bool, **options: Any
) -> None:
    """Tune every optimizer at every batch size.

    WORKLOAD is as for `batchlens train`. The sweep is kept in one file, and running it means filling in what is
    missing: after Ctrl-C or a crash run the same again. More --seeds, or with sobol more --trials, add only those;
    anything else that differs is refused.

    \b
    Examples:
      batchlens sweep digits --optimizers sgd,momentum --batch-sizes 16..1024 --store digits.sqlite
      batchlens sweep digits --optimizers adam --precision 5% --time-budget 20m --store adam.sqlite
      batchlens report digits.sqlite
    """
    import_extra("torch")
    from batchlens.sweep.running import SweepInterrupted

    with _live_table(workload) as watch:
        try:
            result = bl.run_sweep(workload, optimizers, store=store, pruning=not no_pruning, watch=watch, **options)
        except SweepInterrupted as stopped:
            kept = f"with {stopped.ended:,} trials in {stopped.path}, {stopped.ran:,} of them from this run"
            raise click.Abort(f"{kept}; run the same command again to go on.") from None
    _print_sweep(result, as_json)


@click.command("report")
@click.argument("file", type=_FILE)
@click.option("--out", type=_FILE, help="Folder for the page, its figures and their numbers; FILE-report by default.")
@click.option("--csv", type=_FILE, help="Folder for results, trials and histories as CSV files.")
@json_option
def report_command(file: Path, out: Path | None, csv: Path | None, as_json: bool) -> None:
    """What a sweep found: curves, best settings, page.

    FILE is what `batchlens sweep --store` made; the sweep may still be running. Or what `batchlens measure --out` made:
    then curvature and noise.

    For every optimizer the critical batch size by four definitions, as in `batchlens fit`, with 95% intervals from
    the scatter of the fresh seeds, of sobol from resampling the trials; a ? is an end that they leave open. Steps are
    the geometric mean of fresh seeds with its 90% interval, of sobol those of the best trial.

    \b
    Examples:
      batchlens report digits.sqlite
      batchlens report digits.sqlite --out page --csv tables
    """
    from batchlens.report._curvature.page import is_measurement

    if is_measurement(file):
        if csv is not None:
            raise click.UsageError("--csv is for sweeps: the page of a measurement has its numbers beside it.")
        report_measurement(file, out, as_json)
        return
    sweep = bl.read_sweep(file)
    with progress_bar("Drawing") as advance:
        page = bl.write_report(sweep, out, progress=advance)
    tables = [] if csv is None else sweep.to_csv(csv)
    if as_json:
        print_json({**sweep.as_document(), "page": str(page), "csv": list(map(str, tables))})
        return
    _print_critical(sweep)
    _print_cells(sweep)
    for table in tables:
        say(f"Table: {table}")
    say(f"Page: {page}")


@click.command("merge")
@click.argument("out", type=_FILE)
@click.argument("inputs", metavar="IN...", type=_FILE, nargs=-1, required=True)
@json_option
def merge_command(out: Path, inputs: tuple[Path, ...], as_json: bool) -> None:
    """Join the stores of a sweep's shards.

    OUT is made anew; `batchlens sweep` with --store OUT then adds what is still missing.

    \b
    Example:
      batchlens merge digits.sqlite part1.sqlite part2.sqlite
    """
    sweep = bl.merge_sweeps(out, inputs)
    if as_json:
        print_json(sweep.as_document())
        return
    say(f"{out}: {sweep.ended:,} trials; {sweep.cells_done} of {len(sweep.cells)} searches are complete.")
    if not sweep.complete:
        say(f"What is missing: batchlens sweep {sweep.declaration.workload} ... --store {out}")


def _print_sweep(sweep: "SweepResult", as_json: bool) -> None:
    if as_json:
        print_json(sweep.as_document())
        return
    assert sweep.summary is not None
    _print_cells(sweep)
    saved = f"; pruning saved {sweep.steps_saved:,} steps at the most" if sweep.steps_saved else ""
    failed = f", {sweep.summary.failed:,} of them failed" if sweep.summary.failed else ""
    ran = f"{sweep.summary.ran:,} trial{'s' * (sweep.summary.ran != 1)}"
    say(f"{ran} run, {sweep.ended:,} in {sweep.path}{failed}{saved}.")
    if not sweep.complete:
        done = f"{sweep.cells_done} of {len(sweep.cells)} searches are complete"
        say(f"{done}; run the same command again to go on." if not sweep.shard else f"{done}.")
    say(f"More: batchlens report {sweep.path}")


def _print_critical(sweep: "SweepResult") -> None:
    from batchlens.report._sweep.page import curve_words
    from batchlens.scaling._critical import DEFINITIONS

    rows = []
    for curve in sweep.measured:
        done = sum(cell.result.complete for cell in curve.cells)
        estimates: dict[str, str] = dict(zip(DEFINITIONS, curve_words(curve), strict=True))
        rows.append(
            {
                "optimizer": curve.optimizer,
                **estimates,
                **({} if sweep.complete else {"searches": f"{done} of {len(curve.cells)} complete"}),
            }
        )
    print_table("Critical batch size (95% interval)", columns_of(rows))


def _print_cells(sweep: "SweepResult") -> None:
    from batchlens.report._sweep.page import target_words

    declaration = sweep.declaration
    if declaration.search == "guided":
        rows, what = [_guided_row(cell) for cell in sweep.cells], "steps of fresh seeds"
    else:
        repeated = any(cell.result.repeats for cell in sweep.cells)
        rows, what = [_cell_row(cell, repeated) for cell in sweep.cells], "fewest steps"
    print_table(f"{declaration.workload} ({declaration.size}): {what} to {target_words(declaration)}", columns_of(rows))
    for optimizer, notes in sweep.notes.items():
        for note in notes:
            say(f"{optimizer}: {note}.")


def _cell_row(cell: "MeasuredCell", repeated: bool) -> dict[str, Any]:
    seeds = ", ".join("-" if steps is None else f"{steps:,}" for steps in cell.result.repeat_steps())
    return {
        "optimizer": cell.result.cell.optimizer,
        "batch_size": cell.batch_size,
        "steps": _steps(cell),
        "95% interval": "" if cell.interval is None else str(cell.interval),
        **({"other_seeds": seeds} if repeated else {}),
        **_settings(cell),
    }


def _guided_row(cell: "MeasuredCell") -> dict[str, Any]:
    """The mean of fresh seeds with its interval, and beside it the search's own minimum, which luck had a part in."""
    reported = cell.result.reported
    return {
        "optimizer": cell.result.cell.optimizer,
        "batch_size": cell.batch_size,
        "steps": _steps(cell),
        "90% interval": "" if cell.interval is None else str(cell.interval),
        "seeds": len(cell.result.repeats),
        "search_minimum": None if reported is None else _steps_words(reported.minimum),
        **_settings(cell),
    }


def _steps(cell: "MeasuredCell") -> str:
    if cell.steps is None:
        return {"not_reached": "no winner"}.get(cell.status, "unfinished")
    return _steps_words(cell.steps) + ("" if cell.result.complete else " (unfinished)")


def _steps_words(steps: float) -> str:
    from batchlens.report._sweep.page import steps_words

    return steps_words(steps)


def _settings(cell: "MeasuredCell") -> dict[str, Any]:
    from batchlens.report._sweep.page import settings_words

    others = {name: value for name, value in cell.settings.items() if name != "learning_rate"}
    return {
        "learning_rate": cell.settings.get("learning_rate"),
        "other_settings": settings_words(others),
        "flags": "; ".join(cell.result.flags),
    }


@contextmanager
def _live_table(workload: str) -> Iterator[Callable[["Progress"], None] | None]:
    """Cells done, time left and the best steps so far: live where a person is looking, else a line a minute."""
    if not is_watched():
        lines = Lines()
        yield lambda now: lines.say(lambda: _line(workload, now))
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), transient=True, auto_refresh=False) as live:
        yield lambda now: live.update(_show(workload, now), refresh=True)


def _show(workload: str, now: "Progress") -> "Group":
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    cells = {entry.cell: entry for entry in now.cells}
    sizes = sorted({cell.batch_size for cell in cells})
    table = Table("steps", *(f"{size:,}" for size in sizes))
    for column in table.columns[1:]:
        column.justify = "right"
    for optimizer in dict.fromkeys(cell.optimizer for cell in cells):
        found = {cell.batch_size: entry for cell, entry in cells.items() if cell.optimizer == optimizer}
        table.add_row(Text(plain(optimizer)), *(_best(found[size]) for size in sizes))
    return Group(Text(plain(_line(workload, now))), table)


def _line(workload: str, now: "Progress") -> str:
    left = "" if now.seconds_left is None else f", about {timedelta(seconds=round(now.seconds_left))} left"
    return (
        f"{workload}: {now.cells_done} of {len(now.cells)} searches complete, {now.ended:,} trials, "
        f"{now.running} running{left}"
    )


def _best(entry: "CellProgress") -> "Text":
    """Steps so far, and how uncertain they are once a round is done; bold once the search is complete."""
    from rich.text import Text

    if entry.best_steps is None:
        return Text("none" if entry.complete else f"{entry.counted}/{entry.trials}")
    within = "" if entry.uncertainty is None else f" ±{entry.uncertainty:.0%}"
    return Text(f"{_steps_words(entry.best_steps)}{within}", "bold" if entry.complete else "")
