"""The server that answers prompts and puts conversations into tokens: our own, or one that runs already."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from specpanel.core.errors import ConfigurationError, ServerUnreachableError
from specpanel.core.session.checks import refuse_what_cannot_work
from specpanel.core.session.events import FindingMade, Forced
from specpanel.core.training.servers import answering_command, serving
from specpanel.core.training.stage import Workplace
from specpanel.core.training.target_client import TargetClient
from specpanel.core.training.trainer_command import absolute
from specpanel.core.web import failure_reason, server_root


@asynccontextmanager
async def answering(place: Workplace) -> AsyncIterator[TargetClient]:
    """A client of a server of the target; what was started for it is ended on the way out.

    Raises:
        ConfigurationError: ``data.server`` serves another model.
        LaunchError, InterruptedRunError: as a start.
    """
    if place.recipe.data.server is not None:
        url = server_root(place.recipe.data.server)
        async with TargetClient(url, await served_name(url, place.target)) as client:
            yield client
        return
    profile, command = answering_command(place)

    def tell(event: FindingMade | Forced) -> None:
        if isinstance(event, FindingMade):
            place.emit(event)

    await asyncio.to_thread(refuse_what_cannot_work, profile, place.vllm, tell)
    async with (
        serving(place, profile, command) as server,
        TargetClient(server.record.url, place.target) as client,
    ):
        yield client


async def served_name(url: str, target: str) -> str:
    """The name that the server at ``url`` gives ``target``; a drafter changes no answer, so it may have one.

    Raises:
        ConfigurationError: it serves another model.
        ServerUnreachableError: nothing answers.
    """
    async with httpx.AsyncClient(base_url=url, timeout=10.0, trust_env=False) as http:
        try:
            found: Any = (await http.get("/v1/models")).json()
            models = [one for one in found["data"] if isinstance(one, dict)]
        except httpx.HTTPError as error:
            raise ServerUnreachableError(
                f"{url} does not answer ({failure_reason(error)})"
            ) from None
        except (ValueError, KeyError, TypeError):
            models = []
    for model in models:
        folder = str(model.get("root") or model.get("id"))
        if folder == target or absolute(folder) == target:
            return str(model["id"])
    served = ", ".join(str(model.get("root") or model.get("id")) for model in models) or "nothing"
    raise ConfigurationError(
        f"{url} serves {served}, and the target is {target}",
        "Set target.model to the folder that the server was started with.",
    )
