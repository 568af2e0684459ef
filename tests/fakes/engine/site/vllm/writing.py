"""Log lines in vLLM's format, each written whole: several processes share the file."""

import os
import time
from collections.abc import Iterable

_STDOUT = 1


def bare(*lines: str) -> None:
    os.write(_STDOUT, "".join(f"{line}\n" for line in lines).encode())


def record(process: str, source: str, message: str, level: str = "INFO") -> None:
    """A record of vLLM's logger; each line of ``message`` gets the prefix."""
    stamp = time.strftime("%m-%d %H:%M:%S")
    prefix = f"({process} pid={os.getpid()}) {level} {stamp} [{source}]"
    bare(*(f"{prefix} {line}" for line in message.split("\n")))


def flood(kind: str, lines_per_s: int) -> None:
    """Write such lines for ever; at most ten writes a second."""
    line = {
        "lines": b"INFO 11-30 12:00:00 [flood.py:1] one of very many lines\n",
        "binary": bytes(range(256)).replace(b"\n", b"") + b"\n",
        "long": b"(EngineCore pid=1) " + b"A" * (1 << 20) + b"\n",
        "returns": b"Loading:  1%\rLoading: 50%\rLoading: 99%\r",
    }[kind]
    several = max(1, min(lines_per_s // 10, 200_000 // len(line)))
    while True:
        os.write(_STDOUT, line * several)
        time.sleep(0.3 if kind == "long" else 0.1)


def traceback(frames: Iterable[tuple[str, str]], last: str) -> str:
    """A traceback through ``frames`` (file below vllm/, code) that ends with ``last``."""
    lines = ["Traceback (most recent call last):"]
    for file, code in frames:
        lines += [
            f'  File "/venv/lib/python3.11/site-packages/vllm/{file}", line 1, in f',
            f"    {code}",
        ]
    return "\n".join([*lines, last])
