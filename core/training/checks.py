"""What can be known to fail before anything is started."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

from specpanel.core.checkpoints.config import CONFIG_FILE, looks_like_hub_id, read_config
from specpanel.core.checkpoints.json_file import read_json
from specpanel.core.checkpoints.weights import read_weights
from specpanel.core.errors import ConfigurationError
from specpanel.core.session.events import FindingMade
from specpanel.core.training.algorithms import KINDS, MTP_TARGETS
from specpanel.core.training.child import last_words, run_child
from specpanel.core.training.extraction_server import target_layers
from specpanel.core.training.servers import is_cpu
from specpanel.core.training.stage import Workplace, digest
from specpanel.core.training.starting import check_start
from specpanel.core.training.trainer_command import check_command, trainer_flags


def check_recipe(place: Workplace) -> Iterator[FindingMade]:
    """Findings about recipe and target, errors among them.

    Raises:
        ConfigurationError: the target cannot be read, or names of layers are wrong.
    """
    if looks_like_hub_id(place.recipe.target.model) and not Path(place.target).is_dir():
        yield _error(
            "target-not-here",
            f"the target {place.recipe.target.model} is not a folder on this machine: the trainer reads "
            "its weights from disk",
            "Download it first and give its folder.",
            "target.model",
        )
        return
    config = read_config(place.target)
    weights = read_weights(Path(place.target))
    if weights is None or weights.kind != "safetensors":
        yield _error(
            "target-no-safetensors",
            f"{place.target} holds no safetensors, the only weights that the trainer reads",
            "Save the target with save_pretrained.",
            "target.model",
        )
    yield from _method(place)
    size = place.recipe.algorithm.draft_vocab_size
    if size is not None and config.vocab_size is not None and size > config.vocab_size:
        yield _error(
            "draft-vocabulary-too-large",
            f"algorithm.draft_vocab_size {size} is above the target's {config.vocab_size} tokens",
            "Leave it out for the whole vocabulary.",
            "algorithm.draft_vocab_size",
        )
    target_layers(place)
    yield from _devices(place)
    if place.recipe.trainer.from_pretrained is not None:
        yield from check_start(place, place.recipe.trainer.from_pretrained)


def _method(place: Workplace) -> Iterator[FindingMade]:
    name = place.recipe.algorithm.type
    kind = KINDS[name]
    if name == "mtp":
        config = read_config(place.target)
        values = read_json(Path(place.target) / CONFIG_FILE)
        model_type = values.get("model_type")
        if model_type not in MTP_TARGETS or not config.mtp_layers:
            yield _error(
                "mtp-not-possible",
                f"FastMTP trains the target's own MTP layers, and {place.target} (model_type "
                f"{model_type}) has none that the trainer takes",
                f"Use a target of {', '.join(MTP_TARGETS)} with MTP layers, or another algorithm.",
                "algorithm.type",
            )
    if kind.not_served:
        yield FindingMade(
            "not-served", "warning", f"{kind.title}: {kind.not_served}", "", "algorithm.type"
        )
    elif is_cpu(place) and not kind.serves_on_cpu:
        yield FindingMade(
            "not-served-here",
            "warning",
            f"{kind.title} can be trained on a CPU, and vLLM 0.32 serves it on a GPU only",
            "Serve it elsewhere, or train eagle3, peagle or dflash.",
            "algorithm.type",
        )


def _devices(place: Workplace) -> Iterator[FindingMade]:
    """Server and trainer on one GPU share its memory: only where that was said twice."""
    trainer = place.recipe.trainer
    if is_cpu(place):
        if trainer.processes > 1 or trainer.fsdp:
            yield _error(
                "trainer-processes-on-cpu",
                "trainer.processes and trainer.fsdp need GPUs",
                "Leave them out on a CPU.",
                "trainer.processes",
            )
        return
    serving = place.recipe.engine.environment.get("CUDA_VISIBLE_DEVICES")
    if place.recipe.extraction.mode == "offline":
        return
    mine = set((trainer.devices or "").split(",")) - {""}
    theirs = set((serving or "").split(",")) - {""}
    if mine & theirs or not mine or not theirs:
        shared = ", ".join(sorted(mine & theirs)) or "all GPUs"
        yield FindingMade(
            "devices-shared",
            "warning",
            f"the extraction server and the trainer both use {shared}: they may run out of memory",
            "Give the trainer its own with trainer.devices and the server its own with "
            "engine.environment.CUDA_VISIBLE_DEVICES, or use extraction.mode offline.",
            "trainer.devices",
        )


async def trainer_takes(place: Workplace) -> None:
    """Have the installed trainer read its flags, once for each set of them.

    Raises:
        ConfigurationError: it refuses them, with its own words.
    """
    layers, _ = target_layers(place)
    flags = trainer_flags(
        place.recipe,
        place.target,
        layers,
        place.folder,
        f"http://127.0.0.1:{place.recipe.extraction.port}/v1",
        cpu=is_cpu(place),
    )
    mark = place.folder.trainer / "flags.sha256"
    wanted = digest([flags, place.trainer.python])
    if await asyncio.to_thread(_text, mark) == wanted:
        return
    log = place.folder.trainer / "flags.log"
    status = await run_child(check_command(place.trainer.python, flags), log, place.interrupted)
    if status != 0:
        raise ConfigurationError(
            f"the trainer refuses its settings: {last_words(log)}", f"Its own words: {log}"
        )
    await asyncio.to_thread(mark.write_text, wanted, "utf-8")


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None


def _error(code: str, text: str, fix: str, field: str) -> FindingMade:
    return FindingMade(code, "error", text, fix, field)
