"""``python -m vllm.entrypoints.openai.api_server``: the flags, then start, serve, end."""

import argparse
import json
import os
import signal
import socket
import threading
import time
from typing import Any

from vllm.answering import Serving
from vllm.counting import Counters
from vllm.developer import Developer
from vllm.drafter import Worker
from vllm.engine import Engine, ignore_sigterm, launch
from vllm.script import Script
from vllm.serving import Server
from vllm.starting import LAST_PHASES, SERVER_PHASES, Start, engine_did_not_start, port_is_taken
from vllm.writing import bare, flood, record, traceback

_VALUES = (
    *("--model", "--served-model-name", "--dtype", "--host", "--speculative-config"),
    *("--quantization", "--attention-backend", "--kv-cache-dtype", "--attention-config"),
    *("--per-request-spec-decode-metrics", "--custom-histogram-buckets", "--worker-extension-cls"),
)
_NUMBERS = ("--port", "--max-model-len", "--max-num-seqs", "--block-size", "--tensor-parallel-size")
_SWITCHES = ("--enforce-eager", "--trust-remote-code", "--enable-per-request-metrics")


def main() -> None:
    script = Script.read()
    if script.mute:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    args = _arguments()
    start = Start(script, args)
    signal.signal(signal.SIGTERM, ignore_sigterm if script.hang_on_sigterm else _end_early)
    for phase in SERVER_PHASES:
        start.enter(phase)
    listener = _bound(args["host"], args["port"])
    engine = launch(script, start, listener.fileno())
    if not engine.started:
        os.waitpid(engine.pid, 0)
        engine_did_not_start(script)
    serving = _serving(script, args, engine)
    start.enter(LAST_PHASES[0])
    if not script.hang_on_sigterm:
        signal.signal(signal.SIGTERM, lambda *_: _end(script, engine))
    start.enter(LAST_PHASES[1])
    server = Server(serving)  # as uvicorn does: it says that it is up, and then listens
    server.socket = listener
    listener.listen(128)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    if script.flood != "none":
        words = (script.flood, script.flood_lines_per_s)
        threading.Thread(target=flood, args=words, daemon=True).start()
    os.waitpid(engine.pid, 0)
    _engine_fell(serving)


def _arguments() -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="api_server.py")
    for name in _VALUES:
        parser.add_argument(name)
    for name in _NUMBERS:
        parser.add_argument(name, type=int)
    for name in _SWITCHES:
        parser.add_argument(name, action="store_true")
    parser.set_defaults(host="127.0.0.1", port=8000)
    given = vars(parser.parse_args())
    for name in ("speculative_config", "custom_histogram_buckets"):
        given[name] = json.loads(given[name]) if given[name] else None
    return given


def _bound(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        port_is_taken(error)
    return listener


def _serving(script: Script, args: dict[str, Any], engine: Engine) -> Serving:
    model = script.name or args["served_model_name"] or args["model"]
    draft_tokens = (args["speculative_config"] or {}).get("num_speculative_tokens", 0)
    buckets = args["custom_histogram_buckets"] or {}
    per_step = args["per_request_spec_decode_metrics"] == "detailed"
    counters = Counters(model, draft_tokens, buckets)
    return Serving(
        *(script, model, draft_tokens, per_step, counters, engine.pid), _developer(script, args)
    )


def _developer(script: Script, args: dict[str, Any]) -> Developer | None:
    if os.environ.get("VLLM_SERVER_DEV_MODE") != "1":
        return None
    drafter = (args["speculative_config"] or {}).get("model", "/drafters/old")
    return Developer(script, args["worker_extension_cls"] is not None, Worker(0, drafter))


def _end_early(*_: object) -> None:
    os._exit(0)  # EngineCore sees its pipe close


def _end(script: Script, engine: Engine) -> None:
    """The orderly end, as vLLM tells it."""
    record("APIServer", "launcher.py:254", "[shutdown] API server: shutdown triggered")
    time.sleep(script.stop_s)
    os.kill(engine.pid, signal.SIGTERM)
    if not script.engine_outlives:
        os.waitpid(engine.pid, 0)
    bare("INFO:     Shutting down", "INFO:     Application shutdown complete.")
    os._exit(0)


def _engine_fell(serving: Serving) -> None:
    """vLLM's words when EngineCore is gone; it then ends in good order, with exit code 0."""
    serving.engine_dead = True
    record(
        "APIServer",
        "core_client.py:817",
        "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup",
        "WARNING",
    )
    frames = (("v1/engine/async_llm.py", "outputs = await engine_core.get_output_async()"),)
    last = (
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. "
        "See stack trace (above) for the root cause."
    )
    words = f"AsyncLLM output_handler failed.\n{traceback(frames, last)}"
    record("APIServer", "async_llm.py:906", words, "ERROR")
    time.sleep(serving.script.fall_s)
    bare("INFO:     Shutting down", "INFO:     Application shutdown complete.")
    os._exit(0)


if __name__ == "__main__":
    main()
