"""A server of a target that answers with ids made from the prompt, and hands over hidden states.

With a drafter it reports steps with each answer and lets the drafter be swapped; ``FAKE_SERVING`` says by
folder's name how many tokens each step accepts (``accepts``), which cannot be started (``broken``, with
``words``), and which cannot be swapped in (``refuses``).

Behaves as the JSON object in FAKE_STATES says: ``layers`` and ``hidden`` of the states, ``nan``, ``shift``
(other tokens), ``refuse`` (every n-th chat), ``die_after`` (requests; once, if ``died`` names a file),
``die_writing`` (the same, with an answer whose file is never written).
"""

import argparse
import fcntl
import json
import os
import signal
import struct
import sys
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[6]))

from fakes.swapping_engine import Worker

SCRIPT: dict[str, Any] = json.loads(os.environ.get("FAKE_STATES") or "{}")
SERVING: dict[str, Any] = json.loads(os.environ.get("FAKE_SERVING") or "{}")
REQUESTS = count(1)


def arguments() -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int)
    parser.add_argument("--speculative-config", type=json.loads, default=None)
    parser.add_argument("--kv-transfer-config", type=json.loads, default=None)
    known, _ = parser.parse_known_args()
    return vars(known)


ARGS = arguments()
DRAFTER = Worker(0, folder=str((ARGS["speculative_config"] or {}).get("model")))


def is_to_die() -> bool:
    """Whether this server is the one that dies: the first, where ``died`` names a file to remember that."""
    if not SCRIPT.get("died"):
        return True
    died = Path(SCRIPT["died"])
    first = not died.exists()
    died.touch()
    return first


def write_states(path: Path, ids: list[int]) -> None:
    """A safetensors file as vLLM's connector writes it, in float32."""
    aux = ARGS["speculative_config"]["draft_model_config"]["hf_config"]
    layers = SCRIPT.get("layers") or len(aux["eagle_aux_hidden_state_layer_ids"])
    hidden = SCRIPT.get("hidden", 64)
    values = [((n * 37 + ids[0]) % 101 - 50) / 25 for n in range(len(ids) * layers * hidden)]
    if SCRIPT.get("nan"):
        values[5] = float("nan")
    told = [one + 1 for one in ids] if SCRIPT.get("shift") else ids
    states = struct.pack(f"<{len(values)}f", *values)
    tokens = struct.pack(f"<{len(ids)}q", *told)
    header = {
        "hidden_states": {
            "dtype": "F32",
            "shape": [len(ids), layers, hidden],
            "data_offsets": [0, len(states)],
        },
        "token_ids": {
            "dtype": "I64",
            "shape": [len(ids)],
            "data_offsets": [len(states), len(states) + len(tokens)],
        },
    }
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + states + tokens)


