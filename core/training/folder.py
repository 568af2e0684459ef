"""The folder of one training run: where everything of it stands.

events.ndjson            every event (events-2.ndjson after a resume, and so on)
recipe.json              the settings, without secrets
stages/<name>.json       the report of each stage that ended well
data/prompts.jsonl       the prompts that are trained on
data/heldout.jsonl       the prompts that training never sees: for evaluation
data/rows.jsonl          token rows with their loss mask
data/skipped.jsonl       lines of the input that were not used: number and reason
data/prepared/           what the trainer reads; states/ beside it in the offline mode
trainer/log.txt          what the trainer wrote
trainer/metrics.jsonl    one object a step, validation and save, from our runner
trainer/pace             seconds that the trainer waits after each step; not there: none
trainer/save/            Speculators' own folder: resumed from, overwritten by it
checkpoints/step-000057/ kept copies, each whole; checkpoint.json is its record
evaluations.json         what each checkpoint showed when it was served
summary.json             the last summary
"""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from specpanel.core.errors import RecordingError
from specpanel.core.settings.paths import data_folder
from specpanel.core.training.events import plain
from specpanel.core.training.records import Checkpoint, Evaluation, StageName, StageReport

CHECKPOINT_FILE = "checkpoint.json"

_checkpoints = TypeAdapter(Checkpoint)
_reports = TypeAdapter(StageReport)
_evaluations = TypeAdapter(tuple[Evaluation, ...])


def training_folder() -> Path:
    """Where training runs are kept: one folder a recipe, one a run in it."""
    return data_folder() / "training"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths of one run. Nothing here creates a folder but ``make``."""

    root: Path

    @property
    def recipe(self) -> Path:
        return self.root / "recipe.json"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def prompts(self) -> Path:
        return self.data / "prompts.jsonl"

    @property
    def heldout(self) -> Path:
        return self.data / "heldout.jsonl"

    @property
    def rows(self) -> Path:
        return self.data / "rows.jsonl"

    @property
    def skipped(self) -> Path:
        return self.data / "skipped.jsonl"

    @property
    def prepared(self) -> Path:
        return self.data / "prepared"

    @property
    def states(self) -> Path:
        return self.data / "states"

    @property
    def trainer(self) -> Path:
        return self.root / "trainer"

    @property
    def log(self) -> Path:
        return self.trainer / "log.txt"

    @property
    def metrics(self) -> Path:
        return self.trainer / "metrics.jsonl"

    @property
    def pace(self) -> Path:
        return self.trainer / "pace"

    @property
    def save(self) -> Path:
        return self.trainer / "save"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def summary(self) -> Path:
        return self.root / "summary.json"

    def make(self) -> None:
        for folder in (self.data, self.trainer, self.checkpoints, self.root / "stages"):
            folder.mkdir(parents=True, exist_ok=True)

    def events(self) -> Path:
        """A file for this run's events that is not there yet."""
        first = self.root / "events.ndjson"
        number = 2
        while first.exists():
            first = self.root / f"events-{number}.ndjson"
            number += 1
        return first

    def report(self, stage: StageName) -> StageReport | None:
        """The stage's last good report; None where there is none that can be read."""
        found: StageReport | None = _read(self._report_path(stage), _reports)
        return found

    def keep_report(self, report: StageReport) -> None:
        write_json(self._report_path(report.stage), asdict(report))

    def forget_report(self, stage: StageName) -> None:
        self._report_path(stage).unlink(missing_ok=True)

    def kept(self) -> tuple[Checkpoint, ...]:
        """Checkpoints that were kept, by step. One whose record cannot be read is left out."""
        found = [
            _read(path, _checkpoints) for path in self.checkpoints.glob("*/" + CHECKPOINT_FILE)
        ]
        there = [checkpoint for checkpoint in found if checkpoint is not None]
        return tuple(sorted(there, key=lambda checkpoint: checkpoint.step))

    def keep(self, checkpoint: Checkpoint) -> None:
        write_json(checkpoint.path / CHECKPOINT_FILE, asdict(checkpoint))

    def evaluations(self) -> tuple[Evaluation, ...]:
        """What was measured of checkpoints that are still kept, by step."""
        found: tuple[Evaluation, ...] = _read(self._evaluations, _evaluations) or ()
        there = [one for one in found if one.checkpoint.is_dir()]
        return tuple(sorted(there, key=lambda one: one.step))

    def keep_evaluations(self, found: Sequence[Evaluation]) -> None:
        write_json(self._evaluations, [asdict(one) for one in found])

    @property
    def _evaluations(self) -> Path:
        return self.root / "evaluations.json"

    def _report_path(self, stage: StageName) -> Path:
        return self.root / "stages" / f"{stage}.json"


def _read(path: Path, kind: TypeAdapter[Any]) -> Any:
    try:
        return kind.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def write_json(path: Path, content: Any) -> None:
    """Write the file whole or not at all.

    Raises:
        RecordingError: it cannot be written, for example on a full disk.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(plain(content), indent=1) + "\n", encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise RecordingError(
            f"{path} cannot be written: {error.strerror or error}",
            "Free some space there, or name another folder with --folder.",
        ) from error


def runs_of(recipe: str) -> tuple[Path, ...]:
    """Folders of this recipe's runs, the newest last."""
    place = training_folder() / recipe
    return tuple(sorted(path for path in place.glob("*") if (path / "recipe.json").is_file()))
