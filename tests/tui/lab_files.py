"""A store as it lies on a user's disk: results of real runs on two cores, and one that is on its way."""

import json
import os
from pathlib import Path
from typing import Any

from specpanel.core.engine import identity
from specpanel.core.lab.store import RUNNING, Store

RESULTS = Path(__file__).parents[1] / "data" / "lab_results.json"
RUNNING_ID = "compare-20261130-171500-0001"
BLOCKS = (
    (1, 21.0, 0.79, None),
    (5, 104.0, 0.874, 0.31),
    (7, 148.0, 0.861, 0.19),
    (9, 190.0, 0.848, 0.12),
    (12, 251.0, 0.857, 0.083),
)


def put(store: Store, row: dict[str, Any], pid: int | None = None) -> None:
    """An experiment under its own name and time."""
    facts = json.dumps(row["environment"], sort_keys=True)
    db = store._db
    db.execute("INSERT OR IGNORE INTO environments VALUES (?, ?)", (facts, facts))
    db.execute(
        "INSERT INTO experiments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(row["id"], row["kind"], row["title"], row["state"]),
            *(row["started_unix"], row["ended_unix"], row["seed"], json.dumps(row["settings"])),
            row["conclusion"],
            None if row["result"] is None else json.dumps(row["result"]),
            *(pid, None if pid is None else identity.start_mark(pid), facts),
        ),
    )


def real_results() -> list[dict[str, Any]]:
    """What real runs found, put into the store."""
    rows: list[dict[str, Any]] = json.loads(RESULTS.read_text(encoding="utf-8"))
    with Store() as store:
        for row in reversed(rows):
            put(store, row)
    return rows


def results() -> None:
    """Results of every kind, newest first a comparison that this process writes."""
    with Store() as store:
        if store.experiments():
            return
        rows = real_results()
        started = rows[0]["started_unix"] + 600
        running = {
            **rows[-1],
            "id": RUNNING_ID,
            "state": RUNNING,
            "started_unix": started,
            "ended_unix": None,
            "conclusion": None,
            "result": None,
        }
        put(store, running, os.getpid())
        for block, elapsed_s, ratio, half in BLOCKS:
            store.add_progress(
                RUNNING_ID,
                {
                    "kind": "block",
                    "block": block,
                    "elapsed_s": elapsed_s,
                    "ratios": {"demo-ngram": ratio},
                    "half_widths": {"demo-ngram": half},
                },
            )


def another() -> None:
    """One more, written by somebody else."""
    with Store() as store:
        name = store.begin("parity", "another", {}, {}, 0)
        store.finish(name, "failed", "the server did not start", None)
