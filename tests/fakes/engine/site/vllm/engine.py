"""EngineCore as a process of its own, and a worker below it where the script asks for one."""

import os
import signal
import threading
from dataclasses import dataclass

from vllm.script import Script
from vllm.starting import ENGINE_PHASES, Start
from vllm.writing import bare, record


@dataclass(frozen=True)
class Engine:
    """``life`` is the end of a pipe that the engine watches: it closes with the API server."""

    pid: int
    started: bool
    life: int


def launch(script: Script, start: Start, listener_fd: int) -> Engine:
    """Fork EngineCore and wait until it is ready or gone."""
    news_in, news_out = os.pipe()
    life_in, life_out = os.pipe()
    pid = os.fork()
    if pid == 0:
        for inherited in (news_in, life_out, listener_fd):
            os.close(inherited)
        _core(script, start, news_out, life_in)
    os.close(news_out)
    os.close(life_in)
    started = os.read(news_in, 1) == b"+"
    os.close(news_in)
    return Engine(pid, started, life_out)


def ignore_sigterm(*_: object) -> None:
    bare("SIGTERM is ignored")


def _core(script: Script, start: Start, news: int, life: int) -> None:
    signal.signal(
        signal.SIGTERM, ignore_sigterm if script.hang_on_sigterm else lambda *_: os._exit(0)
    )
    if script.worker != "none":
        _fork_worker(script, (news, life))
    if not script.engine_outlives:
        threading.Thread(target=_end_with_server, args=(life,), daemon=True).start()
    for phase in ENGINE_PHASES:
        start.enter(phase)
    os.write(news, b"+")
    os.close(news)
    while True:
        signal.pause()


def _end_with_server(life: int) -> None:
    os.read(life, 1)  # until the API server is gone
    os._exit(0)


def _fork_worker(script: Script, inherited: tuple[int, ...]) -> None:
    """A worker that ends with EngineCore, unless it has a session of its own and a will of its own."""
    life_in, life_out = os.pipe()
    if os.fork() != 0:
        os.close(life_in)
        return
    for end in (life_out, *inherited):
        os.close(end)
    record("Worker", "parallel_state.py:1906", "world_size=1 rank=0 local_rank=0 backend=gloo")
    if script.worker == "own session":
        os.setsid()
        signal.signal(signal.SIGTERM, ignore_sigterm)
        while True:
            signal.pause()
    os.read(life_in, 1)
    record(
        "Worker", "multiproc_executor.py:843", "Parent process exited, terminating worker queues"
    )
    os._exit(0)
