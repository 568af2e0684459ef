"""The profile: one launch and its traffic, as a user writes it in TOML.

Every field has its help beside it; the same words appear in ``specpanel profile new``, in the panel's
form and in error messages. A field that names a vLLM flag carries it as ``flag``.
"""

import re
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from specpanel.core.settings.drafters import Drafter, NoDrafter
from specpanel.core.settings.mla import Mla

SCHEMA_VERSION: Literal[1] = 1

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._+-]*$"
_LONGEST_NAME = 64
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def option(default: Any, help_text: str, *, flag: str | None = None, **constraints: Any) -> Any:
    """A field with its help and, where it is one of vLLM's own, its flag."""
    extra: dict[str, Any] | None = {"flag": flag} if flag else None
    return Field(default=default, description=help_text, json_schema_extra=extra, **constraints)


def _words(value: object) -> object:
    """A flag or a variable gives a list as one text: words as in a shell."""
    if not isinstance(value, str):
        return value
    return shlex.split(value)


Words = Annotated[tuple[str, ...], BeforeValidator(_words)]


# What vLLM must not be told twice: the client and the state file would believe the setting.
SETTINGS_OF_FLAGS: dict[str, str] = {
    "--model": "target.model",
    "--host": "engine.host",
    "--port": "engine.port",
    "--speculative-config": "drafter",
    "-sc": "drafter",
    "--spec-method": "drafter.method",
    "--spec-model": "drafter.model",
    "--spec-tokens": "drafter.k",
}


def contradicting_flag(arguments: tuple[str, ...]) -> str | None:
    """The first of vLLM's flags among ``arguments`` that has a setting of its own."""
    for argument in arguments:
        name = argument.split("=")[0].split(".")[0]
        flag = f"--{name[2:].replace('_', '-')}" if name.startswith("--") else name
        if flag in SETTINGS_OF_FLAGS:
            return flag
    return None


MOST_REQUESTS = 1_000_000_000


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Target(_Section):
    """The model that answers."""

    model: str = Field(min_length=1, description="Folder or hub id of the target model.")
    served_name: str | None = option(
        None, "Name that clients ask for.", flag="--served-model-name", min_length=1
    )
    dtype: Literal["auto", "bfloat16", "float16", "float32"] | None = option(
        None, "Type of weights and activations.", flag="--dtype"
    )
    max_model_len: int | None = option(
        None, "Longest prompt and answer together, in tokens.", flag="--max-model-len", gt=0
    )
    quantization: str | None = option(
        None, "Quantisation of the target's weights.", flag="--quantization"
    )
    trust_remote_code: bool = option(
        False, "Run code that the checkpoint brings.", flag="--trust-remote-code"
    )


class Engine(_Section):
    """How vLLM runs: interpreter, address, size."""

    python: str | None = Field(
        default=None,
        description="Interpreter of the environment that holds vLLM; this one where absent.",
    )
    platform: Literal["auto", "cpu", "cuda", "rocm"] = Field(
        default="auto", description="What vLLM runs on; auto asks the interpreter."
    )
    host: str = option("127.0.0.1", "Address to listen on.", flag="--host", min_length=1)
    port: int = option(8000, "Port to listen on.", flag="--port", ge=1, le=65535)
    tensor_parallel_size: int | None = option(
        None, "GPUs the target is split over.", flag="--tensor-parallel-size", ge=1
    )
    gpu_memory_utilization: float | None = option(
        None, "Share of device memory vLLM may take.", flag="--gpu-memory-utilization", gt=0, le=1
    )
    max_num_seqs: int | None = option(
        None, "Most requests in one step.", flag="--max-num-seqs", ge=1
    )
    enforce_eager: bool | None = option(
        None, "Skip compilation and CUDA graphs.", flag="--enforce-eager"
    )
    cpu_kv_cache_gib: int | None = Field(
        default=None, ge=1, description="KV cache on a CPU, in GiB (VLLM_CPU_KVCACHE_SPACE)."
    )
    per_request_metrics: bool = Field(
        default=True,
        description="Have vLLM report accepted and drafted tokens of every step with each answer.",
    )
    swappable: bool = Field(
        default=False,
        description="Let the drafter's weights be replaced while vLLM runs (specpanel promote); opens "
        "vLLM's developer routes, so this machine's address only.",
    )
    environment: dict[str, str] = Field(
        default_factory=dict, description="Environment variables for vLLM."
    )
    arguments: Words = Field(
        default=(), description="More arguments for vLLM, passed on untouched."
    )
    start_silence_s: float = Field(
        default=300.0,
        gt=0,
        description="A start that writes no log line for this long has failed, in seconds.",
    )
    stop_timeout_s: float = Field(
        default=20.0, ge=0, description="Time between SIGTERM and SIGKILL, in seconds."
    )

    @field_validator("environment")
    @classmethod
    def _can_be_set(cls, variables: dict[str, str]) -> dict[str, str]:
        for name, value in variables.items():
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"{name!r} cannot be the name of an environment variable")
            if "\0" in value:
                raise ValueError(f"the value of {name} holds a NUL character")
        return variables

    @field_validator("arguments")
    @classmethod
    def _can_be_passed(cls, arguments: tuple[str, ...]) -> tuple[str, ...]:
        if any("\0" in argument for argument in arguments):
            raise ValueError("an argument holds a NUL character")
        if flag := contradicting_flag(arguments):
            raise ValueError(f"{flag} has a setting of its own: {SETTINGS_OF_FLAGS[flag]}")
        return arguments


