"""Which sparse MLA tiers a launch can take, in words; and the settings of a profile that decide it.

What decides is in ``specpanel.kernels``; here a profile is read for it, and written back.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

from specpanel.core.checkpoints.config import CONFIG_FILE, looks_like_hub_id
from specpanel.core.checkpoints.json_file import read_json
from specpanel.core.errors import ConfigurationError
from specpanel.core.preflight.arguments import whole_argument
from specpanel.core.preflight.attention_kind import target_kind
from specpanel.core.preflight.surroundings import ModelState, Surroundings
from specpanel.core.settings.profile import Profile
from specpanel.core.settings.rows import table_of, validated, with_value
from specpanel.kernels.dims import MLADims, from_config, preset
from specpanel.kernels.errors import MLAError
from specpanel.kernels.explain import tiers_that_can_fire
from specpanel.kernels.gpus import GPU, recognised
from specpanel.kernels.prompt_steps import step_of
from specpanel.kernels.vllm_backends import Serving, choose, default_chunk_tokens
from specpanel.kernels.vllm_rules import TIER_TITLES, Deployment, decide

CHUNK_FLAG = "--max-num-batched-tokens"
_STRUCTURAL = ("not forced", "SM100", "geometry", "FlashAttention 4", "unquantised KV cache")


@dataclass(frozen=True, slots=True)
class MlaChoices:
    """What a profile chooses of what decides the tiers; None: left to vLLM."""

    tensor_parallel: int = 1
    kv_dtype: str = "auto"
    backend: str | None = None
    chunk_tokens: int | None = None
    context_parallel: int = 1
    force_mqa: bool = False
    draft_tokens: int = 0

    def serving(self, dims: MLADims, gpu: GPU) -> Serving:
        return Serving(
            dims=dims,
            gpu=gpu,
            tensor_parallel=self.tensor_parallel,
            kv_dtype=self.kv_dtype,
            backend=self.backend,
            force_mqa=self.force_mqa,
            context_parallel=self.context_parallel,
            draft_tokens=self.draft_tokens,
        )

    def chunk_on(self, gpu: GPU) -> int:
        """Tokens of the longest prefill step."""
        return default_chunk_tokens(gpu) if self.chunk_tokens is None else self.chunk_tokens


def choices_of(profile: Profile) -> MlaChoices:
    """What ``profile`` chooses, its settings and its arguments for vLLM alike."""
    mla = profile.mla
    return MlaChoices(
        tensor_parallel=profile.engine.tensor_parallel_size or 1,
        kv_dtype=mla.kv_cache_dtype or "auto",
        backend=mla.backend_per_kind.get("mla_attention") or mla.attention_backend,
        chunk_tokens=whole_argument(profile, CHUNK_FLAG) or None,
        context_parallel=mla.decode_context_parallel_size or 1,
        force_mqa=bool(mla.force_sparse_mqa),
        draft_tokens=getattr(profile.drafter, "k", None) or 0,
    )


def with_choices(profile: Profile, choices: MlaChoices) -> Profile:
    """``profile`` with ``choices``; what they do not change stays as it was written.

    Raises:
        ConfigurationError: the profile does not allow it.
    """
    before, table = choices_of(profile), table_of(profile)
    changed = {
        field.name
        for field in fields(choices)
        if getattr(choices, field.name) != getattr(before, field.name)
    }
    places: dict[str, tuple[str, object]] = {
        "tensor_parallel": ("engine.tensor_parallel_size", choices.tensor_parallel),
        "kv_dtype": (
            "mla.kv_cache_dtype",
            None if choices.kv_dtype == "auto" else choices.kv_dtype,
        ),
        "backend": ("mla.attention_backend", choices.backend),
        "context_parallel": ("mla.decode_context_parallel_size", choices.context_parallel),
        "force_mqa": ("mla.force_sparse_mqa", choices.force_mqa or None),
        "chunk_tokens": ("engine.arguments", _with_chunk(profile, choices.chunk_tokens)),
    }
    for name, (dotted, value) in places.items():
        if name in changed:
            table = with_value(table, dotted, value)
    if "backend" in changed and "mla_attention" in profile.mla.backend_per_kind:
        kinds = {k: v for k, v in profile.mla.backend_per_kind.items() if k != "mla_attention"}
        table = with_value(table, "mla.backend_per_kind", kinds or None)
    found = validated(table)
    if isinstance(found, Profile):
        return found
    (dotted, why), *_ = found.items()
    raise ConfigurationError(f"the profile cannot have that: {dotted}: {why}")


def difference(before: Profile, after: Profile) -> tuple[str, ...]:
    """What changes from one to the other, a line a setting."""
    old, new = table_of(before), table_of(after)
    lines: list[str] = []
    for section in ("engine", "mla"):
        was, now = old.get(section, {}), new.get(section, {})
        lines += (
            f"{section}.{name}: {_shown(was.get(name))} → {_shown(now.get(name))}"
            for name in sorted({*was, *now})
            if was.get(name) != now.get(name)
        )
    return tuple(lines)


def dims_of(state: ModelState) -> MLADims | None:
    """The target's MLA geometry: of its ``config.json``, or for an unread hub id a known one's.

    Raises:
        MLAError: it has no MLA, or no form of it that could be chosen.
        ConfigurationError: its ``config.json`` cannot be read.
    """
    if state.config is not None:
        return from_config(read_json(state.config.folder / CONFIG_FILE))
    known = preset(state.name) if looks_like_hub_id(state.name) else None
    return None if known is None else known.dims


def gpu_of(around: Surroundings) -> GPU | None:
    """The GPU that the launch will see, as far as it is one whose tiers are known."""
    found = (recognised(device.name) for device in around.devices or ())
    return next((gpu for gpu in found if gpu is not None), None)


def tier_sentences(profile: Profile, around: Surroundings) -> tuple[str, ...]:
    """Which tiers prompts of this launch can take; nothing where the target does not attend sparsely."""
    by_name = around.target.config is None
    if around.platform == "cpu" or target_kind(profile, around) not in ("sparse", None):
        return ()
    try:
        dims = dims_of(around.target)
        if dims is None or dims.topk is None:
            return ()
        gpu = gpu_of(around)
        if gpu is None:
            return ("sparse MLA: which tiers can fire depends on the GPU, which is not known here",)
        return tuple(_sentences(choices_of(profile), dims, gpu, by_name))
    except MLAError as error:
        return (f"sparse MLA: {error.message}",)
    except ConfigurationError:
        return ()  # preflight says it of the model


def _sentences(choices: MlaChoices, dims: MLADims, gpu: GPU, by_name: bool) -> Iterator[str]:
    deployment, _ = choose(choices.serving(dims, gpu))
    chunk = choices.chunk_on(gpu)
    tiers = tiers_that_can_fire(deployment, chunk)
    titles = [TIER_TITLES[tier] for tier in tiers]
    listed = " and ".join([", ".join(titles[:-1]), titles[-1]]) if len(titles) > 1 else titles[0]
    guess = ", by the model's name" if by_name else ""
    yield (
        f"sparse MLA{guess}: prompts can take {listed} ({gpu.name}, TP{choices.tensor_parallel}, "
        f"{deployment.backend}, chunks of {chunk:,} tokens)"
    )
    if "masked_mha" not in tiers and (why := _never_masked(deployment, chunk)):
        yield f"never masked MHA: {why}"


def _never_masked(deployment: Deployment, chunk: int) -> str | None:
    """The first reason that no length of prompt would change, else that of a step beyond top-k."""
    topk = deployment.dims.topk or 0
    query = min(chunk, 2 * topk)
    step = step_of(query, max(0, topk + 1 - query))
    failed = decide(deployment, step).failed("masked_mha")
    lasting = [condition for condition in failed if condition.name in _STRUCTURAL]
    return next((condition.text for condition in (*lasting, *failed)), None)


def _shown(value: object) -> str:
    if value is None:
        return "vLLM's default"
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return str(value)


def _with_chunk(profile: Profile, chunk: int | None) -> list[str] | None:
    """The arguments for vLLM with another chunk, or without any."""
    kept: list[str] = []
    words = list(profile.engine.arguments)
    while words:
        word = words.pop(0)
        name = word.partition("=")[0].replace("_", "-")
        if name != CHUNK_FLAG:
            kept.append(word)
        elif "=" not in word and words and not words[0].startswith("-"):
            words.pop(0)
    if chunk is not None:
        kept += [CHUNK_FLAG, str(chunk)]
    return kept or None
