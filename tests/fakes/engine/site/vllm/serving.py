"""The HTTP side: health, version, models, metrics, and chat answers as a stream of events."""

import json
import os
import signal
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from vllm.answering import Answer, Serving, prompt_ids
from vllm.developer import ROUTES
from vllm.writing import bare


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
        elif self.path.startswith("/is_") and self._is_for_developers():
            self._developed({})
        else:
            self._json(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        serving = self.server.serving
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if self._is_for_developers():
            self._developed(body)
            return
        if self.path == "/tokenize":
            self._json(200, {"tokens": prompt_ids(body), "count": len(prompt_ids(body))})
            return
        if self.path == "/v1/completions":
            self._likelihoods(body)
            return
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
            self._json(500, {"error": {"message": serving.script.error, "code": 500}})
            return
        self._stream(body, bad)

    def log_request(self, code: object = "-", size: object = "-") -> None:
        host, port = self.client_address[:2]
        status = getattr(code, "value", code)
        if self.command == "POST" or status != 200:
            bare(f'INFO:     {host}:{port} - "{self.command} {self.path} HTTP/1.1" {status}')

    def _is_for_developers(self) -> bool:
        return self.server.serving.developer is not None and urlsplit(self.path).path in ROUTES

    def _developed(self, body: dict[str, Any]) -> None:
        developer = self.server.serving.developer
        assert developer is not None
        self._json(*developer.answer(self.path, body))

    # -- answers ----------------------------------------------------------------------------

    def _metrics(self) -> None:
        serving = self.server.serving
        number = serving.next_scrape()
        kind = serving.script.metrics if number >= serving.script.metrics_good else "ok"
        if kind == "reset" and number == serving.script.metrics_good:
            serving.counters.start_over()
        text = serving.counters.exposition(
            shrunk_by=7 * number if kind == "backwards" else 0,
            engines=1 + number % 3 if kind == "coming and going" else 1,
            old_names=kind == "0.9",
        )
        typed = "text/plain; version=0.0.4"
        if kind == "hang":
            time.sleep(3600)
        elif kind in ("endless", "drip"):
            self._never_ending(text.encode(), pause_s=0.5 if kind == "drip" else 0.0)
        elif kind == "500":
            self._answer(500, serving.script.error.encode(), "text/plain")
        elif kind == "elsewhere":
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1:9/metrics")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif kind == "empty":
            self._answer(200, b"", typed)
        elif kind == "truncated":
            cut = text.index("vllm:generation_tokens_total") + 30
            self._answer(200, text[:cut].encode(), typed)
        elif kind == "huge":
            padding = "".join(f'other_family{{place="{n}"}} 1.0\n' for n in range(320_000))
            self._answer(200, f"{padding}{text}".encode(), typed)
        else:
            self._answer(200, text.encode(), typed)

    def _never_ending(self, text: bytes, pause_s: float) -> None:
        """Good metrics, then comments until the reader leaves: at full speed, or a byte now and then."""
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        part = text
        while True:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.flush()
            time.sleep(pause_s)
            part = b"#" if pause_s else b"# and on it goes\n" * 4096

    def _likelihoods(self, body: dict[str, Any]) -> None:
        """The next token's likelihoods: the one that follows by the pattern, and the one after it."""
        token = (body["prompt"][-1] + 7919) % 49_000
        gap = self.server.serving.script.gap_nats
        listed = {f"token_id:{token}": -0.5, f"token_id:{token + 1}": -0.5 - gap}
        choice = {"text": "", "logprobs": {"top_logprobs": [listed]}, "finish_reason": "length"}
        self._json(200, {"object": "text_completion", "choices": [choice]})

    def _json(self, status: int, content: Any) -> None:
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
        for number, chunk in enumerate(Answer(self.server.serving, body).chunks()):
            if number == 3 and bad == "hang":
                time.sleep(3600)
            if number == 3 and bad == "cut":
                self.close_connection = True
                return
            if number == 3 and bad == "half a character":
                whole = f"data: {json.dumps(chunk)}\n\n".replace(
                    '"content": "', '"content": "\u8a9e'
                )
                data = whole.encode()
                half = data[: data.index("\u8a9e".encode()) + 1]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(half), half))
                self.wfile.flush()
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