class Traffic(_Section):
    """The load that specpanel sends."""

    requests: int | None = Field(
        default=None,
        ge=1,
        le=MOST_REQUESTS,
        description="Requests to send; until stopped or --duration where absent.",
    )
    duration_s: float | None = Field(
        default=None, gt=0, description="How long to send requests, in seconds."
    )
    concurrency: int = Field(
        default=1, ge=1, le=4096, description="Requests in flight (closed loop)."
    )
    rate_per_s: float | None = Field(
        default=None,
        gt=0,
        description="Requests a second, arriving at random (open loop, Poisson); "
        "concurrency then only caps it.",
    )
    warmup: int = Field(
        default=2,
        ge=0,
        le=MOST_REQUESTS,
        description="Requests sent first and left out of every figure.",
    )
    max_tokens: int = Field(default=128, ge=1, description="Longest answer, in tokens.")
    temperature: float = Field(
        default=0.0, ge=0, le=2, description="Sampling temperature; 0: greedy."
    )
    seed: int = Field(default=0, ge=0, description="Order of prompts, arrivals, sampling.")
    kinds: Words = Field(default=(), description="Classes of prompts to use; all where empty.")
    prompts: Path | None = Field(
        default=None, description="File of your own prompts (JSONL or text, one a line)."
    )
    ignore_eos: bool = Field(
        default=False, description="Make every answer max_tokens long (vLLM only)."
    )
    timeout_s: float = Field(
        default=300.0, gt=0, description="A request without an answer for this long has failed."
    )
    capture: Path | None = Field(
        default=None,
        description="File that prompts and answers are kept in, to train a drafter on; it is yours alone, "
        "and nothing is kept where absent.",
    )
    capture_mib: float = Field(
        default=64.0, gt=0, description="Largest size of that file, in MiB; then nothing is added."
    )


def is_profile_name(name: str) -> bool:
    """Whether a profile may be called so; then its file lies in the folder of profiles, too."""
    return len(name) <= _LONGEST_NAME and re.fullmatch(_NAME.strip("^$"), name) is not None


class Profile(_Section):
    """A named launch: target, engine, drafter, attention and traffic."""

    schema_version: Literal[1] = Field(
        default=SCHEMA_VERSION, description="Version of this file's format."
    )
    name: str = Field(
        default="unnamed",
        pattern=_NAME,
        max_length=_LONGEST_NAME,
        description="Name of the profile: letters, digits, dot, dash, plus and underscore.",
    )
    description: str = Field(default="", description="One line on what this is for.")
    target: Target
    engine: Engine = Field(default_factory=Engine)
    drafter: Drafter = Field(default_factory=NoDrafter)
    mla: Mla = Field(default_factory=Mla)
    traffic: Traffic = Field(default_factory=Traffic)

    @field_validator("schema_version", mode="before")
    @classmethod
    def _known_version(cls, value: object) -> object:
        if isinstance(value, int) and value > SCHEMA_VERSION:
            raise ValueError(
                f"this file needs a newer specpanel: its format is {value}, "
                f"this one reads up to {SCHEMA_VERSION}"
            )
        return value

    def without_drafter(self) -> "Profile":
        """The same launch with plain decoding: the baseline."""
        return self.model_copy(update={"drafter": NoDrafter()})
