"""The trainer's command line and environment, from the recipe alone. Pure."""

import math
from collections.abc import Iterator
from pathlib import Path

from specpanel.core.engine.command import Command
from specpanel.core.inside import INSIDE
from specpanel.core.training.algorithms import FastMtp, flags_of
from specpanel.core.training.child import QUIET
from specpanel.core.training.extraction_plan import Layers
from specpanel.core.training.folder import RunFolder
from specpanel.core.training.recipe import Recipe

# Speculators 0.9.0 refuses these beside --from-pretrained: the checkpoint says them.
_SHAPING = frozenset({"num_layers", "draft_arch", "sliding_window", "full_attention_indices"})
_CPU_ANCHORS = 32
_MANY_EPOCHS = 100_000  # our runner ends them with the steps


def trainer_flags(
    recipe: Recipe,
    target: str,
    layers: Layers,
    folder: RunFolder,
    endpoint: str,
    *,
    cpu: bool,
    start: tuple[str, ...] | None = None,
) -> tuple[str, ...]:
    """All of the trainer's flags.

    Args:
        target: the target's folder, absolute: it is stored in the checkpoint as it stands here.
        endpoint: of the extraction server, ending in ``/v1``.
        cpu: no accelerator for the trainer.
        start: flags for what it starts from, where that was prepared; as the recipe names it otherwise.
    """
    offline = recipe.extraction.mode == "offline"
    return (
        *("--speculator-type", recipe.algorithm.type),
        *("--verifier-name-or-path", target),
        *("--data-path", str(folder.prepared)),
        *("--save-path", str(folder.save)),
        *("--hidden-states-backend", recipe.extraction.backend),
        *("--vllm-endpoint", endpoint),
        *("--on-missing", "raise" if offline else "generate"),
        *_states(recipe, folder, offline),
        *_algorithm(recipe, layers, cpu),
        *_trainer(recipe, cpu, start),
        *("--train-data-ratio", _share(recipe.data.validation_share)),
        *("--epochs", str(recipe.trainer.epochs or _MANY_EPOCHS)),
        *("--max-steps", str(recipe.trainer.steps)),
    )


def _states(recipe: Recipe, folder: RunFolder, offline: bool) -> Iterator[str]:
    if recipe.extraction.backend == "mooncake":
        return
    # What lies there is taken before anything is asked for: in the online mode nothing must.
    place = folder.states if offline else folder.data / "no-states"
    yield from ("--hidden-states-path", str(place))


def _algorithm(recipe: Recipe, layers: Layers, cpu: bool) -> Iterator[str]:
    algorithm = recipe.algorithm
    skip = _SHAPING if recipe.trainer.from_pretrained else frozenset()
    yield from flags_of(algorithm, skip)
    if isinstance(algorithm, FastMtp):
        return
    yield from ("--target-layer-ids", *map(str, layers.target))
    # Dense masks over anchors times block: the trainer's own 512 would fill the memory.
    if cpu and getattr(algorithm, "max_anchors", 0) is None:
        yield from ("--max-anchors", str(_CPU_ANCHORS))


def _trainer(recipe: Recipe, cpu: bool, start: tuple[str, ...] | None) -> Iterator[str]:
    trainer = recipe.trainer
    if cpu:
        defaults = {
            "optimizer": trainer.optimizer or "adamw",
            "hidden_states_dtype": trainer.hidden_states_dtype or "float32",
            "draft_attn_impl": trainer.draft_attn_impl or "sdpa",
            "loss_implementation": trainer.loss_implementation or "eager",
            "num_workers": trainer.num_workers or 0,
        }
        if isinstance(recipe.algorithm, FastMtp):
            del defaults["draft_attn_impl"]  # the trainer lets nobody choose it there
        trainer = trainer.model_copy(update=defaults)
    yield from flags_of(trainer, frozenset() if start is None else frozenset({"from_pretrained"}))
    yield from start or ()
    if trainer.fsdp:
        yield "--fsdp-shard"
    if recipe.target.trust_remote_code:
        yield "--trust-remote-code"


def _share(validation: float) -> str:
    return f"{1 - validation:.6g}"


def trainer_command(
    recipe: Recipe, python: str, flags: tuple[str, ...], folder: RunFolder, *, cpu: bool
) -> Command:
    """The call of our runner around the trainer."""
    runner = str(INSIDE / "train_drafter.py")
    launcher = [python, runner]
    if recipe.trainer.processes > 1:
        launcher = [
            *(python, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc_per_node", str(recipe.trainer.processes), runner),
        ]
    environment = {
        **QUIET,
        "SPECPANEL_METRICS": str(folder.metrics),
        "SPECPANEL_KEEP": str(folder.checkpoints),
        "SPECPANEL_PREFETCH": str(recipe.trainer.prefetch),
        "SPECPANEL_IN_FLIGHT": str(recipe.extraction.concurrency),
        "SPECPANEL_PACE": str(folder.pace),
    }
    if recipe.trainer.threads is not None:
        environment["OMP_NUM_THREADS"] = str(recipe.trainer.threads)
    if recipe.trainer.devices is not None:
        environment["CUDA_VISIBLE_DEVICES"] = recipe.trainer.devices
    if cpu:
        environment["GOMP_SPINCOUNT"] = "0"
    return Command((*launcher, *flags), environment)


def check_command(python: str, flags: tuple[str, ...]) -> list[str]:
    """A call that only has the trainer read the flags."""
    return [python, "-m", "speculators.train", *flags, "--dump-config"]


def epochs_for(steps: int, steps_per_epoch: int) -> int:
    """Epochs that hold so many steps."""
    return max(1, math.ceil(steps / max(1, steps_per_epoch)))


def absolute(target: str) -> str:
    """The target's folder as it must be named: a relative path would bind the drafter to one folder."""
    return str(Path(target).expanduser().absolute())