def call(method: str, arguments: list[str]) -> dict[str, Any]:
    """What the worker answers; a drafter that ``refuses`` names does not take the other's place."""
    if "prepare" in method and Path(arguments[0]).name in SERVING.get("refuses", ()):
        return {"rank": 0, "ok": False, "refused": True, "reason": "another shape", "digest": ""}
    return DRAFTER.call(method, arguments)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/health":
            self._json(200, {})
        elif self.path == "/v1/models":
            self._json(200, {"data": [{"id": ARGS["model"], "owned_by": "vllm"}]})
        else:
            self._json(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size) or b"{}")
        number = next(REQUESTS)
        if number == SCRIPT.get("die_after") and is_to_die():
            os.kill(os.getpid(), signal.SIGKILL)
        developer = os.environ.get("VLLM_SERVER_DEV_MODE") == "1"
        if developer and self.path in ("/pause?mode=keep", "/resume"):
            self._json(200, {})
        elif developer and self.path == "/collective_rpc":
            self._json(200, {"results": [call(body["method"], body["args"])]})
        elif body.get("model") != ARGS["model"]:
            self._json(404, {"error": {"message": "The model does not exist.", "code": 404}})
        elif self.path == "/tokenize":
            self._json(200, {"tokens": self._prompt(body)})
        elif self.path == "/v1/chat/completions" and body.get("stream"):
            self._drafted(body)
        elif self.path == "/v1/chat/completions":
            self._chat(body, number)
        elif self.path == "/v1/completions" and ARGS["kv_transfer_config"]:
            self._states(body, number)
        else:
            self._json(404, {"detail": "Not Found"})

    def _chat(self, body: dict[str, Any], number: int) -> None:
        if SCRIPT.get("refuse") and number % SCRIPT["refuse"] == 0:
            self._json(400, {"error": {"message": "the prompt is too long", "code": 400}})
            return
        seed = zlib.crc32(json.dumps(body["messages"]).encode())
        ids = [(seed + 13 * place) % 50 + 200 for place in range(min(body["max_tokens"], 24))]
        choice = {"index": 0, "token_ids": ids, "finish_reason": "stop"}
        self._json(200, {"prompt_token_ids": self._prompt(body), "choices": [choice]})

    def _drafted(self, body: dict[str, Any]) -> None:
        """An answer as a stream, with what each of its steps accepted."""
        accepts = SERVING.get("accepts", {}).get(Path(DRAFTER.folder).name, [1, 0, 2])
        steps = {"per_step_drafted": [3] * len(accepts), "per_step_accepted": accepts}
        tokens = len(accepts) + sum(accepts) + 1
        chunk = {
            "choices": [{"index": 0, "delta": {"content": "yes"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": len(self._prompt(body)), "completion_tokens": tokens},
            "metrics": {"speculative_decoding": steps},
        }
        text = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _prompt(self, body: dict[str, Any]) -> list[int]:
        """Each turn: a token of its role, its letters, an end; then the beginning of an answer."""
        roles = {"system": 1, "user": 2, "assistant": 3}
        ids: list[int] = []
        for turn in body["messages"]:
            ids += [roles[turn["role"]], *(ord(one) % 100 + 20 for one in turn["content"][:40])]
            ids.append(4)
        return [*ids, 3] if body.get("add_generation_prompt", True) else ids

    def _states(self, body: dict[str, Any], number: int) -> None:
        folder = Path(
            ARGS["kv_transfer_config"]["kv_connector_extra_config"]["shared_storage_path"]
        )
        path = folder / f"cmpl-{number}.safetensors"
        ids = body["prompt"]
        # The lock is there before the answer, and goes when the file is whole.
        lock = os.open(f"{path}.lock", os.O_CREAT | os.O_WRONLY, 0o644)
        fcntl.flock(lock, fcntl.LOCK_EX)

        def write() -> None:
            write_states(path, ids)
            os.close(lock)

        writer = threading.Thread(target=write)
        choice = {"index": 0, "text": "x", "prompt_token_ids": ids, "finish_reason": "length"}
        self._json(
            200, {"choices": [choice], "kv_transfer_params": {"hidden_states_path": str(path)}}
        )
        if number == SCRIPT.get("die_writing") and is_to_die():
            self.wfile.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        writer.start()

    def _json(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main() -> None:
    if Path(DRAFTER.folder).name in SERVING.get("broken", ()):
        sys.stdout.write(f"RuntimeError: {SERVING['words']}\n")
        raise SystemExit(1)
    server = Server((ARGS["host"], ARGS["port"]), Handler)
    address = f"http://{ARGS['host']}:{ARGS['port']}"
    record = f"(APIServer pid={os.getpid()}) INFO 11-30 12:00:00 [entry.py:140]"
    sys.stdout.write(f"{record} Starting vLLM server on {address}\n")
    sys.stdout.write("INFO:     Application startup complete.\n")
    sys.stdout.flush()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    server.serve_forever()


if __name__ == "__main__":
    main()
