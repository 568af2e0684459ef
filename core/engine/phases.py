"""How far vLLM's start has come, told from its log. Pure: lines and times in, phases and facts out.

Texts read from vLLM 0.32.0 (``entrypoints/serve/utils/api_utils.py``, ``config/model.py``,
``v1/engine/core.py``, ``v1/worker/{cpu,gpu}_model_runner.py``, ``v1/core/kv_cache_utils.py``,
``compilation/``); a line that no row knows changes nothing.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from specpanel.core.engine.logline import LogLine, parse_text


class Phase(StrEnum):
    """A stage of the start, in the order of the members; the value is what is shown."""

    IMPORTS = "imports"
    CONFIG = "config"
    ENGINE = "engine"
    WEIGHTS = "weights"
    DRAFTER = "drafter"
    COMPILE = "compile"
    KV_CACHE = "KV cache"
    GRAPHS = "graphs"
    HTTP = "http"
    READY = "ready"


# Compilation and the KV cache share a rank: a version may warm up before or after it sizes the cache.
_RANKS: dict[Phase, int] = {
    Phase.IMPORTS: 0,
    Phase.CONFIG: 1,
    Phase.ENGINE: 2,
    Phase.WEIGHTS: 3,
    Phase.DRAFTER: 4,
    Phase.COMPILE: 5,
    Phase.KV_CACHE: 5,
    Phase.GRAPHS: 6,
    Phase.HTTP: 7,
    Phase.READY: 8,
}


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """A text in the log that belongs to a phase; ``detail`` is a format over the pattern's groups."""

    pattern: re.Pattern[str]
    phase: Phase
    detail: str = ""


def _row(pattern: str, phase: Phase, detail: str = "") -> PhaseRow:
    return PhaseRow(re.compile(pattern), phase, detail)


PHASE_ROWS: tuple[PhaseRow, ...] = (
    _row(r"\bversion (?P<version>\d+\.\d+\S*)$", Phase.CONFIG, "vLLM {version}"),
    _row(r"^non-default args: ", Phase.CONFIG),
    _row(r"^Resolved architecture: (?P<name>\S+)", Phase.CONFIG, "{name}"),
    _row(r"^Using max model len (?P<tokens>\d+)", Phase.CONFIG, "{tokens} tokens of context"),
    _row(r"^Initializing a V1 LLM engine \((?P<version>v\S+)\)", Phase.ENGINE),
    _row(r"^Starting to load model (?P<model>.+?)\.\.\.$", Phase.WEIGHTS, "{model}"),
    _row(
        r"checkpoint shards: +(?P<percent>\d+)% Completed \| (?P<shards>\d+/\d+)",
        Phase.WEIGHTS,
        "{shards} files, {percent} %",
    ),
    _row(
        r"^Loading weights took (?P<seconds>[\d.]+) seconds", Phase.WEIGHTS, "read in {seconds} s"
    ),
    _row(r"^Loading drafter model", Phase.DRAFTER),
    _row(r"^Warming up model for the compilation", Phase.COMPILE, "warming up"),
    _row(r"^Dynamo bytecode transform time: (?P<seconds>[\d.]+) s", Phase.COMPILE, "traced"),
    _row(
        r"^Compiling a graph for compile range (?P<range>\(.+?\)) takes (?P<seconds>[\d.]+) s",
        Phase.COMPILE,
        "range {range} in {seconds} s",
    ),
    _row(r"^Directly load the compiled graph", Phase.COMPILE, "from the cache"),
    _row(r"^Available KV cache memory: (?P<size>[\d.]+ GiB)", Phase.KV_CACHE, "{size}"),
    _row(
        r"^(?:Explicitly|Auto) set \((?P<size>[\d.]+)/[\d.]+\) GiB for KV cache",
        Phase.KV_CACHE,
        "{size} GiB",
    ),
    _row(r"KV cache size: (?P<tokens>[\d,]+) tokens", Phase.KV_CACHE, "{tokens} tokens"),
    _row(r"^Capturing CUDA graphs.*?(?P<percent>\d+)%\|", Phase.GRAPHS, "{percent} %"),
    _row(r"^Graph capturing finished in (?P<seconds>[\d.]+) secs", Phase.GRAPHS, "{seconds} s"),
    _row(r"^Supported tasks: ", Phase.HTTP),
    _row(r"^Starting vLLM (?:API )?server(?: \d+)? on (?P<url>https?://\S+)", Phase.HTTP, "{url}"),
    _row(r"^Application startup complete", Phase.READY),
)


@dataclass(frozen=True, slots=True)
class StartFacts:
    """What vLLM's log says about the server it started; None: not said (yet).

    ``attention_backend`` and ``kv_cache_dtype`` are what vLLM reports, not what was asked for.
    ``drafter_architecture`` is the second architecture resolved, ``drafter_weights_s`` the second load.
    """

    vllm_version: str | None = None
    architecture: str | None = None
    drafter_architecture: str | None = None
    max_model_len: int | None = None
    attention_backend: str | None = None
    kv_cache_dtype: str | None = None
    kv_cache_tokens: int | None = None
    weights_s: float | None = None
    drafter_weights_s: float | None = None
    compile_s: float | None = None
    engine_init_s: float | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class FactRow:
    """A text that states a fact. The first statement stands; ``then`` names a second one's field."""

    pattern: re.Pattern[str]
    field: str
    convert: Callable[[str], Any] = str
    then: str | None = None


