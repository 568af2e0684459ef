"""Ask a server a set of prompts, each once and greedy, so that drafters can be held against each other."""

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from specpanel.core.errors import SpecpanelError
from specpanel.core.session.launch import InterruptedRunError
from specpanel.core.settings.profile import Traffic
from specpanel.core.traffic.endpoint import Endpoint
from specpanel.core.traffic.load import Load
from specpanel.core.traffic.records import Prompt, RequestRecord


async def ask_each(
    url: str,
    model: str | None,
    prompts: Sequence[Prompt],
    traffic: Traffic,
    interrupted: asyncio.Event,
    on_record: Callable[[RequestRecord], None] = lambda _: None,
) -> tuple[RequestRecord, ...]:
    """Every prompt once, greedy, as many at a time as ``traffic`` says.

    Args:
        model: name to ask for; None takes what the server lists.

    Raises:
        InterruptedRunError: it was interrupted.
        SpecpanelError: too many failed, or the server does not report steps.
    """
    once = traffic.model_copy(
        update={
            "requests": len(prompts),
            "duration_s": None,
            "rate_per_s": None,
            "warmup": 0,
            "temperature": 0.0,
            "capture": None,  # what is measured with must never be trained on
        }
    )
    async with Endpoint(url, model) as endpoint:
        found = await Load(endpoint, prompts, once, on_record=on_record, stop=interrupted).run()
    if interrupted.is_set():
        raise InterruptedRunError
    if not any(record.accepted for record in found.records):
        raise SpecpanelError(
            f"{url} does not report what it accepts with each answer",
            "Start it with --per-request-spec-decode-metrics detailed (engine.per_request_metrics).",
        )
    return found.records


def single_questions(path: Path) -> tuple[Prompt, ...]:
    """The prompts of a run's file that are one question, perhaps under a system message; () without a file.

    Conversations of several turns are passed over: what is measured sends one question.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ()
    entries = (json.loads(line) for line in lines)
    return tuple(
        Prompt(str(one["id"]), str(one["kind"]), one["text"], one.get("system"))
        for one in entries
        if "text" in one
    )
