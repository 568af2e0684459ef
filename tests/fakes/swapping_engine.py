"""A small server that speaks vLLM's routes for swapping a drafter, over sockets, with chosen faults.

Chat answers report the steps that ``steps`` gives the folder that drafts.

Its workers are those of the misbehaving server; it notes in order what it was asked.
"""

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from fakes.engine.site.vllm.drafter import Worker as Worker


@dataclass
class SwappingEngine:
    """Listens on a free port of 127.0.0.1 while it is entered.

    ``failing_resumes`` answers of ``/resume`` are errors. ``hold`` keeps the answer to a commit until
    ``release`` is set.
    """

    workers: list[Worker] = field(default_factory=lambda: [Worker(0)])
    developer: bool = True
    extension: bool = True
    failing_resumes: int = 0
    hold: bool = False
    steps: dict[str, tuple[int, ...]] = field(default_factory=dict)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[str] = field(default_factory=list)
    paused: bool = False
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._tasks: set[asyncio.Task[None]] = set()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, asked: str, deadline_s: float = 20.0) -> None:
        """Wait until ``asked`` is the last thing that was asked."""
        async with asyncio.timeout(deadline_s), self.changed:
            await self.changed.wait_for(lambda: self.asked[-1:] == [asked])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                pairs = (line.partition(": ") for line in head[1:])
                sizes = [int(v) for k, _, v in pairs if k.lower() == "content-length"]
                body = await reader.readexactly(sizes[0] if sizes else 0)
                path = head[0].split(" ")[1]
                status, found = await self._answer(path, body)
                kind, text = "application/json", json.dumps(found).encode()
                if path == "/v1/chat/completions":
                    kind, text = "text/event-stream", b"data: " + text + b"\n\ndata: [DONE]\n\n"
                start = f"HTTP/1.1 {status} x\r\nContent-Type: {kind}\r\n"
                start += f"Content-Length: {len(text)}\r\n\r\n"
                writer.write(start.encode() + text)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the other side is done
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            self._tasks.discard(task)

    async def _note(self, what: str) -> None:
        async with self.changed:
            self.asked.append(what)
            self.changed.notify_all()

    async def _answer(self, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        if path == "/v1/models":
            return 200, {"data": [{"id": "fake", "owned_by": "vllm"}]}
        if path == "/version":
            return 200, {"version": "0.32.0"}
        if path == "/v1/chat/completions":
            await self._note(f"chat with {self.workers[0].folder}")
            return 200, self._chat()
        if not self.developer:
            return 404, {"detail": "Not Found"}
        if path == "/pause?mode=keep":
            self.paused = True
            await self._note("pause")
            return 200, {"status": "paused"}
        if path == "/resume":
            if self.failing_resumes:
                self.failing_resumes -= 1
                await self._note("resume fails")
                return 500, {"error": "busy"}
            self.paused = False
            await self._note("resume")
            return 200, {"status": "resumed"}
        call = json.loads(body)
        if not self.extension:
            return 500, {"error": f"'CPUWorker' object has no attribute {call['method']!r}"}
        await self._note(call["method"].removeprefix("specpanel_").removesuffix("_drafter"))
        if self.hold and "commit" in call["method"]:
            await self.release.wait()
        return 200, {
            "results": [worker.call(call["method"], call["args"]) for worker in self.workers]
        }

    def _chat(self) -> dict[str, Any]:
        accepted = self.steps.get(self.workers[0].folder)
        metrics = {
            "per_step_drafted": [3] * len(accepted or ()),
            "per_step_accepted": list(accepted or ()),
        }
        return {
            "choices": [{"delta": {"content": "yes"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 9},
            "metrics": {"speculative_decoding": metrics} if accepted else {},
        }
