"""What preflight's rules need to know of the machine and the files; gathered by `gather`. Pure records."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from specpanel.core.checkpoints.config import ModelConfig
from specpanel.core.checkpoints.weights import Weights
from specpanel.core.engine.interpreter_facts import InterpreterFacts, Platform

ModelKind = Literal["folder", "hub", "unusable"]


@dataclass(frozen=True, slots=True)
class PortState:
    """Whether vLLM can listen there. ``owner_pid`` is None where the owner is another user's process.

    ``server`` is the name of the server that owns it, where specpanel started it.
    """

    port: int
    free: bool
    problem: str | None = None  # why not, where the port is not simply taken
    owner_pid: int | None = None
    owner_name: str | None = None
    next_free: int | None = None
    server: str | None = None


@dataclass(frozen=True, slots=True)
class ModelState:
    """A model as the profile names it, and what was found there.

    ``config`` is None for a model of the hub, which is not read, and for an unusable one, where
    ``problem`` and ``fix`` say why. ``tokenizer`` is a fingerprint. ``verifier_found`` tells whether the
    target that a drafter of Speculators names is a folder here; None where it names none.
    """

    name: str
    kind: ModelKind
    config: ModelConfig | None = None
    weights: Weights | None = None
    tokenizer: str | None = None
    verifier_found: bool | None = None
    problem: str | None = None
    fix: str = ""

    @property
    def weight_bytes(self) -> int | None:
        return None if self.weights is None else self.weights.total_bytes


@dataclass(frozen=True, slots=True)
class DeviceState:
    """A device that vLLM will see. ``capability`` is CUDA's, (9, 0) for Hopper; None: not known.

    ``holders`` are the processes that hold its memory, as a person reads them.
    """

    name: str
    total_bytes: int | None = None
    free_bytes: int | None = None
    capability: tuple[int, int] | None = None
    holders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Everything outside the profile; None: not known, and a rule that needs it stays silent.

    ``platform`` is what vLLM will run on. ``free_memory_bytes`` is the memory that weights and KV cache
    will come from: the host's on a CPU, the fullest device's elsewhere. ``free_disk_bytes`` is where logs
    and caches are written. ``devices`` are those vLLM will see, empty where it will see none.
    ``cpu_nodes`` are the NUMA nodes whose memory vLLM may use, ``cores`` its processors.
    ``variables`` are the environment that vLLM inherits, as far as it concerns vLLM, secrets blanked.
    """

    interpreter: InterpreterFacts | None
    platform: Platform
    port: PortState
    target: ModelState
    drafter: ModelState | None = None
    free_memory_bytes: int | None = None
    free_disk_bytes: int | None = None
    devices: tuple[DeviceState, ...] | None = None
    device_problem: str | None = None  # why there is none, or why they cannot be read
    variables: Mapping[str, str] = field(default_factory=dict)
    cpu_nodes: int | None = None
    cores: int | None = None
    amx: bool = False  # whether the CPU has AMX tiles, which vLLM's MLA uses where it can
