"""The recipe: one training, as a user writes it in TOML. Every field has its help beside it."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from specpanel.core.settings.drafters import DRAFTERS, NoDrafter
from specpanel.core.settings.profile import Engine, Profile, Target, Traffic, option
from specpanel.core.training.algorithms import Algorithm, Eagle3, Settings

SCHEMA_VERSION: Literal[1] = 1


class Data(Settings):
    """Prompts, the answers to them, and what becomes of both."""

    source: str = option(
        "builtin",
        "builtin, a file (JSONL or text, one prompt a line) or a Hugging Face folder on disk.",
        min_length=1,
    )
    answers: Literal["target", "given"] = option(
        "target",
        "target: the target answers every prompt itself, which is what a drafter must imitate; "
        "given: the answers of the data are kept.",
    )
    server: str | None = option(
        None,
        "Address of a running server of the same target that answers; one is started where left out.",
    )
    split: Literal["spread", "stable"] = option(
        "spread",
        "spread: every class is held out alike; stable: by each question's hash, so that in data that grows "
        "none is held out that was trained on before.",
    )
    limit: int | None = option(None, "Most prompts that are used.", ge=10)
    heldout: int = option(24, "Prompts kept from training, to measure with.", ge=0)
    max_tokens: int = option(128, "Longest answer of the target, in tokens.", ge=1)
    temperature: float = option(0.0, "Sampling temperature of the answers.", ge=0, le=2)
    seed: int = option(0, "Order of prompts, sampling.", ge=0)
    concurrency: int = option(16, "Answers in flight.", ge=1, le=4096)
    seq_length: int = option(512, "Longest row, in tokens; the rest is cut off.", ge=16)
    validation_share: float = option(
        0.1, "Share of the rows that the trainer validates with.", gt=0, lt=1
    )
    least_mask_share: float = option(
        0.02, "Warn where a smaller share of the tokens is trained on.", ge=0, lt=1
    )


class Extraction(Settings):
    """How the target's hidden states reach the trainer."""

    mode: Literal["online", "offline"] = option(
        "online",
        "online: a server gives them while training goes on; offline: all are written to disk first, "
        "once, and the server is gone when training begins.",
    )
    backend: Literal["file", "fp8", "mooncake"] = option(
        "file", "How they are handed over.", flag="--hidden-states-backend"
    )
    folder: Path | None = option(
        None, "Where the server puts them; a folder of ours on /dev/shm where left out."
    )
    port: int = option(8001, "Port of the extraction server.", ge=1, le=65535)
    concurrency: int = option(8, "Requests in flight.", ge=1, le=1024)
    free_share: float = option(
        0.05, "Stop where less of the disk or /dev/shm would be free.", ge=0, lt=1
    )
    restarts: int = option(1, "How often a server that died is started again.", ge=0, le=10)


class Trainer(Settings):
    """How Speculators trains."""

    steps: int = option(200, "Optimiser steps.", ge=1)
    epochs: int | None = option(
        None, "Most passes over the data; as many as the steps need where left out.", ge=1
    )
    lr: float = option(1e-3, "Learning rate.", flag="--lr", gt=0)
    optimizer: Literal["muon", "adamw"] | None = option(
        None, "Optimiser; adamw on a CPU, else the trainer's own.", flag="--optimizer"
    )
    weight_decay: float | None = option(None, "Weight decay.", flag="--weight-decay", ge=0)
    muon_lr: float | None = option(None, "Learning rate of Muon.", flag="--muon-lr", gt=0)
    scheduler_type: Literal["linear", "cosine", "none"] | None = option(
        None, "How the learning rate falls.", flag="--scheduler-type"
    )
    scheduler_warmup_steps: int | None = option(
        None, "Steps until it is reached.", flag="--scheduler-warmup-steps", ge=0
    )
    total_seq_len: int = option(512, "Tokens of a pack: one step.", flag="--total-seq-len", ge=16)
    hidden_states_dtype: Literal["bfloat16", "float32"] | None = option(
        None, "Type that is trained in; float32 on a CPU.", flag="--hidden-states-dtype"
    )
    draft_attn_impl: Literal["simple_flex_attention", "sdpa", "eager"] | None = option(
        None, "Attention of the drafter; sdpa on a CPU.", flag="--draft-attn-impl"
    )
    loss_implementation: Literal["fused", "eager"] | None = option(
        None, "Kernels of the loss; eager on a CPU.", flag="--loss-implementation"
    )
    num_workers: int | None = option(
        None, "Processes that load data; none on a CPU.", flag="--num-workers", ge=0
    )
    prefetch: int = option(
        2, "Packs fetched ahead of the step, in threads, where there are no worker processes.", ge=0
    )
    checkpoint_freq: float = option(
        1.0, "Epochs between saves; below 1 several an epoch.", flag="--checkpoint-freq", gt=0
    )
    seed: int = option(42, "Seed of weights and order.", flag="--seed", ge=0)
    from_pretrained: str | None = option(
        None, "Earlier checkpoint to start from.", flag="--from-pretrained", min_length=1
    )
    patience: int | None = option(
        None, "Stop after this many epochs without a better validation loss.", ge=1
    )
    least_free_gib: float = option(1.0, "Disk that must be free for checkpoints.", ge=0)
    processes: int = option(1, "Training processes (GPUs); above 1 through torchrun.", ge=1)
    fsdp: bool = option(False, "Shard the drafter over them.")
    devices: str | None = option(
        None, "GPUs of the trainer, as in CUDA_VISIBLE_DEVICES.", min_length=1
    )
    threads: int | None = option(None, "CPU threads of the trainer; all where left out.", ge=1)
    save_timeout_s: float = option(
        130.0, "Time that a stopped trainer gets to save, in seconds.", gt=0
    )
    python: str | None = option(
        None,
        "Interpreter that holds Speculators; the one that holds vLLM, or this one, where left out.",
    )


