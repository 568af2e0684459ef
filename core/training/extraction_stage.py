"""The extraction stage: a server of hidden states that was probed, or all of them on disk."""

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any, ClassVar

from specpanel.core.errors import ServerUnreachableError, SpecpanelError
from specpanel.core.session.events import Note
from specpanel.core.together import together
from specpanel.core.training.events import Progressed
from specpanel.core.training.extraction_plan import state_dtype_bytes, states_bytes
from specpanel.core.training.extraction_server import (
    ExtractionServer,
    extraction_server,
    hand_over_folder,
    refuse_full,
    target_layers,
)
from specpanel.core.training.records import StageName
from specpanel.core.training.servers import is_cpu
from specpanel.core.training.source import dataset_rows
from specpanel.core.training.stage import Workplace, interruptible
from specpanel.core.training.states_file import check_states
from specpanel.core.training.target_client import TargetClient
from specpanel.core.training.token_rows import read_rows

HELD = "extraction"  # in Workplace.shared: the server that the train stage goes on with
_FREE_CHECK_EVERY = 16


class ExtractionStage:
    """Online: starts the server and leaves it to the train stage. Offline: fetches everything, once."""

    name: ClassVar[StageName] = "extraction"

    def depends_on(self, place: Workplace) -> dict[str, Any]:
        layers, _ = target_layers(place)
        data = place.folder.report("data")
        return {
            "mode": place.recipe.extraction.mode,
            "backend": place.recipe.extraction.backend,
            "layers": layers.written,
            "target": place.target,
            "dtype": place.recipe.target.dtype,
            "vllm": place.vllm.vllm_version,  # states of another version are not mixed in
            "data": data.settings_sha256 if data else None,
        }

    async def run(self, place: Workplace) -> dict[str, Any]:
        """Raises LaunchError, SpecpanelError; states that are on disk stay."""
        if place.recipe.extraction.mode == "online":
            _, facts = await open_server(place)
            return {"mode": "online", **facts}
        return await self._offline(place)

    async def _offline(self, place: Workplace) -> dict[str, Any]:
        rows = await asyncio.to_thread(_prepared_ids, place)
        layers, hidden = target_layers(place)
        tokens = sum(map(len, rows))
        size = state_dtype_bytes(place.recipe.target.dtype, cpu=is_cpu(place))
        needed = states_bytes(tokens, hidden, len(layers.written), size)
        missing = [n for n in range(len(rows)) if not _place(place, n).exists()]
        share = place.recipe.extraction.free_share
        refuse_full(
            place.folder.states,
            needed * len(missing) // max(1, len(rows)),
            share,
            "the hidden states of the data",
        )
        place.folder.states.mkdir(parents=True, exist_ok=True)
        probed: dict[str, Any] = {}
        starts = 0
        while missing:
            starts += 1
            incoming = place.folder.states / "incoming"
            async with extraction_server(place, incoming, clean=False) as (server, found):
                probed = found
                try:
                    await self._fetch(place, server, rows, missing, len(layers.written), hidden)
                except SpecpanelError as error:
                    if isinstance(error, ServerUnreachableError):
                        await _give_time_to_end(server)
                    elif not server.died:
                        raise
                    # One that died may have answered, and never written what it named.
                    if not server.died or starts > place.recipe.extraction.restarts:
                        raise server.failure() if server.died else _gone() from None
                    place.emit(Note("the extraction server died; it is started once more"))
            missing = [n for n in range(len(rows)) if not _place(place, n).exists()]
        written = sum(_place(place, n).stat().st_size for n in range(len(rows)))
        return {"mode": "offline", "rows": len(rows), "tokens": tokens, "bytes": written, **probed}

    async def _fetch(
        self,
        place: Workplace,
        server: ExtractionServer,
        rows: list[tuple[int, ...]],
        missing: list[int],
        layers: int,
        hidden: int,
    ) -> None:
        slots = asyncio.Semaphore(place.recipe.extraction.concurrency)
        done = len(rows) - len(missing)
        began = asyncio.get_running_loop().time()
        tokens = 0

        async def one(client: TargetClient, number: int) -> None:
            nonlocal done, tokens
            async with slots:
                path = await client.states(rows[number])
                await asyncio.to_thread(check_states, path, rows[number], layers, hidden)
                os.replace(path, _place(place, number))
            done += 1
            tokens += len(rows[number])
            elapsed = max(1e-3, asyncio.get_running_loop().time() - began)
            place.emit(Progressed("extraction", "rows", done, len(rows), tokens / elapsed))
            if done % _FREE_CHECK_EVERY == 0:
                refuse_full(
                    place.folder.states, 0, place.recipe.extraction.free_share, "the next row"
                )

        async with (
            TargetClient(server.launch.record.url, place.target) as client,
            interruptible(place.interrupted),
        ):
            await together(one(client, number) for number in missing)


async def open_server(place: Workplace) -> tuple[ExtractionServer, dict[str, Any]]:
    """A probed server that the run holds until it ends, or until ``close_server``."""
    folder = hand_over_folder(place)
    rows = list(read_rows(place.folder.rows))
    longest = max((len(row.input_ids) for row in rows), default=0)
    layers, hidden = target_layers(place)
    size = state_dtype_bytes(place.recipe.target.dtype, cpu=is_cpu(place))
    at_once = place.recipe.extraction.concurrency * (place.recipe.trainer.prefetch + 1)
    refuse_full(
        folder,
        states_bytes(longest, hidden, len(layers.written), size) * at_once,
        place.recipe.extraction.free_share,
        "the hidden states on their way",
    )
    server, facts = await place.held.enter_async_context(
        extraction_server(place, folder, clean=True)
    )
    place.shared[HELD] = server
    return server, facts


async def close_server(place: Workplace) -> None:
    """End the server that the run holds, if any."""
    place.shared.pop(HELD, None)
    await place.held.aclose()


def remove_states(place: Workplace) -> None:
    """Forget states on disk: they are of other rows or layers."""
    shutil.rmtree(place.folder.states, ignore_errors=True)


def _prepared_ids(place: Workplace) -> list[tuple[int, ...]]:
    """Token ids of the trainer's data set, in its order: the trainer asks for states by it."""
    import json

    lines = dataset_rows(place.folder.prepared, place.trainer.python)
    return [tuple(json.loads(line)["input_ids"]) for line in lines]


def _place(place: Workplace, number: int) -> Path:
    return place.folder.states / f"hs_{number}.safetensors"


async def _give_time_to_end(server: ExtractionServer) -> None:
    """vLLM's watchdog ends the server some seconds after its engine."""
    for _ in range(100):
        if server.died:
            return
        await asyncio.sleep(0.1)


def _gone() -> SpecpanelError:
    return ServerUnreachableError(
        "the extraction server runs and does not answer", "Look at its log."
    )
