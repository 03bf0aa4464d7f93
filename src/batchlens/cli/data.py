"""The data sets to train on."""

import sys
from pathlib import Path
from typing import Any

import click

from batchlens.cli.options import data_dir_option, json_option
from batchlens.cli.progress import download_bar, track
from batchlens.cli.terminal import columns_of, print_json, print_table, say


@click.group("data")
def data_group() -> None:
    """The data sets to train on: list, fetch, verify.

    They lie in --data-dir, else in $BATCHLENS_DATA, else in ~/.cache/batchlens.

    \b
    Examples:
      batchlens data list
      batchlens data fetch mnist
      batchlens data verify --json
    """


@data_group.command("list")
@data_dir_option
@json_option
def data_list_command(data_dir: Path | None, as_json: bool) -> None:
    """What there is to train on, and what of it is here.

    \b
    Example:
      batchlens data list
    """
    from batchlens.training.data._catalogue import SOURCES
    from batchlens.training.data._sources import find_dataset_folder, find_folder, is_present

    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "what": source.title,
            "examples": source.examples,
            "download": source.download,
            "licence": source.licence,
            "folder": str(find_dataset_folder(name, data_dir)),
            "present": is_present(name, data_dir),
        }
        for name, source in SOURCES.items()
    ]
    if as_json:
        print_json({"folder": str(find_folder(data_dir)), "datasets": rows})
        return
    for row in rows:
        row["download"] = f"{row['download'] / 1e6:,.1f} MB" if row["download"] else "none"
        row["present"] = "yes" if row["present"] else "no"
        del row["licence"]
    print_table(f"Data sets in {find_folder(data_dir)}", columns_of(rows))


@data_group.command("fetch")
@click.argument("name")
@data_dir_option
@json_option
def data_fetch_command(name: str, data_dir: Path | None, as_json: bool) -> None:
    """Bring a data set from its official place.

    What is already there and right is left alone.

    \b
    Examples:
      batchlens data fetch mnist
      batchlens data fetch cifar10 --data-dir data
    """
    from batchlens.training.data._sources import find_dataset_folder
    from batchlens.training.data.fetching import fetch

    _require_dataset(name)
    with download_bar() as progress:
        files = fetch(name, data_dir, progress=progress)
    folder = find_dataset_folder(name, data_dir)
    if as_json:
        print_json({"name": name, "folder": str(folder), "files": [file._asdict() for file in files]})
        return
    print_table(f"{name} in {folder}", columns_of([file._asdict() for file in files]))


@data_group.command("verify")
@click.argument("name", required=False)
@data_dir_option
@json_option
def data_verify_command(name: str | None, data_dir: Path | None, as_json: bool) -> None:
    """Whether data sets are the official ones, file by file.

    Every file is read and its checksum compared. The exit status is 1 where one is missing or damaged.

    \b
    Examples:
      batchlens data verify
      batchlens data verify mnist --data-dir data
    """
    from batchlens.training.data._catalogue import NAMES
    from batchlens.training.data._sources import find_folder, remedy, verify

    if name is not None:
        _require_dataset(name)
    rows, wrong = [], []
    for dataset in track([name] if name else list(NAMES), "Verifying"):
        found = verify(dataset, data_dir)
        rows += [
            {
                "dataset": dataset,
                "file": file.file,
                "state": file.state,
                "path": str(file.path),
                "problem": file.problem,
            }
            for file in found
        ]
        wrong += [dataset for file in found if file.state in ("missing", "damaged")]
    if as_json:
        print_json({"folder": str(find_folder(data_dir)), "right": not wrong, "files": rows})
    else:
        columns = {key: [row[key] for row in rows] for key in ("dataset", "file", "state", "problem")}
        print_table(f"Data sets in {find_folder(data_dir)}", columns)
        for dataset in dict.fromkeys(wrong):
            say(f"{dataset}: run `{remedy(dataset, data_dir)}`")
    if wrong:
        sys.exit(1)


def _require_dataset(name: str) -> None:
    from batchlens.training.data._catalogue import NAMES

    if name not in NAMES:
        raise click.UsageError(f"NAME must be one of {', '.join(NAMES)}, got {name}.")
