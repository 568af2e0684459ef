"""Which drafter the saves of a run are of, so that no other is gone on with in their place."""

import json
import shutil
from pathlib import Path
from typing import Any

from specpanel.core.errors import ConfigurationError
from specpanel.core.training.data_stage import file_digest
from specpanel.core.training.extraction_server import target_layers
from specpanel.core.training.folder import write_json
from specpanel.core.training.stage import Workplace


def mapping_digest(place: Workplace) -> str | None:
    """SHA-256 of the draft vocabulary's mapping that is trained with; None with a full vocabulary."""
    size = place.recipe.algorithm.draft_vocab_size
    if size is None:
        return None
    if place.recipe.trainer.from_pretrained is not None:
        return file_digest(place.folder.trainer / "start-d2t.npy")
    return file_digest(place.folder.prepared / f"d2t-{size}.npy")


def _identity(place: Workplace) -> dict[str, Any]:
    layers, _ = target_layers(place)
    return {
        "algorithm": place.recipe.algorithm.model_dump(mode="json"),
        "layers": list(layers.written),
        "target": place.target,
    }


def _mark(place: Workplace) -> Path:
    return place.folder.trainer / "drafter.json"


def mark_drafter(place: Workplace) -> None:
    """Note which drafter the saves are of."""
    write_json(_mark(place), {**_identity(place), "vocabulary": mapping_digest(place)})


def refuse_other_drafter(place: Workplace) -> None:
    """Stop where the saves are of another drafter than the recipe describes.

    A resumed trainer would take the weights and keep silent, and a draft vocabulary made anew would give
    every drafted token another meaning: training looks well and serving accepts nothing.

    Raises:
        ConfigurationError: with what differs.
    """
    if not any(place.folder.save.glob("*/model.safetensors")):
        shutil.rmtree(place.folder.save, ignore_errors=True)
        return
    try:
        before = json.loads(_mark(place).read_text(encoding="utf-8"))
        differing = [name for name, value in _identity(place).items() if before.get(name) != value]
        vocabulary = before.get("vocabulary")
    except (OSError, ValueError, AttributeError):
        return  # of an earlier version: nothing is known
    if differing:
        raise ConfigurationError(
            f"the saves in {place.folder.save} are of a drafter with another {differing[0]}",
            "Leave --resume out to begin a new run.",
        )
    now = mapping_digest(place)
    if vocabulary and now and now != vocabulary:
        raise ConfigurationError(
            "the draft vocabulary was made anew from other data than the saved drafter's: its "
            "tokens would mean others, and serving would accept next to none",
            "Leave --resume out to begin a new run, or bring back the data it began with.",
        )
    if vocabulary and now is None:
        raise ConfigurationError(
            "the data was made anew, and with it the draft vocabulary of the saved drafter is gone: its "
            "tokens would mean others, and serving would accept next to none",
            "Leave --resume out to begin a new run, or bring back the data it began with.",
        )
