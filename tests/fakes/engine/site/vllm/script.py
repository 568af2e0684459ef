"""How this server shall behave: the JSON object in the environment variable ``FAKE_VLLM``."""

import json
import os
from dataclasses import dataclass
from typing import Literal

PHASES = ("imports", "config", "engine", "weights", "drafter", "KV cache", "http", "ready")


@dataclass(frozen=True)
class Script:
    """Phases are named as in ``PHASES``; a phase is over once its last line is written."""

    start_s: float = 0.15  # from the first line to ready
    # The end of a start: in this phase, with these last words (None: none), by this exit code or signal.
    crash_at: str | None = None
    crash_text: str | None = "RuntimeError: something that no table knows"
    crash_signal: int | None = None
    exit_code: int = 1
    # A start that gets stuck: silent for ever, or until a file exists, or busy with unknown lines.
    silent_after: str | None = None
    gate_after: str | None = None
    gate: str | None = None
    chatter_after: str | None = None
    chatter_s: float = 0.0
    mute: bool = False  # nothing it writes reaches its log, as on a full disk
    health_gate: str | None = None  # /health answers 503 until this file exists
    # Processes.
    hang_on_sigterm: bool = False
    stop_s: float = 0.0  # how long an orderly end takes
    worker: Literal["none", "child", "own session"] = "none"  # the latter ignores its parents' end
    engine_outlives: bool = False  # EngineCore goes on when the API server is gone
    # Serving: the first ``…_good`` are answered well.
    metrics: Literal[
        *("ok", "500", "empty", "truncated", "hang", "reset"),
        *("huge", "endless", "drip", "elsewhere", "backwards", "0.9", "coming and going"),
    ] = "ok"
    metrics_good: int = 0
    requests: Literal["ok", "500", "cut", "hang", "half a character"] = "ok"
    requests_good: int = 0
    die_after_requests: int | None = None
    die: Literal["engine", "server"] = "engine"
    fall_s: float = (
        0.0  # from EngineCore's end to the server's; requests and /health fail meanwhile
    )
    # Developer routes: how a call to its workers goes wrong, and at which (words of methods' names);
    # "late" does it and answers 500 all the same.
    rpc: Literal["ok", "500", "garbage", "list", "hang", "die", "late"] = "ok"
    rpc_at: str = "commit"
    pause: Literal["ok", "500"] = "ok"
    resume: Literal["ok", "500", "hang"] = "ok"
    # What it says where it can choose: its name among the models and labels, and the text of an error 500.
    name: str | None = None
    error: str = "said by the server"
    # While it serves, lines in the log without an end: plain, no text at all, a megabyte each, or rewritten.
    flood: Literal["none", "lines", "binary", "long", "returns"] = "none"
    flood_lines_per_s: int = 20_000
    step_s: float = 0.004
    accepted: tuple[int, ...] = (4, 0, 2, 1)  # a step, over and over; never more than K
    # With a drafter, every answer has another token at this place; how far apart its likelihood is from
    # that of the token without a drafter, in nats.
    parts_at: int | None = None
    gap_nats: float = 1.0

    @staticmethod
    def read() -> "Script":
        given = json.loads(os.environ.get("FAKE_VLLM") or "{}")
        script = Script(**given)
        for phase in (script.crash_at, script.silent_after, script.gate_after):
            if phase is not None and phase not in PHASES:
                raise ValueError(f"FAKE_VLLM: there is no phase {phase}")
        return script