class Evaluation(Settings):
    """How kept checkpoints are measured."""

    checkpoints: int | None = option(
        None,
        "Most checkpoints that are measured, those with the best validation first; all where left out.",
        ge=1,
    )
    validation: bool = option(
        True, "Measure the best one on the validation prompts, too: the gap of training to serving."
    )
    max_tokens: int | None = option(
        None, "Longest answer, in tokens; as in the data where left out.", ge=1
    )
    concurrency: int = option(8, "Requests in flight.", ge=1, le=4096)


class Promotion(Settings):
    """Whether a better checkpoint is put to work, and how."""

    server: str | None = option(
        None, "Server to promote to: its name, port or address. Nothing is promoted where left out."
    )
    way: Literal["auto", "in place", "restart"] = option(
        "auto",
        "in place: weights are exchanged while it serves; restart: a new server beside it, then the old one "
        "ends; auto: in place where the server lets that be.",
    )
    margin: float = option(
        0.02, "Acceptance length that the lower bound of the gain must be above.", ge=0
    )


class Online(Settings):
    """Continuous training beside a server (``--online``): what a round is, and what ends it."""

    requests: int = option(64, "New conversations of a round.", ge=20)
    capture: Path | None = option(
        None,
        "File that other runs capture into (traffic.capture); prompts of data.source are sent otherwise.",
    )
    rounds: int | None = option(None, "Most rounds.", ge=1)
    hours: float = option(1.0, "Most hours.", gt=0)
    steps: int = option(1000, "Most optimiser steps of all rounds together.", ge=1)
    disk_gib: float = option(10.0, "Most disk that the rounds may take, in GiB.", gt=0)
    latency_share: float = option(
        0.25,
        "How much longer a token may take while training goes on; training pauses between steps above.",
        gt=0,
    )


class Recipe(Settings):
    """A named training: target, data, algorithm, trainer."""

    schema_version: Literal[1] = Field(
        default=SCHEMA_VERSION, description="Version of this file's format."
    )
    name: str = Field(
        default="unnamed",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$",
        max_length=64,
        description="Name of the recipe: letters, digits, dot, dash, plus and underscore.",
    )
    description: str = Field(default="", description="One line on what this is for.")
    target: Target
    engine: Engine = Field(default_factory=Engine)
    algorithm: Algorithm = Field(default_factory=Eagle3)
    data: Data = Field(default_factory=Data)
    extraction: Extraction = Field(default_factory=Extraction)
    trainer: Trainer = Field(default_factory=Trainer)
    evaluation: Evaluation = Field(default_factory=Evaluation)
    promotion: Promotion = Field(default_factory=Promotion)
    online: Online = Field(default_factory=Online)

    @field_validator("schema_version", mode="before")
    @classmethod
    def _known_version(cls, value: object) -> object:
        if isinstance(value, int) and value > SCHEMA_VERSION:
            raise ValueError(f"this file needs a newer specpanel: its format is {value}")
        return value

    @model_validator(mode="after")
    def _fits(self) -> "Recipe":
        if self.target.served_name is not None:
            raise ValueError(
                "target.served_name must be left out: the trainer asks for the target by its path"
            )
        if self.extraction.port == self.engine.port:
            raise ValueError("extraction.port and engine.port must differ")
        if self.data.seq_length > self.trainer.total_seq_len:
            raise ValueError(
                f"data.seq_length {self.data.seq_length} is above trainer.total_seq_len "
                f"{self.trainer.total_seq_len}: a pack must hold the longest row"
            )
        longest = self.target.max_model_len
        if longest is not None and self.data.seq_length >= longest:
            raise ValueError(
                f"data.seq_length {self.data.seq_length} must be below target.max_model_len "
                f"{longest}: extraction asks for one more token"
            )
        return self

    def profile(self, target: str, port: int, name: str) -> Profile:
        """A plain launch of the target, without a drafter, as the trainer needs it."""
        return Profile(
            name=name,
            target=self.target.model_copy(update={"model": target}),
            engine=self.engine.model_copy(update={"port": port, "per_request_metrics": False}),
            drafter=NoDrafter(),
            traffic=Traffic(max_tokens=self.data.max_tokens, temperature=self.data.temperature),
        )

    def drafting_profile(
        self, target: str, method: str, checkpoint: str, draft_tokens: int
    ) -> Profile:
        """A launch of the target with a checkpoint of this recipe as its drafter, open to swaps.

        Raises:
            ValidationError: vLLM takes no such drafter.
        """
        settings: dict[str, Any] = {"method": method, "k": draft_tokens}
        if method != "mtp":  # its layers are in the target
            settings["model"] = checkpoint
        engine = {"host": "127.0.0.1", "per_request_metrics": True, "swappable": True}
        return Profile(
            name=f"{self.name}-drafts"[:64],
            target=self.target.model_copy(update={"model": target}),
            engine=self.engine.model_copy(update=engine),
            drafter=DRAFTERS[method].model_validate(settings),
            traffic=Traffic(
                max_tokens=self.evaluation.max_tokens or self.data.max_tokens,
                concurrency=self.evaluation.concurrency,
            ),
        )

    def table(self) -> dict[str, Any]:
        """The recipe as JSON."""
        return self.model_dump(mode="json")
