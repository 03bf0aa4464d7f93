"""Where a sweep's results are kept: one SQLite file, each trial written in one transaction.

Reading needs no torch.  The file works on network file systems: it has a rollback journal, not a write-ahead log.
"""

import json
import sqlite3
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from batchlens.errors import BatchlensError
from batchlens.sweep._declaration import Cell, Declaration
from batchlens.sweep._lock import TABLE as LOCK_TABLE
from batchlens.sweep._lock import Holder, Lock, find_dead
from batchlens.sweep._reading import AS_IS, AS_JSON, COLUMNS, KEY, Row, declaration_of, generations_of, trials_of
from batchlens.sweep._search import Generation
from batchlens.sweep._trial import Entry, Key, Trial

if TYPE_CHECKING:
    import pandas

VERSION = 3
# What earlier versions called, or did not have, of the columns of a trial.
_IN_VERSION_2 = {"interpolated": "NULL", "crossings": "'{}'"}
_IN_VERSION_1 = {"settings": "parameters", "notes": "'[]'", **_IN_VERSION_2}
APPLICATION = 0x626C7377  # "blsw"
# Seconds to wait for another process that reads or writes.
_PATIENCE = 30.0

_TABLES = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE generations (optimizer TEXT NOT NULL, batch_size INTEGER NOT NULL, first INTEGER NOT NULL,"
    " box TEXT NOT NULL, PRIMARY KEY (optimizer, batch_size, first))",
    "CREATE TABLE trials (id INTEGER PRIMARY KEY, optimizer TEXT NOT NULL, batch_size INTEGER NOT NULL,"
    " number INTEGER NOT NULL, repeat INTEGER NOT NULL, settings TEXT NOT NULL, position TEXT NOT NULL,"
    " status TEXT NOT NULL CHECK (status IN ('reached', 'not_reached', 'pruned', 'diverged', 'failed')),"
    " steps INTEGER, steps_taken INTEGER NOT NULL, metric REAL, seconds REAL NOT NULL, seed INTEGER NOT NULL,"
    " host TEXT NOT NULL, versions TEXT NOT NULL, reason TEXT NOT NULL, notes TEXT NOT NULL,"
    " interpolated REAL, crossings TEXT NOT NULL DEFAULT '{}',"
    " UNIQUE (optimizer, batch_size, number, repeat))",
    "CREATE TABLE histories (trial INTEGER NOT NULL REFERENCES trials (id), step INTEGER NOT NULL, metric REAL,"
    " relation TEXT NOT NULL, PRIMARY KEY (trial, step)) WITHOUT ROWID",
    LOCK_TABLE,
)


