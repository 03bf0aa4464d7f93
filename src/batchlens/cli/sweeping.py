"""Sweeps: running them, reporting on them, joining their parts."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchlens.cli.options import data_dir_option, json_option
from batchlens.cli.progress import progress_bar
from batchlens.cli.terminal import NUMBER, WHOLE, WHOLES, Names, columns_of, print_json, print_table
from batchlens.extras import import_extra

if TYPE_CHECKING:
    from rich.console import Group

    from batchlens.sweep._curves import MeasuredCell, MeasuredSweep
    from batchlens.sweep._progress import CellProgress, Progress
    from batchlens.sweep.running import Summary

_FILE = click.Path(path_type=Path)


@click.command("sweep")
@click.argument("workload")
@click.option("--optimizers", type=Names(), required=True, help="sgd,momentum,kfac,...; each also with +ema.")
@click.option("--batch-sizes", type=WHOLES,
              help="16,64,256 or 16..4096 for each doubling; the workload's by default.")  # fmt: skip
@click.option("--trials", type=WHOLE, help="Of each optimizer and batch size; the workload's by default.")
@click.option("--store", type=_FILE, required=True, help="File that keeps the sweep; made where there is none.")
@click.option("--size", type=click.Choice(["laptop", "paper"]), default="laptop", show_default=True,
              help="As published, or narrower with an easier target.")  # fmt: skip
@click.option("--seed", type=WHOLE, default=0, show_default=True, help="Of the search and of the runs.")
@click.option("--target", type=NUMBER, help="Metric to reach; the workload's by default.")
@click.option("--target-on", type=click.Choice(["validation", "train"]), default="validation", show_default=True,
              help="Where the target is to be reached.")  # fmt: skip
@click.option("--max-steps", type=WHOLE, help="Step budget of a run; the workload's by default.")
@click.option("--keep", type=WHOLE, default=5, show_default=True,
              help="So many of the best trials are known exactly; slower ones may be cut short.")  # fmt: skip
@click.option("--repeats", type=WHOLE, default=0, show_default=True, help="Train each winner with so many other seeds.")
@click.option("--no-pruning", is_flag=True, help="Let every trial run to its end; the winners are the same.")
@click.option("--extend", is_flag=True, help="Widen search spaces near whose edge the winner is.")
@click.option("--retry-failed", is_flag=True, help="Run trials again that failed in earlier runs.")
@click.option("--workers", type=WHOLE, help="Processes of this machine; one a core by default.")
@click.option("--ray", help="Address of a Ray cluster to run on instead, or auto.")
@click.option("--cpus", type=WHOLE, default=1, show_default=True, help="Of each trial.")
@click.option("--gpus", type=NUMBER, default=0, show_default=True, help="Of each trial.")
@click.option("--shard", help="I/N: only every N-th trial, from the I-th on.")
@click.option("--device", help="cpu, cuda or mps; cpu by default, with --gpus cuda.")
@data_dir_option
@json_option
def sweep_command(
    workload: str,
    optimizers: list[str],
    batch_sizes: list[int] | None,
    store: Path,
    repeats: int,
    no_pruning: bool,
    extend: bool,
    retry_failed: bool,
    workers: int | None,
    ray: str | None,
    cpus: int,
    gpus: float,
    shard: str | None,
    device: str | None,
    data_dir: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Tune every optimizer at every batch size.

    WORKLOAD is as for `batchlens train`. The sweep is kept in one file, and running it means filling in what is
    missing: after Ctrl-C or a crash run the same again. More --trials add only those; anything else that differs is
    refused.

    \b
    Examples:
      batchlens sweep digits --optimizers sgd,momentum --batch-sizes 16..1024 --trials 20 --store digits.sqlite
      batchlens report digits.sqlite
    """
    import_extra("torch")
    from batchlens.checks import require_number
    from batchlens.sweep._declaration import Shard
    from batchlens.sweep._declare import declare
    from batchlens.sweep.running import SweepInterrupted, run_sweep

    part = None if shard is None else Shard.parse(shard)
    sizes = None if batch_sizes is None else sorted(set(batch_sizes))
    declaration = declare(workload, optimizers, batch_sizes=sizes, **options)
    with _live_table(workload) as watch:
        try:
            summary = run_sweep(
                declaration,
                store,
                workers=workers,
                ray=ray,
                cpus=cpus,
                gpus=require_number("gpus", gpus, low=0),
                shard=part,
                pruning=not no_pruning,
                repeats=repeats,
                extend=extend,
                retry_failed=retry_failed,
                data_dir=data_dir,
                device=device,
                watch=watch,
            )
        except SweepInterrupted as stopped:
            kept = f"with {stopped.ended:,} trials in {stopped.path}, {stopped.ran:,} of them from this run"
            raise click.Abort(f"{kept}; run the same command again to go on.") from None
    _print_sweep(_read(store), summary, as_json)


