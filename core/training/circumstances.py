"""What is on disk of how a checkpoint was trained, for the causes of a gap between training and serving."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specpanel.core.checkpoints.config import CONFIG_FILE, read_config
from specpanel.core.checkpoints.json_file import read_json
from specpanel.core.checkpoints.tokenizer import tokenizer_digest
from specpanel.core.traffic.records import Prompt, RequestRecord
from specpanel.core.training.dataset_checks import TokenRow
from specpanel.core.training.drafter_identity import mapping_digest
from specpanel.core.training.evaluation import by_tokens
from specpanel.core.training.gap_causes import Circumstances
from specpanel.core.training.measuring import single_questions
from specpanel.core.training.records import Acceptance, Checkpoint
from specpanel.core.training.source import dataset_rows
from specpanel.core.training.stage import Workplace
from specpanel.core.training.token_rows import read_rows


def validation_prompts(place: Workplace) -> tuple[Prompt, ...]:
    """The prompts of the rows that the trainer validates with: the last share of its data set.

    The trainer's tool puts rows into an order of its own, so they are known again by their tokens.
    """
    listed = [
        json.loads(line) for line in dataset_rows(place.folder.prepared, place.trainer.python)
    ]
    first = int(len(listed) * (1 - place.recipe.data.validation_share))
    wanted = {tuple(entry["input_ids"]) for entry in listed[first:]}
    rows = read_rows(place.folder.rows)
    names = {row.id.partition("#")[0] for row in rows if row.input_ids in wanted}
    return tuple(one for one in single_questions(place.folder.prompts) if one.id in names)


def circumstances(
    place: Workplace,
    checkpoint: Checkpoint,
    acceptance: Acceptance,
    served: Sequence[RequestRecord],
) -> Circumstances:
    """Everything that the known causes are judged by.

    Args:
        acceptance: what was served, on whichever prompts.
        served: records of the validation prompts.
    """
    report = place.folder.report("data")
    facts: dict[str, Any] = report.facts if report else {}
    rows = {row.id: row for row in read_rows(place.folder.rows)}
    lengths = [edge for edge, count in facts.get("lengths", ()) if count]
    return Circumstances(
        tokenizer_then=checkpoint.tokenizer_sha256,
        tokenizer_now=tokenizer_digest(Path(place.target)),
        prompt_tokens=tuple(
            (_prompt_of(rows[one.prompt_id]), one.prompt_tokens)
            for one in served
            if one.prompt_id in rows and one.prompt_tokens is not None
        ),
        answers=place.recipe.data.answers,
        temperature=place.recipe.data.temperature,
        seq_length=place.recipe.data.seq_length,
        truncated_share=facts.get("truncated_share"),
        longest_row=max(lengths, default=None),
        served_tokens=acceptance.answer_tokens,
        quantization=read_config(place.target).quantization,
        window=drafter_window(checkpoint.path),
        mapping_then=checkpoint.mapping_sha256,
        mapping_now=mapping_digest(place),
        coverage=facts.get("coverage"),
        served_length=acceptance.acceptance_length,
        token_weighted=acceptance.token_weighted if by_tokens(checkpoint.prediction) else None,
        predicted=checkpoint.prediction.acceptance_length if checkpoint.prediction else None,
    )


def drafter_window(folder: Path) -> int | None:
    """How many tokens a drafter's layers see; None where all of them see everything."""
    layer = read_json(folder / CONFIG_FILE).get("transformer_layer_config")
    if not isinstance(layer, dict) or "sliding_attention" not in (layer.get("layer_types") or ()):
        return None
    window = layer.get("sliding_window")
    return window if isinstance(window, int) else None


def _prompt_of(row: TokenRow) -> int:
    """Tokens before the first that is trained on."""
    return next((n for n, mask in enumerate(row.loss_mask) if mask), len(row.loss_mask))
