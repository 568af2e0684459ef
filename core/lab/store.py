"""What experiments found, in one SQLite file: experiments, their runs, a row a request, the environment.

The file is in WAL mode, so a panel reads while a command writes. An experiment that was killed keeps what
it had measured: rows are written block by block.
"""

import json
import os
import sqlite3
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from specpanel.core.engine import identity
from specpanel.core.errors import ConfigurationError, RecordingError
from specpanel.core.lab.schema import MIGRATIONS
from specpanel.core.private import make_private
from specpanel.core.settings.paths import data_folder
from specpanel.core.traffic.records import RequestRecord

_WAIT_S = 10.0
LAST = "last"

RUNNING, DONE, INTERRUPTED, FAILED, ABANDONED = (
    "running",
    "done",
    "interrupted",
    "failed",
    "abandoned",
)


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment. ``state`` is running, done, interrupted, failed, or abandoned (its writer died).

    ``conclusion`` is a sentence, ``result`` the whole finding as a table; both are absent until the end.
    ``writer`` is the process that measures, its pid and start mark.
    """

    id: str
    kind: str
    title: str
    state: str
    started_unix: float
    ended_unix: float | None
    seed: int
    settings: dict[str, Any]
    conclusion: str | None
    result: dict[str, Any] | None
    environment: dict[str, Any]
    writer: tuple[int | None, str | None] = (None, None)


@dataclass(frozen=True, slots=True)
class Run:
    """One server of an experiment. ``launch`` is the fingerprint of its profile without its traffic."""

    id: int
    arm: str
    drafter: str
    draft_tokens: int | None
    launch: str
    profile: dict[str, Any]
    ready_s: float | None
    started_unix: float


def store_path() -> Path:
    """The file of results."""
    return data_folder() / "results.sqlite"


class Store:
    """An open store; a context manager.

    Raises:
        RecordingError: the file cannot be opened, is none of ours, or a newer specpanel wrote it.
    """

    def __init__(self, path: Path | None = None, *, migrations: Sequence[str] = MIGRATIONS) -> None:
        self.path = path or store_path()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            make_private(self.path)
        except OSError as error:
            raise RecordingError(
                f"the file of results {self.path} cannot be made: {error.strerror or error}"
            ) from None
        with self._told():
            self._db = sqlite3.connect(self.path, timeout=_WAIT_S, isolation_level=None)
            try:
                self._db.row_factory = sqlite3.Row
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA foreign_keys = ON")
                self._migrate(migrations)
            except BaseException:
                self._db.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._db.close()

    # -- writing ----------------------------------------------------------------------------

    def begin(
        self,
        kind: str,
        title: str,
        settings: Mapping[str, Any],
        environment: Mapping[str, Any],
        seed: int,
    ) -> str:
        """A new experiment that is running; its id."""
        now = time.time()
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
        name = f"{kind}-{stamp}-{uuid.uuid4().hex[:4]}"
        facts = json.dumps(environment, sort_keys=True)
        around = uuid.uuid5(uuid.NAMESPACE_OID, facts).hex
        pid = os.getpid()
        with self._transaction():
            self._db.execute("INSERT OR IGNORE INTO environments VALUES (?, ?)", (around, facts))
            self._db.execute(
                "INSERT INTO experiments VALUES (?, ?, ?, ?, ?, NULL, ?, ?, NULL, NULL, ?, ?, ?)",
                (
                    *(name, kind, title, RUNNING, now, seed, json.dumps(settings)),
                    *(pid, identity.start_mark(pid), around),
                ),
            )
        return name

    def add_run(
        self,
        experiment: str,
        arm: str,
        drafter: str,
        draft_tokens: int | None,
        launch: str,
        profile: Mapping[str, Any],
        ready_s: float | None,
    ) -> int:
        """A server that the experiment measured; its number."""
        with self._transaction():
            row = self._db.execute(
                "INSERT INTO runs(experiment, arm, drafter, draft_tokens, launch, profile, ready_s, "
                "started_unix) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(experiment, arm, drafter, draft_tokens, launch),
                    *(json.dumps(profile), ready_s, time.time()),
                ),
            )
        return int(row.lastrowid or 0)

    def add_measurements(
        self, run: int, block: int, conditions: Mapping[str, Any], records: Sequence[RequestRecord]
    ) -> None:
        """One row a request; what was answered is not kept."""
        given = json.dumps(conditions)
        rows = [
            (
                *(run, block, given, record.prompt_id, record.kind, record.started_unix),
                *(record.ttft_ms, record.tpot_ms, record.end_to_end_ms, record.output_tokens),
                *(record.first_chunk_tokens, _listed(record.drafted), _listed(record.accepted)),
                *(record.finish_reason, record.error),
            )
            for record in records
        ]
        with self._transaction():
            self._db.executemany(
                "INSERT INTO measurements(run, block, conditions, prompt_id, prompt_kind, "
                "started_unix, ttft_ms, tpot_ms, end_to_end_ms, output_tokens, first_chunk_tokens, "
                "drafted, accepted, finish_reason, error) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                rows,
            )

    def finish(
        self, experiment: str, state: str, conclusion: str, result: Mapping[str, Any] | None
    ) -> None:
        """The end of an experiment, with what it found."""
        with self._transaction():
            self._db.execute(
                "UPDATE experiments SET state = ?, ended_unix = ?, conclusion = ?, result = ? "
                "WHERE id = ?",
                (
                    *(state, time.time(), conclusion),
                    *(None if result is None else json.dumps(result), experiment),
                ),
            )

    def add_progress(self, experiment: str, told: Mapping[str, Any]) -> None:
        """What an experiment tells on its way, for whoever looks on."""
        with self._transaction():
            self._db.execute(
                "INSERT INTO progress(experiment, told) VALUES (?, ?)",
                (experiment, json.dumps(told)),
            )

    def delete(self, experiment: str) -> None:
        """Forget an experiment with all that it measured.

        Raises:
            ConfigurationError: there is none of this name, or it is running.
        """
        if self.find(experiment).state == RUNNING:
            raise ConfigurationError(f"{experiment} is running", "Stop it first.")
        with self._transaction():
            self._db.execute("DELETE FROM experiments WHERE id = ?", (experiment,))

    # -- reading ----------------------------------------------------------------------------

    def experiments(self, kind: str | None = None) -> tuple[Experiment, ...]:
        """All of them, or those of one kind, newest first."""
        with self._told():
            rows = self._db.execute(
                "SELECT e.*, v.facts FROM experiments e JOIN environments v ON v.id = e.environment "
                "WHERE ?1 IS NULL OR kind = ?1 ORDER BY started_unix DESC, e.rowid DESC",
                (kind,),
            ).fetchall()
        return tuple(_experiment(row) for row in rows)

    def find(self, name: str) -> Experiment:
        """The experiment of this id, the only one whose id begins so, or the ``last``.

        Raises:
            ConfigurationError: there is none, or there are several.
        """
        every = self.experiments()
        if name == LAST and every:
            return every[0]
        found = [one for one in every if one.id == name] or [
            one for one in every if name and one.id.startswith(name)
        ]
        if len(found) == 1:
            return found[0]
        what = "several results begin" if found else "there is no result whose name begins"
        raise ConfigurationError(f"{what} with {name!r}", "specpanel results list shows all.")

    def runs(self, experiment: str) -> tuple[Run, ...]:
        """The servers that it measured, in order."""
        with self._told():
            rows = self._db.execute(
                "SELECT * FROM runs WHERE experiment = ? ORDER BY id", (experiment,)
            ).fetchall()
        return tuple(
            Run(
                *(row["id"], row["arm"], row["drafter"], row["draft_tokens"], row["launch"]),
                *(json.loads(row["profile"]), row["ready_s"], row["started_unix"]),
            )
            for row in rows
        )

    def progress(self, experiment: str) -> tuple[dict[str, Any], ...]:
        """What it told on its way, in order."""
        with self._told():
            rows = self._db.execute(
                "SELECT told FROM progress WHERE experiment = ? ORDER BY id", (experiment,)
            ).fetchall()
        return tuple(json.loads(row["told"]) for row in rows)

    def measurements(self, experiment: str) -> Iterator[dict[str, Any]]:
        """Every request of the experiment as a flat table, in the order of measuring."""
        with self._told():
            rows = self._db.execute(
                "SELECT r.arm, r.drafter, r.draft_tokens, m.* FROM measurements m "
                "JOIN runs r ON r.id = m.run WHERE r.experiment = ? ORDER BY m.id",
                (experiment,),
            ).fetchall()
        for row in rows:
            table = {key: row[key] for key in row.keys() if key not in ("id", "run")}  # noqa: SIM118
            conditions = json.loads(table.pop("conditions"))
            for name in ("drafted", "accepted"):
                table[name] = None if table[name] is None else json.loads(table[name])
            yield {**table, **conditions}

    # -- the file ---------------------------------------------------------------------------

    def _migrate(self, migrations: Sequence[str]) -> None:
        version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
        if version > len(migrations):
            raise RecordingError(
                f"a newer specpanel wrote the results in {self.path} "
                f"(format {version}, this one reads up to {len(migrations)})",
                "Update specpanel.",
            )
        if version == len(migrations):
            return
        with self._transaction():
            # Again, inside: another process may have been quicker.
            version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
            for number, script in enumerate(migrations[version:], version + 1):
                for statement in script.split(";"):
                    if statement.strip():
                        self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {number:d}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._told():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise RecordingError(
                f"the results in {self.path} cannot be read or written: {error}",
                "Move the file away to begin anew."
                if isinstance(error, sqlite3.DatabaseError)
                and not isinstance(error, sqlite3.OperationalError)
                else "",
            ) from None


def _listed(steps: Sequence[int] | None) -> str | None:
    return None if steps is None else json.dumps(list(steps))


def _experiment(row: sqlite3.Row) -> Experiment:
    state = row["state"]
    if state == RUNNING and not identity.leader_lives(row["writer_pid"], row["writer_mark"]):
        state = ABANDONED
    return Experiment(
        id=row["id"],
        kind=row["kind"],
        title=row["title"],
        state=state,
        started_unix=row["started_unix"],
        ended_unix=row["ended_unix"],
        seed=row["seed"],
        settings=json.loads(row["settings"]),
        conclusion=row["conclusion"],
        result=None if row["result"] is None else json.loads(row["result"]),
        environment=json.loads(row["facts"]),
        writer=(row["writer_pid"], row["writer_mark"]),
    )
