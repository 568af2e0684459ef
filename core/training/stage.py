"""A stage of training, as the chain runs it: what it depends on, and how it is done."""

import asyncio
import hashlib
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.session.launch import InterruptedRunError
from specpanel.core.training.events import TrainingEvent
from specpanel.core.training.folder import RunFolder
from specpanel.core.training.recipe import Recipe
from specpanel.core.training.records import StageName


@dataclass(slots=True)
class Workplace:
    """What every stage of one run shares.

    ``target`` is the model's folder. ``vllm`` and ``trainer`` describe the two interpreters, which may be
    one. ``held`` are things that outlive the stage that opened them (the extraction server in the online
    mode); the chain closes them on every way out.
    """

    recipe: Recipe
    folder: RunFolder
    target: str
    vllm: InterpreterFacts
    trainer: InterpreterFacts
    emit: Callable[[TrainingEvent], None]
    interrupted: asyncio.Event
    hurry: threading.Event
    resume: bool = False
    held: AsyncExitStack = field(default_factory=AsyncExitStack)
    shared: dict[str, Any] = field(default_factory=dict)

    def raise_if_interrupted(self) -> None:
        if self.interrupted.is_set():
            raise InterruptedRunError


class Stage(Protocol):
    """One stage. ``run`` raises SpecpanelError where it fails and InterruptedRunError where it is stopped;
    what it made so far stays, and the next run goes on from there."""

    name: ClassVar[StageName]

    def depends_on(self, place: Workplace) -> dict[str, Any]:
        """Everything that the result depends on, as JSON: the same again means the same result."""
        ...

    async def run(self, place: Workplace) -> dict[str, Any]:
        """Do it; the facts for its report."""
        ...


def digest(content: Any) -> str:
    """SHA-256 of ``content`` as JSON."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


@asynccontextmanager
async def interruptible(interrupted: asyncio.Event) -> AsyncIterator[None]:
    """Raise InterruptedRunError from the body as soon as ``interrupted`` is set."""
    task = asyncio.current_task()
    assert task is not None
    stopped = False

    async def watch() -> None:
        nonlocal stopped
        await interrupted.wait()
        stopped = True
        task.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if not stopped:
            raise
        task.uncancel()
        raise InterruptedRunError from None
    finally:
        watcher.cancel()
