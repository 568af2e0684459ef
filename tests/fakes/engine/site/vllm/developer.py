"""The developer routes of vLLM 0.32 (``VLLM_SERVER_DEV_MODE=1``): calls to workers, pause, sleep.

Read from ``entrypoints/serve/dev/{rpc,sleep}/api_router.py`` and ``entrypoints/rl/online/api_router.py``.
"""

import os
import signal
import threading
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from vllm.drafter import Worker
from vllm.script import Script
from vllm.writing import record

_MODES = ("abort", "wait", "keep")
ROUTES = (
    *("/collective_rpc", "/pause", "/resume", "/is_paused"),
    *("/sleep", "/wake_up", "/is_sleeping"),
)


@dataclass
class Developer:
    """What the routes change. ``going`` is set unless the engine is paused or asleep."""

    script: Script
    extended: bool  # --worker-extension-cls
    worker: Worker
    going: threading.Event = field(default_factory=threading.Event)
    paused: bool = False
    asleep: bool = False

    def __post_init__(self) -> None:
        self._show()

    def answer(self, target: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Status and content for a request to one of ``ROUTES``; None as content: nothing comes back."""
        parts = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        record("APIServer", "developer.py:1", f"asked for {target} {body.get('method', '')}")
        route = parts.path
        if route == "/collective_rpc":
            return self._call(body)
        if route == "/pause":
            return self._paused(query.get("mode", "abort"))
        if route == "/resume":
            return self._resumed()
        if route == "/sleep":
            self.asleep = True
            self._show()
            return 200, {"status": "sleeping", "level": int(query.get("level", 1))}
        if route == "/wake_up":
            self.asleep = False
            self._show()
            return 200, {"status": "awake", "tags": None}
        return 200, {route.strip("/"): self.paused if route == "/is_paused" else self.asleep}

    def _paused(self, mode: str) -> tuple[int, Any]:
        if mode not in _MODES:
            return 422, {"detail": f"Input should be one of {_MODES}"}
        if self.script.pause == "500":
            return 500, {"error": f"Failed to pause generation: {self.script.error}"}
        self.paused = True
        self._show()
        return 200, {"status": "paused"}

    def _resumed(self) -> tuple[int, Any]:
        if self.script.resume == "hang":
            threading.Event().wait()
        if self.script.resume == "500":
            return 500, {"error": f"Failed to resume generation: {self.script.error}"}
        self.paused = False
        self._show()
        return 200, {"status": "resumed"}

    def _call(self, body: dict[str, Any]) -> tuple[int, Any]:
        method = body.get("method")
        if method is None:
            return 400, {"detail": "Missing 'method' in request body"}
        if not self.extended or not str(method).startswith("specpanel_"):
            return 500, {"error": {"message": f"'CPUWorker' object has no attribute {method!r}"}}
        if set(self.script.rpc_at.split()) & set(str(method).split("_")):
            return self._misbehaving(method, body)
        return 200, {"results": [self.worker.call(method, body.get("args", []))]}

    def _misbehaving(self, method: str, body: dict[str, Any]) -> tuple[int, Any]:
        bad = self.script.rpc
        if bad == "hang":
            threading.Event().wait()
        if bad == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if bad == "500":
            return 500, {"error": {"message": self.script.error}}
        if bad == "garbage":
            return 200, {"results": [{"rank": 0, "ok": True, "fingerprint": 7, "folder": None}]}
        if bad == "list":
            return 200, [self.script.error]
        if bad == "late":  # done, but told as a failure
            self.worker.call(method, body.get("args", []))
            return 500, {"error": {"message": self.script.error}}
        return 200, {"results": [self.worker.call(method, body.get("args", []))]}

    def _show(self) -> None:
        if self.paused or self.asleep:
            self.going.clear()
        else:
            self.going.set()