class Store:
    """A sweep's file; open it with `Store.open(path)`, as a context manager or with `close` at the end."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self._connection = path, connection
        self._lock: Lock | None = None
        self._old = 0  # the version, where it is an earlier one
        self._lost: dict[str, None] = {}

    @classmethod
    def open(cls, path: Path | str) -> "Store":
        """For reading, while a sweep writes too; of a damaged store what can be read, with a warning at the end."""
        path = Path(path)
        if not path.is_file():
            raise BatchlensError(f"{path} is not a file.")
        store = cls(path, _connect(path, "rw"))
        try:
            if store._version() is None:
                raise BatchlensError(f"{path} is empty: no sweep has been declared in it.")
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def open_to_write(
        cls, path: Path | str, declaration: Declaration, shard: str = "", take_over: bool = False
    ) -> "Store":
        """For the sweep `declaration`: created where there is none, locked until closed, refused where they differ.

        More trials than the store was made for are taken up. `take_over` takes it from a sweep that may be alive.
        """
        path = Path(path)
        store = cls(path, _connect(path, "rwc"))
        lock = Lock()
        try:
            version = store._version()
            dead = None if version is None or take_over else store._find_dead()
            with store._transaction():
                if version is None and not store._has_tables():
                    store._create(declaration, shard)
                lock.take(store._connection, path, dead, take_over)
                store._grow(declaration, shard)
                if store._old:
                    store._renew()
            store._lock = lock
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Releases the file."""
        with closing(self._connection):
            if self._lock is not None:
                lock, self._lock = self._lock, None
                with self._transaction():
                    lock.release(self._connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except BatchlensError:
            if error is None:
                raise
        if error is None and self._lost:
            warnings.warn(f"{self.path} is damaged: {self.lost}.", stacklevel=2)

    @property
    def lost(self) -> str:
        """In words, what could not be read so far; empty where nothing is damaged."""
        return "; ".join(self._lost)

    @property
    def declaration(self) -> Declaration:
        """The sweep that the store is of."""
        try:
            return declaration_of(self._meta("declaration"))
        except ValueError as error:
            raise BatchlensError(f"{self.path} is damaged: {error}, and nothing else can be told without it.") from None

    @property
    def shard(self) -> str:
        """ "I/N" where the store holds a part of the sweep, "" where it holds the whole."""
        return self._meta("shard")

    def generations(self) -> dict[Cell, list[Generation]]:
        """The boxes that were searched, of every cell."""
        columns = "optimizer, batch_size, first, box"
        rows = self._all_rows(columns, "generations", ("optimizer", "batch_size", "first"), "the boxes searched")
        found, bad = generations_of(rows, self.declaration)
        if bad:
            self._lose(f"{bad} widened search {'space' if bad == 1 else 'spaces'} cannot be read")
        return found

    def read_trials(self, histories: bool = False) -> list[Trial]:
        """Every trial that has ended, by its key; without histories unless asked for."""
        found = self._numbered_trials()
        if not histories:
            return [trial for _, trial in found]
        entries: dict[int, list[Entry]] = {}
        for trial, *entry in self._history_rows():
            entries.setdefault(trial, []).append((entry[0], _number(entry[1]), entry[2]))
        return [replace(trial, history=tuple(entries.get(identity, ()))) for identity, trial in found]

    def trials(self) -> "pandas.DataFrame":
        """One row per trial, one column per setting and per version."""
        import pandas

        trials = self.read_trials()
        told = pandas.DataFrame([[getattr(trial, name) for name in AS_IS] for trial in trials], columns=list(AS_IS))
        columns = [
            pandas.DataFrame([trial.key for trial in trials], columns=list(KEY)),
            pandas.DataFrame([trial.settings for trial in trials], index=told.index),
            told.astype({"steps": "Int64", "metric": "float64"}),
            pandas.DataFrame({"notes": ["; ".join(trial.notes) for trial in trials]}, index=told.index),
            pandas.DataFrame([trial.versions for trial in trials], index=told.index).add_suffix("_version"),
        ]
        return pandas.concat(columns, axis=1)

    def histories(self) -> "pandas.DataFrame":
        """Every evaluation of every trial; where `relation` is not "=", the metric is a bound."""
        import pandas

        keys = {identity: trial.key for identity, trial in self._numbered_trials()}
        rows = [(*keys[trial], *entry) for trial, *entry in self._history_rows() if trial in keys]
        columns = [*KEY, "step", "metric", "relation"]
        frame = pandas.DataFrame(rows, columns=columns).astype({"metric": "float64"})
        return frame.sort_values([*KEY, "step"], kind="stable", ignore_index=True)

    def add(self, trial: Trial) -> None:
        """Keeps a trial; when this returns, it is on the disk."""
        with self._writing():
            self.insert(trial)

    def drop(self, keys: Collection[Key]) -> None:
        """Forgets trials, so that they are run again."""
        with self._writing():
            gone = [(identity,) for identity, trial in self._numbered_trials() if trial.key in keys]
            self._connection.executemany("DELETE FROM histories WHERE trial = ?", gone)
            self._connection.executemany("DELETE FROM trials WHERE id = ?", gone)

    def keep_histories(self, keys: Collection[Key]) -> None:
        """Forgets the histories of all other trials, and gives the room back to the disk."""
        with self._writing():
            others = [(identity,) for identity, trial in self._numbered_trials() if trial.key not in keys]
            self._connection.executemany("DELETE FROM histories WHERE trial = ?", others)
        with _plain_errors(self.path):
            self._connection.execute("VACUUM")

    def insert(self, trial: Trial) -> None:
        """Inside a transaction."""
        values = [*trial.key, *(_as_json(getattr(trial, name)) for name in AS_JSON)]
        values += [getattr(trial, name) for name in AS_IS]
        marks = ", ".join("?" * len(values))
        columns = ", ".join(COLUMNS)
        identity = self._connection.execute(f"INSERT INTO trials ({columns}) VALUES ({marks})", values).lastrowid
        rows = [(identity, *entry) for entry in trial.history]
        self._connection.executemany("INSERT OR REPLACE INTO histories VALUES (?, ?, ?, ?)", rows)

    def add_generation(self, cell: Cell, generation: Generation) -> None:
        """Keeps the box in which a search goes on."""
        with self._writing():
            self.insert_generation(cell, generation)

    def insert_generation(self, cell: Cell, generation: Generation) -> None:
        """Inside a transaction."""
        row = (*cell, generation.first, json.dumps(dict(generation.box)))
        self._connection.execute("INSERT INTO generations VALUES (?, ?, ?, ?)", row)

    def beat(self) -> None:
        """Shows a sign of life, where it is time to."""
        if self._lock is not None and self._lock.due:
            with self._writing():
                pass

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """One transaction for several `insert`s."""
        with self._writing():
            yield

    def refuse_if_locked(self) -> None:
        """Where a live sweep writes the store."""
        self._find_dead()

    def _find_dead(self) -> Holder | None:
        with _plain_errors(self.path):
            return find_dead(self._connection, self.path)

    def _create(self, declaration: Declaration, shard: str) -> None:
        for statement in _TABLES:
            self._connection.execute(statement)
        self._connection.execute(f"PRAGMA application_id = {APPLICATION}")
        self._connection.execute(f"PRAGMA user_version = {VERSION}")
        rows = [("declaration", declaration.as_json()), ("shard", shard)]
        self._connection.executemany("INSERT INTO meta VALUES (?, ?)", rows)

    def _renew(self) -> None:
        """Brings a store of an earlier version up to date, inside a transaction."""
        if self._old == 1:
            self._connection.execute("ALTER TABLE trials RENAME COLUMN parameters TO settings")
            self._connection.execute("ALTER TABLE trials ADD COLUMN notes TEXT NOT NULL DEFAULT '[]'")
        self._connection.execute("ALTER TABLE trials ADD COLUMN interpolated REAL")
        self._connection.execute("ALTER TABLE trials ADD COLUMN crossings TEXT NOT NULL DEFAULT '{}'")
        self._connection.execute(f"PRAGMA user_version = {VERSION}")
        self._old = 0

    def _numbered_trials(self) -> list[tuple[int, Trial]]:
        """Trials by their keys, each with the number of its row."""
        otherwise = {0: {}, 1: _IN_VERSION_1, 2: _IN_VERSION_2}[self._old]
        names = [otherwise.get(name, name) for name in COLUMNS]
        rows = self._all_rows(f"id, {', '.join(names)}", "trials", ("id",), "trials")
        found, bad = trials_of(rows, self.declaration)
        if bad:
            self._lose(f"{bad:,} of {len(rows):,} trials cannot be read")
        return found

    def _history_rows(self) -> list[Row]:
        rows = self._all_rows("trial, step, metric, relation", "histories", ("trial", "step"), "histories")
        return [row for row in rows if isinstance(row[1], int) and isinstance(row[3], str) and _is_real(row[2])]

    def _all_rows(self, columns: str, table: str, order: tuple[str, ...], what: str) -> list[Row]:
        """A table from its first row on, and where it breaks off also from its last one back.

        By the order in which it lies in the file: an index may be damaged as well, and lead to other rows.
        """
        query = f"SELECT {columns} FROM {table} ORDER BY "
        found: list[Row] = []
        try:
            with _plain_errors(self.path):
                found.extend(self._connection.execute(query + ", ".join(order)))
            return found
        except BatchlensError as error:
            if not _is_damage(error.__cause__):
                raise
            backwards: list[Row] = []
            with suppress(sqlite3.Error, UnicodeDecodeError):
                backwards.extend(self._connection.execute(query + ", ".join(f"{name} DESC" for name in order)))
        rows = list(dict.fromkeys([*found, *reversed(backwards)]))
        self._lose(f"of its {what} {len(rows):,} can be read, and others not")
        return rows

    def _lose(self, what: str) -> None:
        """Notes what cannot be read; a sweep does not go on with a part."""
        if self._lock is not None:
            raise BatchlensError(
                f"{self.path} is damaged: {what}. What can be read is kept by `batchlens merge NEW {self.path}`, and a "
                "sweep can go on with that."
            )
        self._lost[what] = None

    def _grow(self, asked: Declaration, shard: str) -> None:
        """Checks that what is asked for is what the store is of, but for more trials."""
        here = self.declaration
        if differences := here.differences(asked):
            raise BatchlensError(f"{self.path} holds another sweep: {'; '.join(differences)}.")
        if shard != self.shard:
            names = [f"shard {name}" if name else "the whole sweep" for name in (self.shard, shard)]
            raise BatchlensError(f"{self.path} holds {names[0]}, not {names[1]}.")
        if asked.trials != here.trials and here.search == "guided":
            raise BatchlensError(f"{self.path} was made for {here.trials} trials, which its rounds follow from.")
        if asked.trials < here.trials:
            raise BatchlensError(f"{self.path} was made for {here.trials} trials; it cannot be cut to {asked.trials}.")
        if (asked.trials, asked.seeds, asked.precision) != (here.trials, here.seeds, here.precision):
            self._connection.execute("UPDATE meta SET value = ? WHERE name = 'declaration'", (asked.as_json(),))

    def _version(self) -> int | None:
        """Refuses what is no store of this version; None for a file without any content."""
        with _plain_errors(self.path):
            (application,) = self._connection.execute("PRAGMA application_id").fetchone()
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            if (application, version) == (0, 0) and not self._has_tables():
                return None
        if application != APPLICATION:
            raise BatchlensError(f"{self.path} is not a sweep's store.")
        if not 1 <= version <= VERSION:
            raise BatchlensError(f"{self.path} is a store of version {version}; this batchlens reads 1 to {VERSION}.")
        self._old = version if version < VERSION else 0
        return int(version)

    def _has_tables(self) -> bool:
        return self._connection.execute("SELECT 1 FROM sqlite_master").fetchone() is not None

    def _meta(self, name: str) -> str:
        rows = self._rows("SELECT value FROM meta WHERE name = ?", (name,))
        if not rows:
            raise BatchlensError(f"{self.path} is damaged: its {name} is missing, and nothing can be told without it.")
        return str(rows[0][0])

    def _rows(self, query: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        with _plain_errors(self.path):
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction of the sweep that holds the lock."""
        if self._lock is None:
            raise BatchlensError(f"{self.path} is open for reading only.")
        with self._transaction():
            self._lock.hold(self._connection, self.path)
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _plain_errors(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                # After some errors, a full disk among them, SQLite has rolled back itself.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    with _plain_errors(path):
        uri = f"{path.absolute().as_uri()}?mode={mode}"
        connection = sqlite3.connect(uri, uri=True, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.text_factory = _text
        except BaseException:
            connection.close()
            raise
        return connection


@contextmanager
def _plain_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise BatchlensError(_explain(path, error)) from error


def _explain(path: Path, error: Exception) -> str:
    match getattr(error, "sqlite_errorname", ""):
        case "SQLITE_NOTADB":
            return f"{path} is not a sweep's store."
        case "SQLITE_FULL":
            return f"{path}: the disk is full. What is in the store is kept: make room and run the same again."
        case "SQLITE_BUSY":
            return f"{path} is locked by another process."
        case "SQLITE_CANTOPEN":
            return f"{path} cannot be opened: is its folder there, and may you write to it?"
        case "SQLITE_READONLY":
            return f"{path} cannot be written: it, or its folder, is read-only."
    if _is_damage(error):
        return f"{path} is damaged, and nothing of it can be read ({error})."
    return f"{path}: {error}."


def _is_damage(error: BaseException | None) -> bool:
    """What SQLite says of a file in which something is not as it was written."""
    if isinstance(error, UnicodeDecodeError):  # of names that SQLite quotes
        return True
    name = getattr(error, "sqlite_errorname", "")
    damaged = name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT", "SQLITE_IOERR_SHORT_READ"))
    return damaged or name in ("SQLITE_ERROR", "SQLITE_TOOBIG", "SQLITE_NOMEM", "SQLITE_SCHEMA")


def _as_json(value: Mapping[str, Any] | tuple[str, ...]) -> str:
    return json.dumps(dict(value) if isinstance(value, Mapping) else list(value))


def _number(value: float | None) -> float:
    """SQLite keeps NaN as NULL."""
    return float("nan") if value is None else value


def _is_real(value: object) -> bool:
    return value is None or isinstance(value, int | float)


def _text(value: bytes) -> str:
    """Text of which some bytes are damaged is not what any trial says, but no reason to stop."""
    return value.decode(errors="replace")
