"""The tables of the store, and the steps from each version to the next. Pure."""

# One script a version, applied in order; PRAGMA user_version counts those that were. A step that was
# published is never edited: a change is another step.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE environments (
        id TEXT PRIMARY KEY,
        facts TEXT NOT NULL
    ) STRICT;
    CREATE TABLE experiments (
        id TEXT PRIMARY KEY,
        kind TEXT NOT NULL,
        title TEXT NOT NULL,
        state TEXT NOT NULL,
        started_unix REAL NOT NULL,
        ended_unix REAL,
        seed INTEGER NOT NULL,
        settings TEXT NOT NULL,
        conclusion TEXT,
        result TEXT,
        writer_pid INTEGER,
        writer_mark TEXT,
        environment TEXT NOT NULL REFERENCES environments(id)
    ) STRICT;
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY,
        experiment TEXT NOT NULL REFERENCES experiments(id) ON DELETE CASCADE,
        arm TEXT NOT NULL,
        drafter TEXT NOT NULL,
        draft_tokens INTEGER,
        launch TEXT NOT NULL,
        profile TEXT NOT NULL,
        ready_s REAL,
        started_unix REAL NOT NULL
    ) STRICT;
    CREATE TABLE measurements (
        id INTEGER PRIMARY KEY,
        run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
        block INTEGER NOT NULL,
        conditions TEXT NOT NULL,
        prompt_id TEXT NOT NULL,
        prompt_kind TEXT NOT NULL,
        started_unix REAL NOT NULL,
        ttft_ms REAL,
        tpot_ms REAL,
        end_to_end_ms REAL,
        output_tokens INTEGER,
        first_chunk_tokens INTEGER,
        drafted TEXT,
        accepted TEXT,
        finish_reason TEXT,
        error TEXT
    ) STRICT;
    """,
    """
    CREATE INDEX runs_by_launch ON runs(launch);
    CREATE INDEX runs_by_experiment ON runs(experiment);
    CREATE INDEX measurements_by_run ON measurements(run);
    """,
    """
    CREATE TABLE progress (
        id INTEGER PRIMARY KEY,
        experiment TEXT NOT NULL REFERENCES experiments(id) ON DELETE CASCADE,
        told TEXT NOT NULL
    ) STRICT;
    CREATE INDEX progress_by_experiment ON progress(experiment);
    """,
)
