"""The data stage: prompts, the target's answers to them, token rows, and the trainer's own data set."""

import asyncio
import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from specpanel.core.checkpoints.tokenizer import tokenizer_digest
from specpanel.core.errors import ConfigurationError, SpecpanelError
from specpanel.core.session.events import Note
from specpanel.core.training.answering import answering
from specpanel.core.training.child import last_words, run_child
from specpanel.core.training.dataset_checks import (
    DatasetFacts,
    TokenRow,
    describe_rows,
    judge_rows,
)
from specpanel.core.training.events import Progressed
from specpanel.core.training.records import StageName
from specpanel.core.training.source import (
    Source,
    dataset_rows,
    prompt_entry,
    read_source,
    write_jsonl,
)
from specpanel.core.training.stage import Workplace, digest, interruptible
from specpanel.core.training.token_rows import RowMaker, read_rows


class DataStage:
    """From a source of prompts to a data set that the trainer reads."""

    name: ClassVar[StageName] = "data"

    def depends_on(self, place: Workplace) -> dict[str, Any]:
        return {
            "data": place.recipe.data.model_dump(mode="json", exclude={"concurrency", "server"}),
            "source": source_mark(place.recipe.data.source),
            "target": place.target,
            "tokenizer": tokenizer_digest(Path(place.target)),
            "pack": place.recipe.trainer.total_seq_len,
            "vocabulary": place.recipe.algorithm.draft_vocab_size,
        }

    async def run(self, place: Workplace) -> dict[str, Any]:
        """Raises ConfigurationError, LaunchError, TrafficError; rows that are there stay."""
        source = await asyncio.to_thread(read_source, place.recipe.data, place.trainer.python)
        self._tell_reading(place, source)
        write_jsonl(place.folder.prompts, map(prompt_entry, source.training))
        write_jsonl(place.folder.heldout, map(prompt_entry, source.heldout))
        write_jsonl(place.folder.skipped, source.reading.skipped)
        failures = await self._answers(place, source)
        place.raise_if_interrupted()
        rows = await self._prepare(place, source)
        facts = describe_rows(
            rows,
            seq_length=place.recipe.data.seq_length,
            pack_length=place.recipe.trainer.total_seq_len,
            validation_share=place.recipe.data.validation_share,
            draft_vocab_size=place.recipe.algorithm.draft_vocab_size,
        )
        self._judge(place, facts)
        return self._facts(place, source, facts, failures)

    def _tell_reading(self, place: Workplace, source: Source) -> None:
        reading = source.reading
        told = [f"{len(source.training)} prompts to train on, {len(source.heldout)} held out"]
        if source.duplicates:
            told.append(f"{source.duplicates} duplicates left out")
        if reading.converted:
            told.append(f"{reading.converted} converted from other names of roles")
        place.emit(Note("; ".join(told)))
        for one in reading.skipped[:20]:
            place.emit(Note(f"{place.recipe.data.source}, line {one.line}: skipped, {one.reason}"))
        if len(reading.skipped) > 20:
            more = len(reading.skipped) - 20
            place.emit(Note(f"{more} more lines were skipped: {place.folder.skipped}"))

    async def _answers(self, place: Workplace, source: Source) -> list[tuple[str, str]]:
        """Make the rows that are not there yet; the prompts that failed, with reasons."""
        mark = place.folder.data / "rows.json"
        made_of = digest([self.depends_on(place)["data"], place.target])
        if not _same(mark, made_of):
            place.folder.rows.unlink(missing_ok=True)
            mark.write_text(json.dumps({"made_of": made_of}), encoding="utf-8")
        there = len(list(read_rows(place.folder.rows)))
        if there >= len(source.training):
            return []

        def progress(done: int, total: int, per_s: float | None) -> None:
            place.emit(Progressed("data", "answers", done, total, per_s))

        async with answering(place) as client, interruptible(place.interrupted):
            maker = RowMaker(client, place.recipe.data, place.folder.rows, progress)
            await maker.make(source.training)
        for name, reason in maker.failures:
            place.emit(Note(f"{name}: no row, {reason}"))
        return maker.failures

    async def _prepare(self, place: Workplace, source: Source) -> list[TokenRow]:
        """Have the trainer's own tool write its data set, and read back what it wrote."""
        # Answers come in any order; the data set's must not depend on that.
        order = {one.id: number for number, one in enumerate(source.training)}
        made = sorted(
            read_rows(place.folder.rows),
            key=lambda row: (order.get(row.id.partition("#")[0], len(order)), row.id),
        )
        plain = place.folder.data / "tokens.jsonl"
        with plain.open("w", encoding="utf-8") as file:
            for row in made:
                entry = {"input_ids": row.input_ids, "loss_mask": row.loss_mask}
                file.write(json.dumps(entry) + "\n")
        # The tool does nothing, and says that all is well, where a data set is there already.
        shutil.rmtree(place.folder.prepared, ignore_errors=True)
        log = place.folder.data / "prepare.log"
        place.emit(Progressed("data", "rows prepared", 0, len(made)))
        status = await run_child(prepare_argv(place, plain), log, place.interrupted)
        if status != 0:
            raise SpecpanelError(
                f"speculators prepare-data failed: {last_words(log)}", f"Log: {log}"
            )
        lines = await asyncio.to_thread(dataset_rows, place.folder.prepared, place.trainer.python)
        rows = [found for line in lines if (found := _prepared_row(line)) is not None]
        if len(rows) != len(made):
            raise SpecpanelError(
                f"speculators prepare-data wrote {len(rows)} rows of {len(made)}",
                f"Its log says why: {log}",
            )
        place.emit(Progressed("data", "rows prepared", len(rows), len(made)))
        return rows

    def _judge(self, place: Workplace, facts: DatasetFacts) -> None:
        found = list(judge_rows(facts, least_mask_share=place.recipe.data.least_mask_share))
        for finding in found:
            place.emit(finding)
        for finding in found:
            if finding.severity == "error":
                raise ConfigurationError(finding.text, finding.fix)

    def _facts(
        self,
        place: Workplace,
        source: Source,
        facts: DatasetFacts,
        failures: list[tuple[str, str]],
    ) -> dict[str, Any]:
        reading = source.reading
        return {
            "prompts": len(source.training),
            "heldout": len(source.heldout),
            "duplicates": source.duplicates,
            "skipped_lines": len(reading.skipped),
            "unreadable_lines": reading.unreadable,
            "blank_lines": reading.blank,
            "tool_rows": reading.tool_rows,
            "schemas": dict(reading.schemas),
            "converted": reading.converted,
            "failed_prompts": len(failures),
            "answers": place.recipe.data.answers,
            "temperature": place.recipe.data.temperature,
            "tokenizer_sha256": tokenizer_digest(Path(place.target)),
            "rows_sha256": file_digest(place.folder.rows),
            **asdict(facts),
        }


