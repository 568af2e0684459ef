"""The extraction server of one run: started, probed, watched, and cleaned up after."""

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from specpanel.core.checkpoints.config import read_config
from specpanel.core.errors import ConfigurationError, LaunchError, SpecpanelError
from specpanel.core.session.checks import refuse_what_cannot_work
from specpanel.core.session.events import FindingMade, Forced, Note
from specpanel.core.session.launch import Launch
from specpanel.core.training.extraction_plan import Layers, layers_for
from specpanel.core.training.servers import extracting_command, serving
from specpanel.core.training.stage import Workplace, interruptible
from specpanel.core.training.states_file import check_states
from specpanel.core.training.target_client import TargetClient
from specpanel.core.training.token_rows import read_rows

_STALE_S = 300.0
_CLEAN_EVERY_S = 5.0
_SHARED_MEMORY = Path("/dev/shm")
_PROBE_TOKENS = 48


def target_layers(place: Workplace) -> tuple[Layers, int]:
    """The layers to extract, and the target's hidden size.

    Raises:
        ConfigurationError: the target's config.json does not tell, or a layer is not there.
    """
    config = read_config(place.target)
    if config.layers is None or config.hidden_size is None:
        raise ConfigurationError(
            f"{place.target}/config.json names no number of layers or no hidden size",
            "Use a folder of a causal language model.",
        )
    return layers_for(place.recipe.algorithm.target_layer_ids, config.layers), config.hidden_size


def hand_over_folder(place: Workplace) -> Path:
    """Where the server puts its files: in memory where that can be had."""
    if place.recipe.extraction.folder is not None:
        return place.recipe.extraction.folder
    if os.access(_SHARED_MEMORY, os.W_OK):
        return _SHARED_MEMORY / f"specpanel-{os.getuid()}-{place.folder.root.name}"
    return place.folder.data / "hand-over"


def refuse_full(folder: Path, needed_bytes: int, free_share: float, what: str) -> None:
    """Stop before a disk is full.

    Raises:
        SpecpanelError: with what is needed and what is free.
    """
    there = next(one for one in (folder, *folder.parents) if one.exists())
    usage = shutil.disk_usage(there)
    left = usage.free - needed_bytes
    if left < free_share * usage.total:
        raise SpecpanelError(
            f"{what} would need {needed_bytes / 1e9:.2f} GB in {there}, where {usage.free / 1e9:.2f} GB "
            f"are free and {free_share:.0%} are to stay free",
            "Free some space, use fewer prompts, or set extraction.folder.",
        )


class ExtractionServer:
    """A running extraction server. ``restarts_left`` counts down with each start after the first."""

    def __init__(self, place: Workplace, launch: Launch, folder: Path) -> None:
        self.place = place
        self.launch = launch
        self.folder = folder

    @property
    def endpoint(self) -> str:
        return f"{self.launch.record.url}/v1"

    @property
    def died(self) -> bool:
        return self.launch.exit_code is not None

    def failure(self) -> LaunchError:
        return self.launch.failure()

    def free_share(self) -> float:
        usage = shutil.disk_usage(self.folder)
        return usage.free / usage.total if usage.total else 1.0


@asynccontextmanager
async def extraction_server(
    place: Workplace, folder: Path, *, clean: bool
) -> AsyncIterator[tuple[ExtractionServer, dict[str, Any]]]:
    """A server that passed its probe, and what the probe found.

    Args:
        folder: where it writes; ours alone, and gone afterwards where it was made here.
        clean: remove files that nobody fetched for five minutes.
    """
    layers, hidden = target_layers(place)
    profile, command = extracting_command(place, layers, folder)

    def tell(event: FindingMade | Forced) -> None:
        if isinstance(event, FindingMade):
            place.emit(event)

    await asyncio.to_thread(refuse_what_cannot_work, profile, place.vllm, tell)
    ours = _make(folder)
    cleaning: asyncio.Task[None] | None = None
    try:
        async with serving(place, profile, command) as launch:
            server = ExtractionServer(place, launch, folder)
            async with interruptible(place.interrupted):
                facts = await probe(place, server, layers, hidden)
            if clean:
                cleaning = asyncio.create_task(_collect(folder))
            yield server, facts
    finally:
        if cleaning is not None:
            cleaning.cancel()
        if ours:
            shutil.rmtree(folder, ignore_errors=True)


async def probe(
    place: Workplace, server: ExtractionServer, layers: Layers, hidden: int
) -> dict[str, Any]:
    """Ask for the states of one row twice and look at them: shape, values, and that both are alike.

    Raises:
        SpecpanelError: they are not what the trainer will take them for.
    """
    first = next(iter(read_rows(place.folder.rows)), None)
    ids = first.input_ids[:_PROBE_TOKENS] if first else tuple(range(3, 19))
    began = time.monotonic()
    async with TargetClient(server.launch.record.url, place.target) as client:
        one = await client.states(ids)
        took_s = time.monotonic() - began
        facts = await asyncio.to_thread(check_states, one, ids, len(layers.written), hidden)
        two = await client.states(ids)
        again = await asyncio.to_thread(check_states, two, ids, len(layers.written), hidden)
    for path in {one, two}:
        path.unlink(missing_ok=True)
    if facts.largest != again.largest:
        place.emit(
            Note(
                "the hidden states of the same tokens differ a little from one request to the next"
            )
        )
    return {
        **asdict(facts),
        "layers": list(layers.written),
        "vllm_version": place.vllm.vllm_version,
        "probe_ms": took_s * 1000,
        "bytes_per_token": facts.size_bytes / len(ids),
    }


def _make(folder: Path) -> bool:
    """Make the folder for us alone; whether it was not there."""
    if folder.exists():
        for stale in (*folder.glob("*.safetensors"), *folder.glob("*.safetensors.lock")):
            stale.unlink(missing_ok=True)
        return False
    try:
        folder.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise ConfigurationError(
            f"the folder for hidden states {folder} cannot be made: {error.strerror or error}",
            "Set extraction.folder to one that can be written.",
        ) from None
    return True


async def _collect(folder: Path) -> None:
    """Remove what nobody fetched: a request that was given up leaves its file."""
    while True:
        await asyncio.sleep(_CLEAN_EVERY_S)
        remove_stale(folder, time.time() - _STALE_S)


def remove_stale(folder: Path, before_unix: float) -> int:
    """Remove files of states that are older; how many."""
    removed = 0
    for pattern in ("*.safetensors", "*.safetensors.lock"):
        for path in folder.glob(pattern):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < before_unix:
                    path.unlink()
                    removed += 1
    return removed
