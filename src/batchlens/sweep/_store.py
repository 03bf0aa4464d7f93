"""Where a sweep's results are kept: one SQLite file, each trial written in one transaction.

Reading needs no torch.  The file works on network file systems: it has a rollback journal, not a write-ahead log.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from batchlens.errors import BatchlensError
from batchlens.sweep._declaration import Cell, Declaration
from batchlens.sweep._lock import TABLE as LOCK_TABLE
from batchlens.sweep._lock import Holder, Lock, find_dead
from batchlens.sweep._search import Generation
from batchlens.sweep._trial import Key, Trial

if TYPE_CHECKING:
    import pandas

VERSION = 2
# What version 1 called, or did not have, of the columns of a trial.
_IN_VERSION_1 = {"settings": "parameters", "notes": "'[]'"}
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
    " UNIQUE (optimizer, batch_size, number, repeat))",
    "CREATE TABLE histories (trial INTEGER NOT NULL REFERENCES trials (id), step INTEGER NOT NULL, metric REAL,"
    " relation TEXT NOT NULL, PRIMARY KEY (trial, step)) WITHOUT ROWID",
    LOCK_TABLE,
)
_KEY = ("optimizer", "batch_size", "number", "repeat")
_AS_JSON = ("settings", "position", "versions", "notes")
_AS_IS = ("status", "steps", "steps_taken", "metric", "seconds", "seed", "host", "reason")
_COLUMNS = (*_KEY, *_AS_JSON, *_AS_IS)


class Store:
    """A sweep's file; open it with `Store.open(path)`, as a context manager or with `close` at the end."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self._connection = path, connection
        self._lock: Lock | None = None
        self._old = False

    @classmethod
    def open(cls, path: Path | str) -> "Store":
        """For reading, while a sweep writes too."""
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

    @property
    def declaration(self) -> Declaration:
        """The sweep that the store is of."""
        return Declaration.from_json(self._meta("declaration"))

    @property
    def shard(self) -> str:
        """ "I/N" where the store holds a part of the sweep, "" where it holds the whole."""
        return self._meta("shard")

    def generations(self) -> dict[Cell, list[Generation]]:
        """The boxes that were searched, of every cell."""
        spaces = self.declaration.spaces
        found = {
            cell: [Generation(0, dict.fromkeys(spaces[cell.optimizer], (0.0, 1.0)))] for cell in self.declaration.cells
        }
        rows = self._rows("SELECT optimizer, batch_size, first, box FROM generations ORDER BY first")
        for optimizer, batch_size, first, box in rows:
            ends = {name: (low, high) for name, (low, high) in json.loads(box).items()}
            found[Cell(optimizer, batch_size)].append(Generation(first, ends))
        return found

    def read_trials(self, histories: bool = False) -> list[Trial]:
        """Every trial that has ended; without histories unless asked for."""
        rows = self._trial_rows()
        entries: dict[int, list[tuple[int, float, str]]] = {}
        if histories:
            for trial, *entry in self._rows("SELECT trial, step, metric, relation FROM histories ORDER BY trial, step"):
                entries.setdefault(trial, []).append((entry[0], _number(entry[1]), entry[2]))
        return [_trial(row, tuple(entries.get(row[0], ()))) for row in rows]

    def trials(self) -> "pandas.DataFrame":
        """One row per trial, one column per setting and per version."""
        import pandas

        frame = pandas.DataFrame([row[1:] for row in self._trial_rows()], columns=list(_COLUMNS))
        settings, versions, notes = (frame.pop(name).map(json.loads) for name in ("settings", "versions", "notes"))
        rest = frame.drop(columns="position").astype({"steps": "Int64", "metric": "float64"})
        columns = [
            rest.iloc[:, : len(_KEY)],
            pandas.DataFrame(settings.tolist(), index=rest.index),
            rest.iloc[:, len(_KEY) :],
            notes.map("; ".join).to_frame("notes"),
            pandas.DataFrame(versions.tolist(), index=rest.index).add_suffix("_version"),
        ]
        return pandas.concat(columns, axis=1)

    def histories(self) -> "pandas.DataFrame":
        """Every evaluation of every trial; where `relation` is not "=", the metric is a bound."""
        import pandas

        rows = self._rows(
            f"SELECT {', '.join(_KEY)}, h.step, h.metric, h.relation FROM histories AS h JOIN trials ON h.trial = id"
            f" ORDER BY {', '.join(_KEY)}, h.step"
        )
        columns = [*_KEY, "step", "metric", "relation"]
        return pandas.DataFrame(rows, columns=columns).astype({"metric": "float64"})

    def add(self, trial: Trial) -> None:
        """Keeps a trial; when this returns, it is on the disk."""
        with self._writing():
            self.insert(trial)

    def drop_failed(self) -> None:
        """Forgets the trials that failed, so that they are run again."""
        with self._writing():
            failed = "SELECT id FROM trials WHERE status = 'failed'"
            self._connection.execute(f"DELETE FROM histories WHERE trial IN ({failed})")
            self._connection.execute("DELETE FROM trials WHERE status = 'failed'")

    def insert(self, trial: Trial) -> None:
        """Inside a transaction."""
        values = [*trial.key, *(_as_json(getattr(trial, name)) for name in _AS_JSON)]
        values += [getattr(trial, name) for name in _AS_IS]
        marks = ", ".join("?" * len(values))
        columns = ", ".join(_COLUMNS)
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
        """Brings a store of version 1 up to date, inside a transaction."""
        self._connection.execute("ALTER TABLE trials RENAME COLUMN parameters TO settings")
        self._connection.execute("ALTER TABLE trials ADD COLUMN notes TEXT NOT NULL DEFAULT '[]'")
        self._connection.execute(f"PRAGMA user_version = {VERSION}")
        self._old = False

    def _trial_rows(self) -> list[tuple[Any, ...]]:
        names = {name: _IN_VERSION_1.get(name, name) if self._old else name for name in _COLUMNS}
        return self._rows(f"SELECT id, {', '.join(names.values())} FROM trials ORDER BY {', '.join(_KEY)}")

    def _grow(self, asked: Declaration, shard: str) -> None:
        """Checks that what is asked for is what the store is of, but for more trials."""
        here = self.declaration
        if differences := here.differences(asked):
            raise BatchlensError(f"{self.path} holds another sweep: {'; '.join(differences)}.")
        if shard != self.shard:
            names = [f"shard {name}" if name else "the whole sweep" for name in (self.shard, shard)]
            raise BatchlensError(f"{self.path} holds {names[0]}, not {names[1]}.")
        if asked.trials < here.trials:
            raise BatchlensError(f"{self.path} was made for {here.trials} trials; it cannot be cut to {asked.trials}.")
        if asked.trials > here.trials:
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
        if version not in (1, VERSION):
            raise BatchlensError(f"{self.path} is a store of version {version}; this batchlens reads 1 and {VERSION}.")
        self._old = version == 1
        return int(version)

    def _has_tables(self) -> bool:
        return self._connection.execute("SELECT 1 FROM sqlite_master").fetchone() is not None

    def _meta(self, name: str) -> str:
        return str(self._rows("SELECT value FROM meta WHERE name = ?", (name,))[0][0])

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
        except BaseException:
            connection.close()
            raise
        return connection


