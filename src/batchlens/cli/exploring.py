"""The theory in a browser: batchlens explore."""

from pathlib import Path

import click

import batchlens as bl
from batchlens.cli.options import json_option
from batchlens.cli.progress import progress_bar, waiting
from batchlens.cli.terminal import WHOLE, print_json, say


@click.command("explore")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--port", type=WHOLE, default=0, help="Port to listen on; by default one that is free.")
@click.option("--browser/--no-browser", default=True, help="Whether to open the page in the browser.")
@click.option("--export", type=click.Path(path_type=Path), default=None, metavar="FILE.html",
              help="Write the page with its curves into one file instead, for a talk or a site.")  # fmt: skip
@json_option
def explore_command(files: tuple[Path, ...], port: int, browser: bool, export: Path | None, as_json: bool) -> None:
    """The theory in the browser: drag a slider, watch critical batch sizes move.

    FILES are a problem to begin with (a spectrum as CSV, what batchlens measure wrote) and what is to be laid over the
    theory (runs as CSV, a sweep's store, a prediction). The server listens on this machine only; Ctrl-C ends it.

    \b
    Examples:
      batchlens explore
      batchlens explore spectrum.csv runs.csv
      batchlens explore --export explorer.html
    """
    if export is not None:
        with progress_bar("Computing curves") as tell:
            path = bl.export_explorer(export, list(files), progress=tell)
        if as_json:
            print_json({"page": str(path)})
        else:
            say(f"Page: {path}")
        return
    with waiting("Compiling the theory (a minute the first time, a moment later)"):
        explorer = bl.explore(list(files), port, browser)
    with explorer:
        try:
            if as_json:
                print_json({"address": explorer.address})
            else:
                say(f"Explorer: {explorer.address} (Ctrl-C ends it)")
            explorer.wait()
        except KeyboardInterrupt:
            say("Ended.", err=True)
