"""What vLLM really chose, read from its log and its metrics, beside what the profile wished. Pure.

A setting that vLLM cannot honour is often dropped with one line of log, or none: the KV cache type, the
attention backend, the block size, the model runner. Texts read from vLLM 0.32.0 (``config/vllm.py``,
``config/cache.py``, ``platforms/*.py``, ``v1/core/kv_cache_utils.py``, ``v1/metrics/loggers.py``).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from specpanel.core.engine.logline import LogLine

if TYPE_CHECKING:  # who only watches needs no settings
    from specpanel.core.settings.profile import Profile

MOST_REMARKS = 20
REMARK_LENGTH = 300  # characters of one


@dataclass(frozen=True, slots=True)
class Chosen:
    """vLLM's choices; None: it has not said. ``remarks`` are its own words where it changed something."""

    vllm_version: str | None = None
    method: str | None = None  # vLLM's name; "none" where it says that there is no drafter
    draft_tokens: int | None = None
    runner: str | None = None  # V1 or V2
    attention_backend: str | None = None
    drafter_attention_backend: str | None = None  # where it differs from the target's
    mla_prefill_backend: str | None = None
    kv_cache_dtype: str | None = None
    block_size: int | None = None
    kv_cache_tokens: int | None = None
    max_concurrency: float | None = None  # requests of full length at once
    max_model_len: int | None = None
    dtype: str | None = None
    quantization: str | None = None
    tensor_parallel_size: int | None = None
    decode_context_parallel_size: int | None = None
    enforce_eager: bool | None = None
    prefix_caching: bool | None = None
    chunked_prefill: bool | None = None
    async_scheduling: bool | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """One line of chosen against wished, as texts. ``wished`` is None where it was left to vLLM.

    ``agrees`` is None where one of the two is not known. ``setting`` is the profile's field.
    """

    name: str
    wished: str | None
    chosen: str | None
    agrees: bool | None
    setting: str | None = None


# -- from the log ----------------------------------------------------------------------------


def _whole(text: str) -> int:
    return int(text.replace(",", ""))


def _truth(text: str) -> bool:
    return text == "True"


def _none(text: str) -> str:
    return "none" if text == "None" else text


@dataclass(frozen=True, slots=True)
class _Row:
    """A text that states a choice. The first statement stands, unless ``last`` says that later ones do."""

    field: str
    pattern: re.Pattern[str]
    convert: Callable[[str], Any] = str
    last: bool = False


def _row(
    field: str, pattern: str, convert: Callable[[str], Any] = str, *, last: bool = False
) -> _Row:
    return _Row(field, re.compile(pattern), convert, last)


