"""A server that runs already, as an experiment sees it: what is known of it, without a start."""

import asyncio
import os
from dataclasses import dataclass

from specpanel.core.engine.api_key import key_to_tell
from specpanel.core.engine.client import EngineClient
from specpanel.core.engine.interpreter import probe_interpreter, resolve_python
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.engine.metrics import EngineCounters, ExpositionError, parse_exposition
from specpanel.core.engine.process import running_at
from specpanel.core.errors import ServerUnreachableError
from specpanel.core.settings.profile import Profile


@dataclass(frozen=True, slots=True)
class Attached:
    """``settings`` is what it was launched from where specpanel did that; None: a server of others.

    ``drafter`` is "unknown" where the server speculates and nobody says with what.
    """

    url: str
    name: str
    model: str | None
    drafter: str
    draft_tokens: int | None
    facts: InterpreterFacts
    settings: Profile | None
    api_key: str | None


async def attached(url: str, profile: Profile, wanted: str | None = None) -> Attached:
    """Look at the server at ``url``; ``wanted`` is the model to ask for, the first that it lists where None.

    Args:
        profile: what is asked of it, and where its key may stand: what is kept of a launch holds no secrets.

    Raises:
        ServerUnreachableError: nothing answers, or it is not vLLM, or it tells no counters.
    """
    async with EngineClient(url) as client:
        version = await client.require_vllm()
        names = await client.model_names()
        counters = await counters_of(client)
        address = client.url
    if counters is None:
        raise ServerUnreachableError(f"the server at {address} tells no metrics that can be read")
    record = running_at(address)
    key = key_to_tell(profile, os.environ, address, ours=record is not None)
    settings = None if record is None else record.settings
    model = wanted or (names[0] if names else None)
    if record is None or settings is None:
        drafter = "unknown" if counters.speculates else "none"
        facts = _facts_of_others(version)
        return Attached(
            *(address, model or address, model, drafter, counters.draft_tokens_a_step),
            *(facts, None, key),
        )
    python = resolve_python(settings.engine.python)
    facts = await asyncio.to_thread(probe_interpreter, python)
    settings = settings.model_copy(update={"traffic": profile.traffic})
    drafter, k = settings.drafter.method, settings.drafter.draft_tokens
    return Attached(address, record.name, model, drafter, k, facts, settings, key)


async def counters_of(client: EngineClient) -> EngineCounters | None:
    """The counters now; None where they cannot be read."""
    body = await client.metrics()
    if body.text is None:
        return None
    try:
        return parse_exposition(body.text).counters
    except ExpositionError:
        return None


def _facts_of_others(version: str | None) -> InterpreterFacts:
    return InterpreterFacts(
        python="",
        python_version="unknown",
        distribution=None,
        vllm_version=version,
        platform="unknown",
        launcher="serve",
        console_script=None,
        packages=frozenset(),
    )
