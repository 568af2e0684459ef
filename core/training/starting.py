"""What training starts from: nothing, an earlier checkpoint, or a drafter of others, converted first.

A drafter with a draft vocabulary of its own keeps it: made anew from other data, each of its tokens would
mean another, training would look well and serving would accept next to nothing (SpecForge#534).
"""

import asyncio
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specpanel.core.checkpoints.config import CONFIG_FILE, ModelConfig, read_config
from specpanel.core.checkpoints.json_file import read_json
from specpanel.core.errors import ConfigurationError, SpecpanelError
from specpanel.core.session.events import FindingMade, Note
from specpanel.core.training.child import last_words, run_child
from specpanel.core.training.data_stage import source_mark
from specpanel.core.training.extraction_plan import Layers
from specpanel.core.training.extraction_server import target_layers
from specpanel.core.training.mapping_files import write_mapping
from specpanel.core.training.stage import Workplace, digest
from specpanel.core.training.trainer_command import absolute

CONVERTED = ("eagle3", "dflash", "mtp")  # what speculators convert takes
_LAYER_FIELDS = ("eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids")


@dataclass(frozen=True, slots=True)
class Start:
    """A drafter in the Speculators format; ``mapping`` are d2t and t2d of a vocabulary of its own."""

    folder: Path
    mapping: tuple[Path, Path] | None

    def flags(self) -> tuple[str, ...]:
        """The trainer's flags for it."""
        found = ("--from-pretrained", str(self.folder))
        if self.mapping is None:
            return found
        return (*found, "--d2t-path", str(self.mapping[0]), "--t2d-path", str(self.mapping[1]))


def check_start(place: Workplace, checkpoint: str) -> Iterator[FindingMade]:
    """Findings about the drafter to start from, before anything is started."""
    folder = Path(checkpoint).expanduser()
    if not folder.is_dir():
        yield _error(
            "start-not-here",
            f"trainer.from_pretrained {checkpoint} is not a folder on this machine",
            "Give the folder of a checkpoint; one of others is converted.",
        )
        return
    config, wanted = read_config(folder), place.recipe.algorithm.type
    said = config.speculators
    if said is None and wanted not in CONVERTED:
        yield _error(
            "start-not-converted",
            f"trainer.from_pretrained {checkpoint} is no Speculators checkpoint, and {wanted} is not among "
            f"what can be converted ({', '.join(CONVERTED)})",
            "Give a checkpoint that Speculators trained, or use another algorithm.",
        )
        return
    if said is not None and said.algorithm != wanted:
        yield _error(
            "start-of-another-kind",
            f"trainer.from_pretrained {checkpoint} is {said.algorithm or 'of no known algorithm'}, and the "
            f"recipe trains {wanted}",
            f"Set algorithm.type to {said.algorithm}." if said.algorithm else "Give another.",
        )
        return
    yield from _of_another_target(place, config, checkpoint)
    yield from _of_another_vocabulary(place, config, checkpoint)


def _of_another_target(
    place: Workplace, config: ModelConfig, checkpoint: str
) -> Iterator[FindingMade]:
    target = read_config(place.target)
    pairs = (
        ("a vocabulary of {} tokens", config.vocab_size, target.vocab_size),
        (
            "a hidden size of {}",
            config.target_hidden_size or config.hidden_size,
            target.hidden_size,
        ),
    )
    third_party = config.speculators is None
    for words, its, ours in pairs:
        if third_party and words.startswith("a vocabulary"):
            continue  # some give their draft vocabulary there; the converter goes by the tensors
        if its is not None and ours is not None and its != ours:
            yield _error(
                "start-of-another-target",
                f"trainer.from_pretrained {checkpoint} was trained for {words.format(its)}, and the target "
                f"has {ours}",
                "Use a checkpoint of this target.",
            )
            return


