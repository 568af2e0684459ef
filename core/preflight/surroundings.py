"""What preflight's rules need to know of the machine and the files; gathered by `gather`. Pure records."""

from dataclasses import dataclass
from typing import Literal

from specpanel.core.checkpoints.config import ModelConfig
from specpanel.core.engine.interpreter_facts import InterpreterFacts, Platform

ModelKind = Literal["folder", "hub", "unusable"]


@dataclass(frozen=True, slots=True)
class PortState:
    """Whether vLLM can listen there. ``owner_pid`` is None where the owner is another user's process."""

    port: int
    free: bool
    problem: str | None = None  # why not, where the port is not simply taken
    owner_pid: int | None = None
    owner_name: str | None = None
    next_free: int | None = None


@dataclass(frozen=True, slots=True)
class ModelState:
    """A model as the profile names it, and what was found there.

    ``config`` is None for a model of the hub, which is not read, and for an unusable one, where
    ``problem`` and ``fix`` say why.
    """

    name: str
    kind: ModelKind
    config: ModelConfig | None = None
    weight_bytes: int | None = None
    problem: str | None = None
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Everything outside the profile; None: not known, and a rule that needs it stays silent.

    ``platform`` is what vLLM will run on. ``free_memory_bytes`` is the memory that weights and KV cache
    will come from: the host's on a CPU, the device's elsewhere. ``free_disk_bytes`` is where logs and
    caches are written.
    """

    interpreter: InterpreterFacts | None
    platform: Platform
    port: PortState
    target: ModelState
    drafter: ModelState | None = None
    free_memory_bytes: int | None = None
    free_disk_bytes: int | None = None