def prepare_argv(place: Workplace, rows: Path) -> list[str]:
    """The call of the trainer's tool for rows that are tokens already."""
    reduced = place.recipe.algorithm.draft_vocab_size is not None
    return [
        *(place.trainer.python, "-m", "speculators", "prepare-data"),
        *("--model", place.target, "--data", str(rows), "--output", str(place.folder.prepared)),
        *("--seq-length", str(place.recipe.data.seq_length)),
        *("--seed", str(place.recipe.data.seed), "--num-preprocessing-workers", "1"),
        "--no-skip-token-freq" if reduced else "--skip-token-freq",
    ]


def file_digest(path: Path) -> str | None:
    """SHA-256 of a file; None where there is none."""
    import hashlib

    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def source_mark(source: str) -> str | None:
    """What tells that a source was changed: a file's hash, a folder's newest change."""
    path = Path(source).expanduser()
    if source == "builtin":
        return None
    if path.is_file():
        return file_digest(path)
    try:
        return str(max(one.stat().st_mtime_ns for one in path.iterdir()))
    except (OSError, ValueError):
        return None


def _same(mark: Path, made_of: str) -> bool:
    try:
        return bool(json.loads(mark.read_text(encoding="utf-8"))["made_of"] == made_of)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _prepared_row(line: bytes) -> TokenRow | None:
    try:
        entry = json.loads(line)
        return TokenRow("", tuple(entry["input_ids"]), tuple(map(int, entry["loss_mask"])))
    except (ValueError, KeyError, TypeError):
        return None