@contextmanager
def _plain_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise BatchlensError(_explain(path, error)) from error


def _explain(path: Path, error: sqlite3.Error) -> str:
    match getattr(error, "sqlite_errorname", ""):
        case "SQLITE_NOTADB":
            return f"{path} is not a sweep's store."
        case "SQLITE_FULL":
            return f"{path}: the disk is full. What is in the store is kept: make room and run the same again."
        case "SQLITE_BUSY":
            return f"{path} is locked by another process."
        case "SQLITE_CANTOPEN":
            return f"{path} cannot be opened: is its folder there, and may you write to it?"
    return f"{path}: {error}."


def _trial(row: tuple[Any, ...], history: tuple[tuple[int, float, str], ...]) -> Trial:
    values = dict(zip(_COLUMNS, row[1:], strict=True))
    key = Key(*(values.pop(name) for name in _KEY))
    for name in _AS_JSON:
        values[name] = json.loads(values[name])
    values["notes"] = tuple(values["notes"])
    return Trial(key=key, history=history, **values)


def _as_json(value: Mapping[str, Any] | tuple[str, ...]) -> str:
    return json.dumps(dict(value) if isinstance(value, Mapping) else list(value))


def _number(value: float | None) -> float:
    """SQLite keeps NaN as NULL."""
    return float("nan") if value is None else value