_CONFIG = r"^Initializing a V1 LLM engine .*?\b"
_ROWS: tuple[_Row, ...] = (
    _row("vllm_version", r"^Initializing a V1 LLM engine \(v(\S+?)\)"),
    _row("method", _CONFIG + r"speculative_config=(?:SpeculativeConfig\(method=')?(\w+)", _none),
    _row("draft_tokens", _CONFIG + r"num_spec_tokens=(\d+)", int),
    _row("dtype", _CONFIG + r"dtype=torch\.(\w+)"),
    _row("max_model_len", _CONFIG + r"max_seq_len=(\d+)", int),
    _row("quantization", _CONFIG + r"quantization=(\w+)", _none),
    _row("tensor_parallel_size", _CONFIG + r"tensor_parallel_size=(\d+)", int),
    _row("decode_context_parallel_size", _CONFIG + r"decode_context_parallel_size=(\d+)", int),
    _row("enforce_eager", _CONFIG + r"enforce_eager=(\w+)", _truth),
    _row("kv_cache_dtype", _CONFIG + r"kv_cache_dtype=(\w+)"),
    _row("prefix_caching", _CONFIG + r"enable_prefix_caching=(\w+)", _truth),
    _row("chunked_prefill", _CONFIG + r"enable_chunked_prefill=(\w+)", _truth),
    _row("kv_cache_dtype", r"^Using (\S+) KV cache format for ", last=True),
    _row("runner", r"using the (V1) model runner instead"),
    _row("runner", r"^Using (V2) Model Runner"),
    _row("mla_prefill_backend", r"^Using (\w+) MLA prefill backend"),
    _row("block_size", r"^Setting kv cache block size to (\d+)", int, last=True),
    _row("block_size", r"requires block_size=(\d+), overriding", int, last=True),
    _row("kv_cache_tokens", r"KV cache size: ([\d,]+) tokens", _whole),
    _row("max_concurrency", r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x", float),
    _row("async_scheduling", r"^Async scheduling .*(?:will be|is) disabled", lambda _: False),
)
_BACKEND = re.compile(
    r"^Using (?:AttentionBackendEnum\.)?([A-Z][A-Z0-9_]+)(?: attention)? backend\b"
)
_DRAFTER_LOADS = re.compile(r"^Loading drafter model")
# The file that a worker loads its model in tells the runner, where no line does.
_RUNNER_FILES = {"gpu_model_runner.py": "V1", "cpu_model_runner.py": "V1", "model_runner.py": "V2"}

# Lines with which vLLM says that it does something else than it was asked, or than it would.
_REMARKS = re.compile(
    r"will be disabled|is disabled because|Disabling prefix caching|forcing chunked prefill"
    r"|[Oo]verrid(?:ing|es)|overridden|[Ff]alling back|instead of|model runner instead"
    r"|precluded higher-priority|is set to \d+ based on the speculative decoding"
    r"|Defaulted num_speculative_tokens|is deprecated and replaced with mtp"
    r"|multiple times of forward on same MTP layer|Cannot use \w+ backend"
    r"|no dense-MHA prefill path|mask workspace .* too small"
    r"|won't work with speculative decoding|Using fp8 kv-cache|Using bfloat16 kv-cache"
    r"|is not supported with data parallelism|Upcasting torch|Downcasting torch"
)
_NOT_REMARKS = re.compile(r"deprecated and will|IrOpPriority|--safetensors-load-strategy")


class ChosenReader:
    """Reads the log of one start, line by line; ``chosen`` is what it says so far."""

    def __init__(self) -> None:
        self.chosen = Chosen()
        self.complete = False  # the server answers: nothing more is chosen
        self._drafter_loads = False

    def feed(self, entry: LogLine) -> None:
        """Take one line. Lines without a level are no records of vLLM's and state nothing."""
        if entry.level is None or self.complete:
            return
        text = entry.message
        self.complete = text.startswith("Application startup complete")
        for row in _ROWS:
            known = getattr(self.chosen, row.field)
            if (known is None or row.last) and (found := row.pattern.search(text)):
                groups = found.groups()
                self._state(row.field, row.convert(groups[0] if groups else found[0]))
        self._backend(text)
        if self.chosen.runner is None and text.startswith("Starting to load model"):
            file = (entry.source or "").rpartition(":")[0]
            if file in _RUNNER_FILES:
                self._state("runner", _RUNNER_FILES[file])
        self._remark(text)

    def _backend(self, text: str) -> None:
        self._drafter_loads = self._drafter_loads or bool(_DRAFTER_LOADS.match(text))
        found = _BACKEND.match(text)
        if found is None:
            return
        if self._drafter_loads:
            if found[1] != self.chosen.attention_backend:
                self._state("drafter_attention_backend", found[1])
        elif self.chosen.attention_backend is None:
            self._state("attention_backend", found[1])

    def _remark(self, text: str) -> None:
        if not _REMARKS.search(text) or _NOT_REMARKS.search(text):
            return
        words = " ".join(text.split())[:REMARK_LENGTH]
        remarks = self.chosen.remarks
        if words not in remarks and len(remarks) < MOST_REMARKS:
            self._state("remarks", (*remarks, words))

    def _state(self, field: str, value: Any) -> None:
        self.chosen = replace(self.chosen, **{field: value})


# -- from the metrics ------------------------------------------------------------------------

_CACHE_INFO = re.compile(r"^vllm:cache_config_info\{(?P<labels>.*)\}", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def with_cache_info(chosen: Chosen, labels: Mapping[str, str]) -> Chosen:
    """``chosen`` with what the labels of ``vllm:cache_config_info`` add; they are final, logs are not."""
    found: dict[str, Any] = {}
    block = labels.get("effective_attention_block_size", labels.get("block_size", ""))
    if block.isdecimal():
        found["block_size"] = int(block)
    if labels.get("cache_dtype", "None") != "None":
        found["kv_cache_dtype"] = labels["cache_dtype"]
    if labels.get("enable_prefix_caching") in ("True", "False"):
        found["prefix_caching"] = _truth(labels["enable_prefix_caching"])
    if labels.get("kv_cache_size_tokens", "").isdecimal():
        found["kv_cache_tokens"] = int(labels["kv_cache_size_tokens"])
    concurrency = labels.get("kv_cache_max_concurrency", "")
    if re.fullmatch(r"\d+(?:\.\d+)?", concurrency):
        found["max_concurrency"] = float(concurrency)
    return replace(chosen, **found)


def cache_info(exposition: str) -> dict[str, str]:
    """Labels of ``vllm:cache_config_info`` in a ``/metrics`` body; empty where it is not there."""
    line = _CACHE_INFO.search(exposition)
    if line is None:
        return {}
    return {name: value.replace(r"\"", '"') for name, value in _LABEL.findall(line["labels"])}


# -- against the profile ---------------------------------------------------------------------


def against(profile: "Profile | None", chosen: Chosen) -> tuple[Choice, ...]:
    """Chosen against wished, one line a setting, in the order in which a person asks.

    Left out is what neither was wished nor said. Without a profile nothing was wished.
    """
    rows = (
        *_drafter_choices(profile, chosen),
        _choice("model runner", _runner_wish(profile), chosen.runner, "engine.environment"),
        _choice(
            "attention backend",
            None if profile is None else profile.mla.attention_backend,
            chosen.attention_backend,
            "mla.attention_backend",
        ),
        _choice("drafter's attention backend", None, chosen.drafter_attention_backend),
        _choice(
            "MLA prefill backend",
            None if profile is None else getattr(profile.mla, "mla_prefill_backend", None),
            chosen.mla_prefill_backend,
            "mla.mla_prefill_backend",
        ),
        _cache_type(profile, chosen),
        _choice(
            "block size",
            _text(None if profile is None else profile.mla.block_size),
            _text(chosen.block_size),
            "mla.block_size",
        ),
        _choice("KV cache", None, _tokens(chosen.kv_cache_tokens)),
        _choice("requests of full length", None, _text(chosen.max_concurrency)),
        _choice(
            "max model length",
            _text(None if profile is None else profile.target.max_model_len),
            _text(chosen.max_model_len),
            "target.max_model_len",
        ),
        _choice("type of weights", _dtype_wish(profile), chosen.dtype, "target.dtype"),
        _choice(
            "quantisation",
            None if profile is None else profile.target.quantization,
            chosen.quantization,
            "target.quantization",
        ),
        _choice(
            "tensor parallel size",
            _text(None if profile is None else profile.engine.tensor_parallel_size),
            _text(chosen.tensor_parallel_size),
            "engine.tensor_parallel_size",
        ),
        _choice(
            "prefix caching",
            _switch_wish(profile, "enable-prefix-caching"),
            _switch(chosen.prefix_caching),
            "engine.arguments",
        ),
        _choice(
            "chunked prefill",
            _switch_wish(profile, "enable-chunked-prefill"),
            _switch(chosen.chunked_prefill),
            "engine.arguments",
        ),
        _choice(
            "async scheduling",
            _switch_wish(profile, "async-scheduling"),
            _switch(chosen.async_scheduling),
            "engine.arguments",
        ),
        _choice(
            "compilation",
            None if profile is None else _switch(_not(profile.engine.enforce_eager)),
            _switch(_not(chosen.enforce_eager)),
            "engine.enforce_eager",
        ),
    )
    return tuple(row for row in rows if row.wished is not None or row.chosen is not None)


def disagreements(choices: tuple[Choice, ...]) -> tuple[Choice, ...]:
    """What vLLM did otherwise than wished."""
    return tuple(choice for choice in choices if choice.agrees is False)


def _drafter_choices(profile: "Profile | None", chosen: Chosen) -> tuple[Choice, ...]:
    method = tokens = None
    if profile is not None:
        config = profile.drafter.speculative_config()
        method = "none" if config is None else str(config.get("method"))
        tokens = _text(profile.drafter.draft_tokens)
    return (
        _choice("drafter", method, chosen.method, "drafter.method"),
        _choice("draft tokens (K)", tokens, _text(chosen.draft_tokens), "drafter.k"),
    )


def _cache_type(profile: "Profile | None", chosen: Chosen) -> Choice:
    wished = None if profile is None else profile.mla.kv_cache_dtype
    found, shown = chosen.kv_cache_dtype, chosen.kv_cache_dtype
    if found == "auto" and chosen.dtype is not None:
        shown = f"auto ({chosen.dtype})"
    agrees = None if wished is None or found is None else _same_type(wished, found, chosen.dtype)
    return Choice("KV cache type", wished, shown, agrees, "mla.kv_cache_dtype")


def _same_type(wished: str, found: str, dtype: str | None) -> bool:
    """Whether two names of a cache type mean the same; fp8 is e4m3, or MLA's own packing of it."""
    fp8 = ("fp8", "fp8_e4m3", "fp8_ds_mla")
    if wished == found or wished == "auto":
        return True
    if wished in fp8[:2] and found in fp8:
        return True
    return found == "auto" and wished == dtype


def _runner_wish(profile: "Profile | None") -> str | None:
    value = None if profile is None else profile.engine.environment.get("VLLM_USE_V2_MODEL_RUNNER")
    return {"0": "V1", "1": "V2"}.get(value or "")


def _dtype_wish(profile: "Profile | None") -> str | None:
    wished = None if profile is None else profile.target.dtype
    return None if wished == "auto" else wished


def _switch_wish(profile: "Profile | None", flag: str) -> str | None:
    """Whether ``--flag`` or ``--no-flag`` stands among the arguments passed on; the last one counts."""
    if profile is None:
        return None
    found = None
    for argument in profile.engine.arguments:
        name = argument.replace("_", "-")
        if name in (f"--{flag}", f"--no-{flag}"):
            found = "no" if name.startswith("--no-") else "yes"
    return found


def _choice(
    name: str, wished: str | None, chosen: str | None, setting: str | None = None
) -> Choice:
    agrees = None if wished is None or chosen is None else wished.lower() == chosen.lower()
    return Choice(name, wished, chosen, agrees, setting)


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _switch(value: bool | None) -> str | None:
    return None if value is None else "yes" if value else "no"


def _text(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def _tokens(value: int | None) -> str | None:
    return None if value is None else f"{value} tokens"