@click.command("report")
@click.argument("file", type=_FILE)
@click.option("--out", type=_FILE, help="Folder for the page, its figures and their numbers; FILE-report by default.")
@click.option("--csv", type=_FILE, help="Folder for results, trials and histories as CSV files.")
@json_option
def report_command(file: Path, out: Path | None, csv: Path | None, as_json: bool) -> None:
    """What a sweep found: curves, best settings, page.

    FILE is what `batchlens sweep --store` made; the sweep may still be running.

    For every optimizer the critical batch size by three definitions, as in `batchlens fit`, with 95% intervals from
    resampling the trials; a ? is an end that they leave open.

    \b
    Examples:
      batchlens report digits.sqlite
      batchlens report digits.sqlite --out page --csv tables
    """
    from batchlens.report._sweep.page import MOST_PANELS, write_sweep_report

    sweep = _read(file)
    folder = file.with_name(f"{file.stem}-report") if out is None else out
    with progress_bar("Drawing", MOST_PANELS) as advance:
        write_sweep_report(sweep, folder, advance)
    tables = [] if csv is None else _export(file, csv)
    page = folder / "index.html"
    if as_json:
        print_json({**sweep.as_document(), "page": str(page), "csv": list(map(str, tables))})
        return
    _print_critical(sweep)
    _print_cells(sweep)
    for table in tables:
        click.echo(f"Table: {table}")
    click.echo(f"Page: {page}")


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
    from batchlens.sweep.merging import merge_stores

    merge_stores(out, inputs)
    sweep = _read(out)
    done = sum(cell.result.complete for cell in sweep.cells)
    if as_json:
        print_json(
            {
                "store": str(out),
                "ended": sweep.trials,
                "cells_done": done,
                "cells": len(sweep.cells),
                "complete": sweep.complete,
            }
        )
        return
    click.echo(f"{out}: {sweep.trials:,} trials; {done} of {len(sweep.cells)} searches are complete.")
    if not sweep.complete:
        click.echo(f"What is missing: batchlens sweep {sweep.declaration.workload} ... --store {out}")


def _read(path: Path) -> "MeasuredSweep":
    from batchlens.sweep._curves import read_sweep
    from batchlens.sweep._store import Store

    with Store.open(path) as store:
        return read_sweep(store)


def _export(path: Path, folder: Path) -> list[Path]:
    from batchlens.sweep._store import Store
    from batchlens.sweep.merging import export_csv

    with Store.open(path) as store:
        return export_csv(store, folder)


def _print_sweep(sweep: "MeasuredSweep", summary: "Summary", as_json: bool) -> None:
    if as_json:
        names = ("ran", "failed", "retried", "seconds")
        did = {name: value for name, value in asdict(summary).items() if name in names}
        print_json({"store": str(summary.path), **did, **sweep.as_document()})
        return
    _print_cells(sweep)
    saved = f"; pruning saved {summary.steps_saved:,} steps at the most" if summary.steps_saved else ""
    click.echo(f"{summary.ran:,} trials run, {summary.ended:,} in {summary.path}{saved}.")
    click.echo(f"More: batchlens report {summary.path}")


def _print_critical(sweep: "MeasuredSweep") -> None:
    from batchlens.report._sweep.page import estimate_words

    rows = [
        {"optimizer": curve.optimizer, **dict(zip(("knee", "overhead", "fit"), estimate_words(curve), strict=True))}
        for curve in sweep.curves
    ]
    print_table("Critical batch size (95% interval)", columns_of(rows))


def _print_cells(sweep: "MeasuredSweep") -> None:
    declaration = sweep.declaration
    where = f"{declaration.target:g} on the {declaration.target_on} set"
    repeated = any(cell.result.repeats for cell in sweep.cells)
    rows = [_cell_row(cell, repeated) for cell in sweep.cells]
    print_table(f"{declaration.workload} ({declaration.size}): fewest steps to {where}", columns_of(rows))


def _cell_row(cell: "MeasuredCell", repeated: bool) -> dict[str, Any]:
    from batchlens.report._sweep.page import settings_words

    none = {"not_reached": "no winner", "unfinished": "unfinished"}
    others = {name: value for name, value in cell.settings.items() if name != "learning_rate"}
    seeds = ", ".join("-" if steps is None else f"{steps:,}" for steps in cell.result.repeat_steps())
    return {
        "optimizer": cell.result.cell.optimizer,
        "batch_size": cell.batch_size,
        "steps": none.get(cell.status, cell.steps),
        "95% interval": "" if cell.interval is None else str(cell.interval),
        **({"other_seeds": seeds} if repeated else {}),
        "learning_rate": cell.settings.get("learning_rate"),
        "other_settings": settings_words(others),
        "flags": "; ".join(cell.result.flags),
    }


@contextmanager
def _live_table(workload: str) -> Iterator[Callable[["Progress"], None] | None]:
    """Cells done, time left and the best steps so far, where a person is looking."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), transient=True, auto_refresh=False) as live:
        yield lambda now: live.update(_show(workload, now), refresh=True)


def _show(workload: str, now: "Progress") -> "Group":
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    left = "" if now.seconds_left is None else f", about {timedelta(seconds=round(now.seconds_left))} left"
    line = (
        f"{workload}: {now.cells_done} of {len(now.cells)} searches complete, {now.ended:,} trials, "
        f"{now.running} running{left}"
    )
    cells = {entry.cell: entry for entry in now.cells}
    sizes = sorted({cell.batch_size for cell in cells})
    table = Table("best steps", *(f"{size:,}" for size in sizes))
    for column in table.columns[1:]:
        column.justify = "right"
    for optimizer in dict.fromkeys(cell.optimizer for cell in cells):
        found = {cell.batch_size: entry for cell, entry in cells.items() if cell.optimizer == optimizer}
        table.add_row(optimizer, *(_best(found[size]) for size in sizes))
    return Group(Text(line), table)


def _best(entry: "CellProgress") -> str:
    """Bold once the search is complete."""
    if entry.best_steps is None:
        return "none" if entry.complete else f"{entry.counted}/{entry.trials}"
    return f"[bold]{entry.best_steps:,}[/bold]" if entry.complete else f"{entry.best_steps:,}"