def _of_another_vocabulary(
    place: Workplace, config: ModelConfig, checkpoint: str
) -> Iterator[FindingMade]:
    its, ours = config.draft_vocab_size, place.recipe.algorithm.draft_vocab_size
    if its is None or its == config.vocab_size or its == ours or config.speculators is None:
        return
    yield _error(
        "start-draft-vocabulary",
        f"trainer.from_pretrained {checkpoint} drafts from {its} tokens, and the recipe says "
        f"{ours or 'all of them'}",
        f"Set algorithm.draft_vocab_size to {its}.",
    )


async def prepare_start(place: Workplace) -> Start | None:
    """What the trainer is started from; None where it starts from nothing.

    Raises:
        ConfigurationError: its layers or draft vocabulary are not the recipe's.
        SpecpanelError: it could not be converted; with the tool's words.
    """
    named = place.recipe.trainer.from_pretrained
    if named is None:
        return None
    folder = Path(absolute(named))
    if read_config(folder).speculators is None:
        folder = await _converted(place, folder)
    layers, _ = target_layers(place)
    _refuse_other_layers(folder, layers)
    return Start(folder, _mapping(place, folder))


async def _converted(place: Workplace, folder: Path) -> Path:
    """The drafter in the Speculators format, made once in the run's folder."""
    output, mark = place.folder.trainer / "start", place.folder.trainer / "start.sha256"
    argv = convert_argv(place, folder, output)
    wanted = digest([argv, await asyncio.to_thread(source_mark, str(folder))])
    if mark.is_file() and mark.read_text(encoding="utf-8") == wanted and output.is_dir():
        return output
    shutil.rmtree(output, ignore_errors=True)
    log = place.folder.trainer / "convert.log"
    place.emit(Note(f"converting {folder}"))
    status = await run_child(argv, log, place.interrupted)
    if status != 0 or not (output / CONFIG_FILE).is_file():
        raise SpecpanelError(
            f"speculators convert does not take {folder}: {last_words(log)}", f"Log: {log}"
        )
    mark.write_text(wanted, encoding="utf-8")
    return output


def convert_argv(place: Workplace, folder: Path, output: Path) -> list[str]:
    """The call of the trainer's own tool."""
    kind = place.recipe.algorithm.type
    argv = [
        *(place.trainer.python, "-m", "speculators", "convert", str(folder)),
        *("--verifier", place.target, "--algorithm", kind, "--output-path", str(output)),
    ]
    if kind == "eagle3":
        # Nothing in such a checkpoint says it; it was trained with these or is trained on with them.
        layers = {"eagle_aux_hidden_state_layer_ids": list(target_layers(place)[0].target)}
        argv += ["--algorithm-kwargs", json.dumps(layers)]
    return argv


def _refuse_other_layers(folder: Path, layers: Layers) -> None:
    config = read_json(folder / CONFIG_FILE)
    for name in _LAYER_FIELDS:
        its: Any = config.get(name)
        if isinstance(its, list) and its and tuple(its) != layers.target:
            raise ConfigurationError(
                f"{folder} reads the layers {', '.join(map(str, its))} of the target, and the recipe names "
                f"{', '.join(map(str, layers.target))}",
                f"Set algorithm.target_layer_ids to {','.join(map(str, its))}.",
            )


def _mapping(place: Workplace, folder: Path) -> tuple[Path, Path] | None:
    """d2t and t2d of the drafter as the trainer reads them; None where it drafts from all tokens."""
    size = read_config(folder).draft_vocab_size
    wanted = place.recipe.algorithm.draft_vocab_size
    if wanted is None:
        return None
    if size != wanted:
        raise ConfigurationError(
            f"{folder} drafts from {size} tokens, and the recipe says {wanted}",
            f"Set algorithm.draft_vocab_size to {size}.",
        )
    return write_mapping(folder, place.folder.trainer)


def _error(code: str, text: str, fix: str) -> FindingMade:
    return FindingMade(code, "error", text, fix, "trainer.from_pretrained")
