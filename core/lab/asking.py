"""What experiments ask a vLLM server besides answers: token ids of a prompt, likelihoods of a next token."""

from collections.abc import Sequence
from typing import Any

import httpx

from specpanel.core.errors import ServerUnreachableError
from specpanel.core.posting import json_object, posted
from specpanel.core.printable import one_line
from specpanel.core.traffic.records import Prompt

_DEADLINE_S = 60.0
_MOST_BYTES = 16 << 20
LISTED = 10  # likeliest tokens that are asked for
_ID_PREFIX = "token_id:"


async def prompt_token_ids(url: str, model: str, prompt: Prompt) -> tuple[int, ...]:
    """The prompt as the target sees it, chat template included (vLLM's ``/tokenize``).

    Raises:
        ServerUnreachableError: the server does not say.
    """
    system = [] if prompt.system is None else [{"role": "system", "content": prompt.system}]
    body = {
        "model": model,
        "messages": [*system, {"role": "user", "content": prompt.text}],
        "add_generation_prompt": True,
    }
    tokens = (await _post(url, "/tokenize", body)).get("tokens")
    if not isinstance(tokens, list) or not all(isinstance(token, int) for token in tokens):
        raise ServerUnreachableError(f"{url} does not tell the token ids of a prompt")
    return tuple(tokens)


async def next_logprobs(url: str, model: str, context: Sequence[int]) -> dict[int, float] | None:
    """Log probabilities, in nats, of the likeliest tokens after ``context``; None where it does not say.

    The token is the first after a prefill, which no drafter has a part in.

    Raises:
        ServerUnreachableError: the server refuses or does not answer.
    """
    body = {
        "model": model,
        "prompt": list(context),
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": LISTED,
        "return_tokens_as_token_ids": True,
    }
    answer = await _post(url, "/v1/completions", body)
    try:
        listed = answer["choices"][0]["logprobs"]["top_logprobs"][0]
        return {
            int(name.removeprefix(_ID_PREFIX)): float(value)
            for name, value in listed.items()
            if name.startswith(_ID_PREFIX)
        } or None
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        return None


async def _post(url: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=url, timeout=_DEADLINE_S, trust_env=False) as client:
        status, text = await posted(
            client, path, body, deadline_s=_DEADLINE_S, most_bytes=_MOST_BYTES
        )
    if status != 200:
        said = one_line(text.decode("utf-8", "replace"), 120)
        raise ServerUnreachableError(f"{url}{path} refuses: HTTP {status} {said}")
    found = json_object(text)
    if found is None:
        raise ServerUnreachableError(f"{url}{path} gives no answer (no JSON)")
    return found
