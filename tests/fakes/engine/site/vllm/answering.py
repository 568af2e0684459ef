"""Chat answers as vLLM streams them, one chunk a step; tokens and accepted drafts follow a pattern."""

import json
import os
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from vllm.counting import Counters
from vllm.developer import Developer
from vllm.script import Script

_VOCABULARY = 49_000


@dataclass
class Serving:
    """What the handlers share. ``itertools.count`` is safe between threads."""

    script: Script
    model: str
    draft_tokens: int  # 0: plain decoding
    per_step: bool  # --per-request-spec-decode-metrics detailed
    counters: Counters
    engine_pid: int
    developer: Developer | None = None  # VLLM_SERVER_DEV_MODE
    engine_dead: bool = False
    _scrapes: Iterator[int] = field(default_factory=count)
    _requests: Iterator[int] = field(default_factory=count)

    def next_scrape(self) -> int:
        return next(self._scrapes)

    def next_request(self) -> int:
        return next(self._requests)


def _chosen_k() -> int:
    """K as the control file of a proposer with chosen acceptance has it; no limit without one."""
    control = os.environ.get("CHOSEN_ACCEPTANCE")
    return sys.maxsize if control is None else int(json.loads(Path(control).read_text())["k"])


def prompt_ids(body: dict[str, Any]) -> list[int]:
    """Token ids of a prompt, one a word; what ``/tokenize`` gives."""
    words = json.dumps(body["messages"]).split()
    return [zlib.crc32(word.encode()) % _VOCABULARY for word in words]


class Answer:
    """One answer. The same prompt gives the same tokens, with a drafter and without."""

    def __init__(self, serving: Serving, body: dict[str, Any]) -> None:
        prompt = json.dumps(body["messages"])
        seed = zlib.crc32(prompt.encode())
        self._serving = serving
        self._counters = serving.counters
        self._prompt_tokens = len(prompt.split())
        self._wanted = int(body.get("max_tokens", 16))
        self._ids = [(seed + 7919 * place) % _VOCABULARY for place in range(self._wanted)]
        parts_at = serving.script.parts_at
        if serving.draft_tokens and parts_at is not None and parts_at < self._wanted:
            self._ids[parts_at] += 1
        self._give_ids = bool(body.get("return_token_ids"))
        self._give_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        self._accepted: list[int] = []  # a step
        self._base = {
            "id": f"chatcmpl-{seed:08x}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": serving.model,
        }

    def chunks(self) -> Iterator[dict[str, Any]]:
        """Each when its step is done. A client that leaves early is counted as an abort."""
        counters = self._counters
        counters.began()
        counters.add("prompt_tokens", self._prompt_tokens)
        counters.add("prefix_cache_queries", self._prompt_tokens)
        reason = "abort"
        try:
            yield self._chunk({"role": "assistant", "content": ""})
            yield from self._steps()
            reason = "length"
        finally:
            counters.ended(reason)
        if self._give_usage:
            yield self._last()

    def _steps(self) -> Iterator[dict[str, Any]]:
        counters, step_s = self._counters, self._serving.script.step_s
        began_s = first_s = time.monotonic()
        sent = 0
        while sent < self._wanted:
            time.sleep(step_s)
            if self._serving.developer is not None:
                self._serving.developer.going.wait()  # frozen while it is paused, as mode "keep" has it
            new = 1
            if sent == 0:
                first_s = time.monotonic()
                counters.observe("time_to_first_token_seconds", first_s - began_s)
            else:
                counters.observe("inter_token_latency_seconds", step_s)
                new += self._draft(self._wanted - sent - 1)
            counters.add("generation_tokens", new)
            ids = self._ids[sent : sent + new]
            sent += new
            yield self._chunk({"content": "".join(f" {one:x}" for one in ids)}, ids, sent)
        ended_s = time.monotonic()
        counters.observe("e2e_request_latency_seconds", ended_s - began_s)
        if self._wanted > 1:
            each_s = (ended_s - first_s) / (self._wanted - 1)
            counters.observe("request_time_per_output_token_seconds", each_s)

    def _draft(self, room: int) -> int:
        """Draft tokens that this step accepts; at most as many as there is room for."""
        drafted = min(self._serving.draft_tokens, _chosen_k())
        if not drafted:
            return 0
        pattern = self._serving.script.accepted
        accepted = min(pattern[len(self._accepted) % len(pattern)], drafted, room)
        self._counters.drafted(accepted)
        self._accepted.append(accepted)
        return accepted

    def _chunk(
        self, delta: dict[str, str], ids: list[int] | None = None, sent: int = 0
    ) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "delta": delta, "logprobs": None}
        choice["finish_reason"] = "length" if sent == self._wanted else None
        if ids is not None and self._give_ids:
            choice["token_ids"] = ids
        return {**self._base, "choices": [choice]}

    def _last(self) -> dict[str, Any]:
        usage = {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": self._wanted,
            "total_tokens": self._prompt_tokens + self._wanted,
        }
        last: dict[str, Any] = {**self._base, "choices": [], "usage": usage}
        drafted, accepted = self._serving.draft_tokens, self._accepted
        if drafted and self._serving.per_step:
            last["metrics"] = {
                "speculative_decoding": {
                    "mean_acceptance_length": 1 + sum(accepted) / max(1, len(accepted)),
                    "num_spec_steps": len(accepted),
                    "num_accepted_draft_tokens": sum(accepted),
                    "num_draft_tokens": drafted * len(accepted),
                    "num_spec_tokens": drafted,
                    "per_step_accepted": accepted,
                    "per_step_drafted": [drafted] * len(accepted),
                }
            }
        return last