def _tokens(text: str) -> int:
    return int(text.replace(",", ""))


FACT_ROWS: tuple[FactRow, ...] = (
    FactRow(re.compile(r"\bversion (\d+\.\d+\S*)$"), "vllm_version"),
    FactRow(re.compile(r"^Initializing a V1 LLM engine \(v(\S+?)\)"), "vllm_version"),
    FactRow(
        re.compile(r"^Resolved architecture: (\S+)"), "architecture", then="drafter_architecture"
    ),
    FactRow(re.compile(r"^Using max model len (\d+)"), "max_model_len", int),
    FactRow(
        re.compile(r"^Using (?:AttentionBackendEnum\.)?([A-Z][A-Z0-9_]+)(?: attention)? backend"),
        "attention_backend",
    ),
    FactRow(re.compile(r"^Using (\S+) data type to store kv cache"), "kv_cache_dtype"),
    FactRow(
        re.compile(r"^Initializing a V1 LLM engine .*\bkv_cache_dtype=(\w+)"), "kv_cache_dtype"
    ),
    FactRow(re.compile(r"KV cache size: ([\d,]+) tokens"), "kv_cache_tokens", _tokens),
    FactRow(
        re.compile(r"^Loading weights took ([\d.]+) seconds"),
        "weights_s",
        float,
        then="drafter_weights_s",
    ),
    FactRow(re.compile(r"^init engine .*\(compilation: ([\d.]+) s"), "compile_s", float),
    FactRow(re.compile(r"^init engine .*? took ([\d.]+) s"), "engine_init_s", float),
    FactRow(re.compile(r"^Starting vLLM (?:API )?server(?: \d+)? on (https?://\S+)"), "url"),
)


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """A phase that was entered: when, on the caller's clock, and for how long (None: still in it)."""

    phase: Phase
    started_s: float
    seconds: float | None


@dataclass(frozen=True, slots=True)
class PhaseChange:
    """A step forward. ``previous_s`` is how long the phase before lasted."""

    phase: Phase
    time_s: float
    detail: str
    previous: Phase
    previous_s: float


class PhaseTracker:
    """Follows one start of vLLM, line by line; phases only move forward.

    Args:
        started_s: when the process was started, on the clock that `feed` is given (any monotonic one).
    """

    def __init__(self, started_s: float = 0.0) -> None:
        self.current = Phase.IMPORTS
        self.detail = ""
        self.facts = StartFacts()
        self._entered_s = started_s
        self._now_s = started_s
        self._past: list[PhaseSpan] = []

    def feed(self, line: LogLine | str, time_s: float) -> PhaseChange | None:
        """Take one line that was read at ``time_s``; the change, where it opens a new phase."""
        self._now_s = max(self._now_s, time_s)
        if self.current is Phase.READY:
            return None
        entry = parse_text(line) if isinstance(line, str) else line
        self._collect(entry)
        for row in PHASE_ROWS:
            if found := row.pattern.search(entry.message):
                return self._reach(row.phase, row.detail.format_map(found.groupdict()))
        return None

    def elapsed_in_phase(self, now_s: float | None = None) -> float:
        """Seconds since the current phase began, until ``now_s`` (the last line where absent)."""
        return max(0.0, (self._now_s if now_s is None else now_s) - self._entered_s)

    @property
    def history(self) -> tuple[PhaseSpan, ...]:
        """Every phase entered, oldest first; the last one is the current."""
        return (*self._past, PhaseSpan(self.current, self._entered_s, None))

    def _reach(self, phase: Phase, detail: str) -> PhaseChange | None:
        if phase is self.current:
            self.detail = detail or self.detail
            return None
        seen = any(span.phase is phase for span in self._past)
        if seen or _RANKS[phase] < _RANKS[self.current]:
            return None
        lasted_s = self._now_s - self._entered_s
        change = PhaseChange(phase, self._now_s, detail, self.current, lasted_s)
        self._past.append(PhaseSpan(self.current, self._entered_s, lasted_s))
        self.current, self.detail, self._entered_s = phase, detail, self._now_s
        return change

    def _collect(self, entry: LogLine) -> None:
        for row in FACT_ROWS:
            if found := row.pattern.search(entry.message):
                self._state(row, row.convert(found[1]))

    def _state(self, row: FactRow, value: Any) -> None:
        if getattr(self.facts, row.field) is None:
            self.facts = replace(self.facts, **{row.field: value})
        elif row.then and getattr(self.facts, row.then) is None:
            self.facts = replace(self.facts, **{row.then: value})
