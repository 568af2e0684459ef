"""A server of the target with one kept checkpoint as its drafter, for measuring it."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import ValidationError

from specpanel.core.engine.command import build_command
from specpanel.core.errors import ConfigurationError, SpecpanelError
from specpanel.core.session.checks import refuse_what_cannot_work
from specpanel.core.session.events import FindingMade, Forced, Note
from specpanel.core.session.launch import Launch
from specpanel.core.settings.profile import Profile
from specpanel.core.training.algorithms import KINDS
from specpanel.core.training.child import last_words, run_child
from specpanel.core.training.records import Checkpoint
from specpanel.core.training.servers import serving
from specpanel.core.training.stage import Workplace


@asynccontextmanager
async def drafting(place: Workplace, checkpoint: Checkpoint) -> AsyncIterator[Launch]:
    """A ready server that drafts with ``checkpoint``; ended on the way out.

    Raises:
        ConfigurationError: vLLM takes no such drafter.
        LaunchError: it did not start.
        InterruptedRunError: the run was stopped meanwhile.
    """
    profile = await drafting_profile(place, checkpoint)

    def tell(event: FindingMade | Forced) -> None:
        if isinstance(event, FindingMade) and event.severity == "error":
            place.emit(event)

    await asyncio.to_thread(refuse_what_cannot_work, profile, place.vllm, tell)
    async with serving(place, profile, build_command(profile, place.vllm, os.environ)) as launch:
        yield launch


async def drafting_profile(place: Workplace, checkpoint: Checkpoint) -> Profile:
    """How the checkpoint is launched; FastMTP's layers are put into a copy of the target first.

    Raises:
        ConfigurationError: vLLM serves none of its kind.
        SpecpanelError: the layers could not be put in.
    """
    kind = KINDS[checkpoint.algorithm]
    if kind.profile_method is None:
        raise ConfigurationError(f"{kind.title}: {kind.not_served}")
    target = place.target
    if checkpoint.algorithm == "mtp":
        target = str(await stitched(place, checkpoint))
    try:
        return place.recipe.drafting_profile(
            target, kind.profile_method, str(checkpoint.path), checkpoint.draft_tokens
        )
    except ValidationError as error:
        raise ConfigurationError(
            f"{checkpoint.path} cannot be served: {error.errors()[0]['msg']}"
        ) from None


async def stitched(place: Workplace, checkpoint: Checkpoint) -> Path:
    """A copy of the target with the checkpoint's MTP layers in it, made once (``speculators stitch-mtp``).

    Raises:
        SpecpanelError: the tool failed; with its words.
    """
    folder = place.folder.root / "stitched" / checkpoint.path.name
    if (folder / "config.json").is_file():
        return folder
    partial = folder.with_name(f"{folder.name}.partial")
    partial.parent.mkdir(parents=True, exist_ok=True)
    log = place.folder.root / "stitched" / "stitch.log"
    place.emit(Note(f"putting the layers of {checkpoint.path.name} into a copy of the target"))
    status = await run_child(stitch_argv(place, checkpoint, partial), log, place.interrupted)
    if status != 0:
        raise SpecpanelError(f"speculators stitch-mtp failed: {last_words(log)}", f"Log: {log}")
    partial.rename(folder)
    return folder


def stitch_argv(place: Workplace, checkpoint: Checkpoint, output: Path) -> list[str]:
    """The call of the trainer's own tool."""
    tool = [place.trainer.python, "-m", "speculators", "stitch-mtp"]
    return [*tool, str(checkpoint.path), place.target, "--output-path", str(output)]
