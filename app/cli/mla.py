"""``specpanel mla``: which path sparse MLA takes, what it costs, and what this machine measures."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specpanel.app.cli import mla_measure, options
from specpanel.app.cli.report import guarded

if TYPE_CHECKING:
    from specpanel.kernels.dims import MLADims
    from specpanel.kernels.explain import Explanation

HELP = "Explain and measure the tiers of sparse MLA: dense MHA, masked MHA, sparse MQA."
app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=HELP)

_EXPLAIN = (
    "Say which tier vLLM 0.32 takes for a prompt, why not another, what each would cost, and what could be "
    "changed. Nothing is started or imported."
)
DEFAULT_PROMPTS = "512,2048,4096,8192,16384,32768"


def _models(incomplete: str) -> list[str]:
    from specpanel.kernels.dims import PRESETS

    return [name for name in PRESETS if name.startswith(incomplete.casefold())]


def _gpus(incomplete: str) -> list[str]:
    from specpanel.kernels.gpus import GPUS

    return [
        known.name for known in GPUS.values() if known.name.lower().startswith(incomplete.lower())
    ]


def _backends(incomplete: str) -> list[str]:
    from specpanel.kernels.vllm_backends import BACKENDS

    return [name for name in BACKENDS if name.startswith(incomplete.upper())]


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A known model (deepseek-v3.2, glm-5, …), its hub id, a checkpoint's folder or a config.json.",
        autocompletion=_models,
    ),
]


@app.command("explain", help=_EXPLAIN)
@guarded
def explain(
    model: Model,
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu",
            help="H100, H200, B200, MI300X or MI355X; has to be given.",
            autocompletion=_gpus,
        ),
    ] = None,
    tensor_parallel: Annotated[
        int,
        typer.Option("--tp", min=1, help="Tensor-parallel size; 1 with data-parallel attention."),
    ] = 1,
    kv_dtype: Annotated[
        str, typer.Option("--kv-dtype", help="As vLLM's --kv-cache-dtype: auto, fp8, …")
    ] = "auto",
    prompt_tokens: Annotated[
        str, typer.Option("--prompt-tokens", help="Lengths of prompts, with commas between them.")
    ] = DEFAULT_PROMPTS,
    chunk: Annotated[
        int | None,
        typer.Option(
            "--chunk",
            min=1,
            max=10_000_000,
            help="vLLM's --max-num-batched-tokens; its default for the GPU.",
        ),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            "--attention-backend", help="As vLLM's; what it would choose.", autocompletion=_backends
        ),
    ] = None,
    force_mqa: Annotated[
        bool, typer.Option("--force-mqa", help="With sparse_mla_force_mqa set.")
    ] = False,
    context_parallel: Annotated[
        int, typer.Option("--dcp", min=1, help="Decode context parallel size.")
    ] = 1,
    as_json: options.Json = False,
) -> None:
    from specpanel.core.errors import ConfigurationError
    from specpanel.kernels.errors import MLAError
    from specpanel.kernels.explain import explain as explained
    from specpanel.kernels.gpus import GPUS
    from specpanel.kernels.gpus import gpu as known_gpu
    from specpanel.kernels.vllm_backends import KV_DTYPES, Serving

    dims = geometry(model)
    prompts = numbers(prompt_tokens, "--prompt-tokens")
    if gpu is None:
        raise ConfigurationError(
            "--gpu is missing: which path is taken depends on it",
            f"One of: {', '.join(known.name for known in GPUS.values())}.",
        )
    if tensor_parallel % context_parallel:
        raise ConfigurationError(
            f"--dcp {context_parallel} does not divide --tp {tensor_parallel}",
            "vLLM takes the ranks of a request's cache from those of tensor parallelism.",
        )
    if kv_dtype not in KV_DTYPES:
        raise ConfigurationError(
            f"--kv-dtype {kv_dtype[:40]} is not one that sparse MLA knows",
            f"One of: {', '.join(KV_DTYPES)}.",
        )
    try:
        serving = Serving(
            dims=dims,
            gpu=known_gpu(gpu),
            tensor_parallel=tensor_parallel,
            kv_dtype=kv_dtype,
            backend=backend,
            force_mqa=force_mqa,
            context_parallel=context_parallel,
        )
        found = explained(serving, prompts, chunk_tokens=chunk)
    except MLAError as error:
        raise ConfigurationError(error.message, error.fix) from None
    _tell(model, found, as_json=as_json)


def _tell(model: str, found: "Explanation", *, as_json: bool) -> None:
    from specpanel.app.cli.mla_text import explanation_text
    from specpanel.core.monitor.recording import line
    from specpanel.core.printable import one_line

    alarm = drift_alarm()
    if as_json:
        typer.echo(line("mla_explanation", _as_data(model, found, alarm)))
        return
    typer.echo(one_line(model))
    typer.echo(explanation_text(found, alarm))


def geometry(model: str) -> "MLADims":
    """The layer that ``model`` names: a preset, a hub id that is known, a folder or a ``config.json``."""
    from specpanel.core.checkpoints.json_file import read_json
    from specpanel.core.errors import ConfigurationError
    from specpanel.kernels.dims import PRESETS, from_config, preset
    from specpanel.kernels.errors import MLAError

    known = preset(model)
    path = Path(model).expanduser()
    if known is not None and not path.exists():
        return known.dims
    if not path.exists():
        raise ConfigurationError(
            f"{model[:80]!r} is neither a file or folder nor a model that is known here",
            f"Give a config.json, or one of: {', '.join(PRESETS)}.",
        )
    try:
        return from_config(read_json(path / "config.json" if path.is_dir() else path))
    except MLAError as error:
        raise ConfigurationError(error.message, error.fix) from None


@cache
def drift_alarm() -> str | None:
    """What the vLLM of this interpreter has that is not mirrored; None: nothing, or there is no vLLM here."""
    from specpanel.kernels import vllm_source

    root = vllm_source.installed_root()
    return None if root is None else vllm_source.drift_text(vllm_source.read(root))


def numbers(text: str, flag: str, *, least: int = 1, what: str = "a length in tokens") -> list[int]:
    """The whole numbers in ``text``, with commas between them."""
    from specpanel.core.errors import ConfigurationError

    found = []
    for part in text.replace(" ", "").split(","):
        if not (part.isascii() and part.isdigit()) or not least <= int(part) <= 10_000_000:
            raise ConfigurationError(
                f"{flag} has {part[:20]!r}, which is not {what}",
                f"Write whole numbers with commas between them: {flag} 512,4096.",
            )
        found.append(int(part))
    return found


def _as_data(model: str, found: "Explanation", alarm: str | None) -> dict[str, Any]:
    from dataclasses import asdict

    from specpanel.kernels.vllm_rules import VLLM_VERSION

    serving, deployment = found.serving, found.deployment
    prompts = [
        {
            "tokens": prompt.tokens,
            "tiers": prompt.tiers,
            "estimated_taken_ms": prompt.taken_ms,
            "steps": [
                {
                    "query_tokens": step.query_len,
                    "context_tokens": step.context_len,
                    "tier": step.decision.tier,
                    "counts_as_decoding": step.decision.decoding,
                    "why_not": {
                        tier: [asdict(condition) for condition in step.why_not(tier)]
                        for tier in ("dense_mha", "masked_mha")
                    },
                    "estimated_ms": dict(step.estimates_ms),
                }
                for step in prompt.steps
            ],
        }
        for prompt in found.prompts
    ]
    return {
        "model": model,
        "vllm_version": VLLM_VERSION,
        "drift": alarm,
        "dims": asdict(serving.dims),
        "gpu": serving.gpu.name,
        "tensor_parallel": serving.tensor_parallel,
        "kv_dtype": deployment.kv_dtype,
        "kv_bytes_per_token": found.kv_bytes_per_token,
        "backend": deployment.backend,
        "passed_over": [asdict(item) for item in found.passed_over],
        "decode_threshold_tokens": deployment.decode_threshold,
        "chunk_tokens": found.chunk_tokens,
        "can_fire": found.can_fire,
        "prompts": prompts,
        "advice": [asdict(item) for item in found.advice],
    }


app.command("bench", help=mla_measure.BENCH)(mla_measure.bench)
app.command("calibrate", help=mla_measure.CALIBRATE)(mla_measure.calibrate)
