"""The servers that training starts: plain ones that answer, and one that gives hidden states."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from specpanel.core.engine.command import Command, build_command, platform_of
from specpanel.core.engine.process import running_servers, stop_server
from specpanel.core.engine.registry import ServerRecord
from specpanel.core.session.events import (
    Event,
    FindingMade,
    Launched,
    Note,
    PhaseEntered,
    Ready,
    Stopped,
)
from specpanel.core.session.launch import Launch
from specpanel.core.settings.profile import Profile
from specpanel.core.training.extraction_plan import Layers, extracting, kv_transfer
from specpanel.core.training.stage import Workplace


def is_cpu(place: Workplace) -> bool:
    """Whether the target runs on a CPU."""
    return platform_of(_profile(place, 1, "x"), place.vllm) == "cpu"


def answering_command(place: Workplace) -> tuple[Profile, Command]:
    """The plain server that answers prompts."""
    profile = _profile(place, place.recipe.engine.port, f"{place.recipe.name}-answers")
    return profile, build_command(profile, place.vllm, os.environ)


def extracting_command(place: Workplace, layers: Layers, folder: Path) -> tuple[Profile, Command]:
    """The server that writes hidden states into ``folder``.

    Raises:
        ConfigurationError: the way to hand them over does not work here.
    """
    profile = _profile(place, place.recipe.extraction.port, f"{place.recipe.name}-states")
    transfer: dict[str, Any] = kv_transfer(
        place.recipe.extraction.backend, folder, cpu=is_cpu(place)
    )
    plain = build_command(profile, place.vllm, os.environ)
    inherited = os.environ.get("PYTHONPATH")
    return profile, extracting(plain, layers, transfer, inherited, place.vllm.vllm_version)


def _profile(place: Workplace, port: int, name: str) -> Profile:
    return place.recipe.profile(place.target, port, name)


@asynccontextmanager
async def serving(place: Workplace, profile: Profile, command: Command) -> AsyncIterator[Launch]:
    """A server that is ready; ended on the way out, whatever happened.

    Raises:
        LaunchError: it did not start.
        InterruptedRunError: the run was stopped meanwhile.
    """
    launch = Launch(profile, command, _teller(place))
    launch.start()
    try:
        await launch.until_ready(place.interrupted)
        yield launch
    finally:
        await launch.stop(place.hurry)


def _teller(place: Workplace) -> Any:
    def tell(event: Event) -> None:
        if isinstance(event, Note | FindingMade | Launched | PhaseEntered | Ready | Stopped):
            place.emit(event)

    return tell


def stop_orphans(recipe: str, timeout_s: float) -> list[ServerRecord]:
    """End servers that a run of this recipe left behind when it was killed; those that were ended."""
    from specpanel.core.engine import identity

    names = {f"{recipe}-answers", f"{recipe}-states", f"{recipe}-drafts"[:64]}
    left = [
        record
        for record in running_servers()
        if record.profile in names and identity.start_mark(record.owner_pid) is None
    ]
    for record in left:
        stop_server(record, timeout_s)
    return left
