"""The HTTP side: health, version, models, metrics, and chat answers as a stream of events."""

import json
import os
import signal
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

from vllm.counting import Counters
from vllm.script import Script
from vllm.writing import bare

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
    engine_dead: bool = False
    _scrapes: Iterator[int] = field(default_factory=count)
    _requests: Iterator[int] = field(default_factory=count)

    def next_scrape(self) -> int:
        return next(self._scrapes)

    def next_request(self) -> int:
        return next(self._requests)


class Server(ThreadingHTTPServer):
    """A threaded server over a socket that is bound already."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, serving: Serving) -> None:
        super().__init__(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self.socket.close()
        self.serving = serving

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True  # each token leaves when it is made
    server: Server

    def do_GET(self) -> None:
        serving = self.server.serving
        if self.path == "/health":
            gate = serving.script.health_gate
            shut = serving.engine_dead or (gate is not None and not Path(gate).exists())
            self._answer(503 if shut else 200, b"", "text/plain")
        elif self.path == "/version":
            self._json(200, {"version": "0.32.0"})
        elif self.path == "/v1/models":
            entry = {"id": serving.model, "object": "model", "owned_by": "vllm"}
            self._json(200, {"object": "list", "data": [entry]})
        elif self.path == "/metrics":
            self._metrics()
        else:
            self._json(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        serving = self.server.serving
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        if self.path != "/v1/chat/completions" or not body.get("stream"):
            self._json(404, {"detail": "Not Found"})
            return
        if body.get("model") not in (None, serving.model):
            error = {"message": f"The model `{body['model']}` does not exist.", "code": 404}
            self._json(404, {"error": error})
            return
        if serving.engine_dead:
            self._json(500, {"error": {"message": "EngineCore encountered an issue.", "code": 500}})
            return
        number = serving.next_request()
        if number == serving.script.die_after_requests:
            victim = os.getpid() if serving.script.die == "server" else serving.engine_pid
            os.kill(victim, signal.SIGKILL)
        bad = serving.script.requests if number >= serving.script.requests_good else "ok"
        if bad == "500":
            self._json(500, {"error": {"message": "said by the server", "code": 500}})
            return
        self._stream(body, bad)

    def log_request(self, code: object = "-", size: object = "-") -> None:
        host, port = self.client_address[:2]
        status = getattr(code, "value", code)
        if self.command == "POST" or status != 200:
            bare(f'INFO:     {host}:{port} - "{self.command} {self.path} HTTP/1.1" {status}')

    # -- answers ----------------------------------------------------------------------------

    def _metrics(self) -> None:
        serving = self.server.serving
        number = serving.next_scrape()
        kind = serving.script.metrics if number >= serving.script.metrics_good else "ok"
        if kind == "reset" and number == serving.script.metrics_good:
            serving.counters.start_over()
        text = serving.counters.exposition()
        if kind == "hang":
            time.sleep(3600)
        if kind == "500":
            self._answer(500, b"Internal Server Error", "text/plain")
        elif kind == "empty":
            self._answer(200, b"", "text/plain; version=0.0.4")
        elif kind == "truncated":
            cut = text.index("vllm:generation_tokens_total") + 30
            self._answer(200, text[:cut].encode(), "text/plain; version=0.0.4")
        else:
            self._answer(200, text.encode(), "text/plain; version=0.0.4")

    def _json(self, status: int, content: dict[str, Any]) -> None:
        self._answer(status, json.dumps(content).encode(), "application/json")

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _stream(self, body: dict[str, Any], bad: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number, chunk in enumerate(answer(self.server.serving, body)):
            if number == 3 and bad == "hang":
                time.sleep(3600)
            if number == 3 and bad == "cut":
                self.close_connection = True
                return
            self._event(json.dumps(chunk))
        self._event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _event(self, data: str) -> None:
        event = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        self.wfile.flush()


def answer(serving: Serving, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The chunks of one answer, each when its step is done. The same prompt gives the same tokens."""
    counters, script = serving.counters, serving.script
    prompt = json.dumps(body["messages"])
    seed = zlib.crc32(prompt.encode())
    wanted = int(body.get("max_tokens", 16))
    ids = [(seed + 7919 * place) % _VOCABULARY for place in range(wanted)]
    began = time.monotonic()
    counters.began()
    counters.add("prompt_tokens", len(prompt.split()))
    counters.add("prefix_cache_queries", len(prompt.split()))
    base = {
        "id": f"chatcmpl-{seed:08x}",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": serving.model,
    }
    steps: list[int] = []
    reason = "abort"  # unless it comes to its end
    try:
        yield {**base, "choices": [_choice({"role": "assistant", "content": ""})]}
        sent = 0
        while sent < wanted:
            time.sleep(script.step_s)
            new = 1
            if sent == 0:
                counters.observe("time_to_first_token_seconds", time.monotonic() - began)
                first = time.monotonic()
            else:
                counters.observe("inter_token_latency_seconds", script.step_s)
                if serving.draft_tokens:
                    pattern = script.accepted[len(steps) % len(script.accepted)]
                    accepted = min(pattern, serving.draft_tokens, wanted - sent - 1)
                    counters.drafted(accepted)
                    steps.append(accepted)
                    new += accepted
            counters.add("generation_tokens", new)
            part = ids[sent : sent + new]
            sent += new
            choice = _choice({"content": "".join(f" {token:x}" for token in part)})
            if body.get("return_token_ids"):
                choice["token_ids"] = part
            choice["finish_reason"] = "length" if sent == wanted else None
            yield {**base, "choices": [choice]}
        whole = time.monotonic() - began
        counters.observe("e2e_request_latency_seconds", whole)
        if wanted > 1:
            each = (time.monotonic() - first) / (wanted - 1)
            counters.observe("request_time_per_output_token_seconds", each)
        reason = "length"
    finally:
        counters.ended(reason)
    if (body.get("stream_options") or {}).get("include_usage"):
        prompt_tokens = len(prompt.split())
        usage = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": wanted,
            "total_tokens": prompt_tokens + wanted,
        }
        last = {**base, "choices": [], "usage": usage}
        if serving.draft_tokens and serving.per_step:
            last["metrics"] = {"speculative_decoding": _speculation(serving.draft_tokens, steps)}
        yield last


def _choice(delta: dict[str, str]) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}


def _speculation(draft_tokens: int, steps: list[int]) -> dict[str, Any]:
    return {
        "mean_acceptance_length": 1 + sum(steps) / max(1, len(steps)),
        "num_spec_steps": len(steps),
        "num_accepted_draft_tokens": sum(steps),
        "num_draft_tokens": draft_tokens * len(steps),
        "num_spec_tokens": draft_tokens,
        "per_step_accepted": steps,
        "per_step_drafted": [draft_tokens] * len(steps),
    }
