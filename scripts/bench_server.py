"""A server that answers like vLLM, with a real exposition that grows: bench_server.py PORT [ENGINES].

GET /bench/busy lets the counters grow, GET /bench/quiet holds them. No tokens are made.
"""

import json
import math
import re
import sys
import time
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

EXPOSITION = Path(__file__).parents[1] / "tests" / "data" / "metrics_vllm_0_32_ngram.txt"
GROWTH_A_SECOND = 0.5  # of what the exposition counts

_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?P<labels>\{.*\})? (?P<value>\S+)$")
_BOUND = re.compile(r'le="([^"]+)"')
_COUNTERS = ("_total", "_sum", "_count", "_bucket")


class Exposition:
    """The lines of a scrape and how each of them grows."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self._busy_s, self._since_s, self._busy = 0.0, time.monotonic(), True

    def set_busy(self, busy: bool) -> None:
        self._busy_s, self._since_s, self._busy = self._age_s(), time.monotonic(), busy

    def _age_s(self) -> float:
        return self._busy_s + (time.monotonic() - self._since_s if self._busy else 0.0)

    def text(self) -> str:
        age_s = self._age_s()
        below: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
        return "\n".join(self._grown(line, age_s, below) for line in self._lines) + "\n"

    def _grown(self, line: str, age_s: float, below: dict[str, tuple[float, float]]) -> str:
        found = _SAMPLE.match(line)
        if found is None or not found["name"].endswith(_COUNTERS):
            return line
        name, labels, value = found["name"], found["labels"] or "", float(found["value"])
        if not name.startswith("vllm:"):
            return line
        if bound := _BOUND.search(labels):
            # What lies in one bucket grows at its own pace, so that quantiles move.
            key = name + _BOUND.sub("", labels)
            before, before_grown = below[key]
            phase = 0.0 if bound[1] == "+Inf" else float(bound[1])
            grown = before_grown + self._growth(value - before, age_s, phase)
            below[key] = value, grown
            value = grown
        elif name.endswith(("_sum", "_count")):
            value = self._growth(value, age_s, 0.0, wavy=False)
        else:
            value = self._growth(value, age_s, 0.0, wavy="accepted" in name)
        return f"{name}{labels} {value}"

    def _growth(self, value: float, age_s: float, phase: float, *, wavy: bool = True) -> float:
        wave = 8.0 * math.sin(age_s / 20.0 + phase) if wavy else 0.0
        grown = value * (1 + GROWTH_A_SECOND * (age_s + wave + 8.0))
        return float(math.floor(grown)) if value == int(value) else grown


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    exposition: Exposition

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(self.exposition.text(), "text/plain; version=0.0.4; charset=utf-8")
        elif path in ("/bench/busy", "/bench/quiet"):
            self.exposition.set_busy(path.endswith("busy"))
            self._answer("ok")
        elif path == "/version":
            self._answer(json.dumps({"version": "0.32.0"}), "application/json")
        elif path == "/v1/models":
            model = {"id": "smol", "object": "model", "owned_by": "vllm", "max_model_len": 1024}
            self._answer(json.dumps({"object": "list", "data": [model]}), "application/json")
        elif path in ("/health", "/ping"):
            self._answer("")
        else:
            self._answer(json.dumps({"detail": "Not Found"}), "application/json", 404)

    def _answer(self, text: str, kind: str = "text/plain", status: int = 200) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A watcher that left is no news."""


def with_engines(text: str, engines: int) -> str:
    """The exposition of so many data-parallel engines, from that of one."""
    lines = []
    for line in text.splitlines():
        several = engines if 'engine="0"' in line else 1
        lines += [line.replace('engine="0"', f'engine="{n}"') for n in range(several)]
    return "\n".join(lines) + "\n"


def main() -> None:
    engines = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    Handler.exposition = Exposition(with_engines(EXPOSITION.read_text(encoding="utf-8"), engines))
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()


if __name__ == "__main__":
    main()
